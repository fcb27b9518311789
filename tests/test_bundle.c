/* A profile's bundle: written, read back, compared; and what is no bundle, refused. */
#define _GNU_SOURCE
#include "base/files.h"
#include "base/memory.h"
#include "profile/profile.h"
#include "report/bundle.h"
#include "report/bundle_check.h"
#include "report/bundle_schema.h"
#include "report/diff.h"
#include "base/stats.h"
#include "report/markdown_report.h"
#include "report/output.h"
#include "report/print.h"
#include "report/questions.h"
#include "tests/support/expect.h"
#include "tests/support/profile.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A profile of both paths, with a difference that was taken and one that is infinite. */
typedef struct {
    Trace *traces[FORM_COUNT];
    Difference differences[2];
    Profile profile;
} Sample;

static void sample_open(Sample *s, int count) {
    for (int form = 0; form < FORM_COUNT; form++) s->traces[form] = sample_trace((Form)form, 1000);
    s->differences[0] = (Difference){"attention", "attention", PASS_FORWARD, 3e-3};
    s->differences[1] = (Difference){"mlp.expand", "linear", PASS_FORWARD, INFINITY};
    expect_ok(profile_make(s->traces, count, s->differences, count == 2 ? 2 : 0, &s->profile));
}

static void sample_close(Sample *s) {
    profile_free(&s->profile);
    for (int form = 0; form < FORM_COUNT; form++) trace_close(s->traces[form]);
}

static char *read_text(const char *path) {
    char *text;
    int64_t length;
    expect_ok(file_read(path, 16 << 20, &text, &length));
    return text;
}

static void expect_no_wild_number(const char *text) {
    static const char *const words[] = {" inf", " nan", "-inf", "-nan", ":inf",
                                        ":nan", "(inf", "(nan", "e+308"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i])) fail_msg("a report holds \"%s\"", words[i]);
}

/* ---- writing and reading back ---- */

static void writes_every_file(void **state) {
    static const char *const files[] = {"profiling_stats_bs4_seq32.json",
                                        "kernel_analysis_report_bs4_seq32.md", "trace_naive_bs4_seq32.json",
                                        "trace_fused_bs4_seq32.json", "profile_bs4_seq32.html"};
    Sample s;
    sample_open(&s, 2);
    ProfileOptions options = {.suffix = "_bs4_seq32"};
    expect_ok(report_profile(&s.profile, &options, inside(*state, "out/deep"), NULL));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *text = read_text(inside(inside(*state, "out/deep"), files[i]));
        expect_no_wild_number(text);
        memory_free(text);
    }
    assert_int_equal(audit_failures(s.traces[0]) + audit_failures(s.traces[1]), 0);
    Bundle bundle;
    expect_ok(bundle_read(inside(inside(*state, "out/deep"), files[0]), &bundle));
    assert_string_equal(bundle.run.model, "tiny");
    assert_int_equal(bundle.run.batch, 4);
    assert_int_equal(bundle.paths_count, 2);
    assert_string_equal(bundle.paths[1].label, "fused");
    assert_int_equal(bundle.paths[0].rows_count, 5);
    assert_string_equal(bundle.paths[0].rows[1].call, "attention");
    assert_true(fabs(bundle.paths[0].rows[1].ns - 135000) < 1e-6);
    assert_true(fabs(1e-6 * bundle.paths[0].step.ns - s.profile.paths[0].figures.step_ms) < 1e-9);
    bundle_free(&bundle);
    sample_close(&s);
}

/* Names come from outside: of kernels, models, tensors. None may end the page's script or a Markdown cell. */
static void names_stay_text(void **state) {
    Sample s;
    sample_open(&s, 1);
    s.traces[0]->run.model = trace_name(s.traces[0], "</script><script>alert(1)</script>|\x01\xff\"\\");
    ProfileOptions options = {0};
    expect_ok(report_profile(&s.profile, &options, *state, NULL));
    char *page = read_text(inside(*state, "profile.html"));
    assert_null(strstr(page, "<script>alert"));
    assert_non_null(strstr(page, "\\u003c/script>"));
    int scripts = 0;
    for (const char *at = page; (at = strstr(at, "</script>")); at++) scripts++;
    assert_int_equal(scripts, 2);
    memory_free(page);
    Bundle bundle;
    expect_ok(bundle_read(inside(*state, "profiling_stats.json"), &bundle));
    assert_string_equal(bundle.run.model, "</script><script>alert(1)</script>|?\xef\xbf\xbd\"\\");
    bundle_free(&bundle);
    sample_close(&s);
}

static void documentation_names_every_key(const json_t *value, const char *document) {
    const char *key;
    json_t *item;
    size_t i;
    json_object_foreach((json_t *)value, key, item) {
        char quoted[128];
        snprintf(quoted, sizeof quoted, "`%s`", key);
        if (!strstr(document, quoted)) fail_msg("docs/profile-schema.md does not explain %s", quoted);
        documentation_names_every_key(item, document);
    }
    if (json_is_array(value))
        json_array_foreach(value, i, item) documentation_names_every_key(item, document);
}

static char *rendered(const Sample *s) {
    Answers answers;
    JsonWriter writer = {0};
    answers = questions_answer(&s->profile);
    MadeBundle made;
    bundle_make(&s->profile, &answers, &(ProfileOptions){0}, &made);
    fields_write(&writer, bundle_fields, &made.bundle);
    bundle_unmake(&made);
    answers_free(&answers);
    return writer.text;
}

static void is_documented(void **state) {
    (void)state;
    Sample s;
    sample_open(&s, 2);
    char *text = rendered(&s), *document = read_text("docs/profile-schema.md");
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    documentation_names_every_key(root, document);
    json_decref(root);
    memory_free(text);
    memory_free(document);
    sample_close(&s);
}

static char *printed(const Bundle *bundle) {
    static const TableView all = {0};
    char *text;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    bundle_print_tables(bundle, &all, file);
    bundle_print_questions(bundle, file);
    bundle_print_audit(bundle, file);
    markdown_report_print(bundle, file);
    fclose(file);
    return text;
}

/* What is printed of a file is what was printed of the profile that is in it. */
static void renders_from_the_file(void **state) {
    (void)state;
    for (int count = 1; count <= FORM_COUNT; count++) {
        Sample s;
        MadeBundle made;
        Bundle bundle;
        sample_open(&s, count);
        s.traces[0]->run.step = trace_name(s.traces[0], count == 1 ? "prefill" : "");
        char *text = rendered(&s);
        Answers answers = questions_answer(&s.profile);
        bundle_make(&s.profile, &answers, &(ProfileOptions){0}, &made);
        char *before = printed(&made.bundle);
        expect_ok(bundle_parse(text, (int64_t)strlen(text), "sample.json", &bundle));
        char *after = printed(&bundle);
        assert_string_equal(after, before);
        assert_non_null(strstr(after, "Overview"));
        bundle_free(&bundle);
        bundle_unmake(&made);
        answers_free(&answers);
        free(before);
        free(after);
        memory_free(text);
        sample_close(&s);
    }
}

/* Kernels' names have no bound, a bundle's texts have one: what was written is read. */
static void cuts_endless_names(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 1000);
    char name[3 * FIELD_TEXT_BYTES];
    memset(name, 'k', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_KERNEL) {
            t->events[i].name = trace_name(t, name);
            t->events[i].parent = trace_above(t, i, TRACE_OPERATION); // with no primitive between
        }
    Sample s = {.traces = {t}};
    expect_ok(profile_make(&t, 1, NULL, 0, &s.profile));
    char *text = rendered(&s);
    Bundle bundle;
    expect_ok(bundle_parse(text, (int64_t)strlen(text), "long.json", &bundle));
    bundle_free(&bundle);
    memory_free(text);
    profile_free(&s.profile);
    trace_close(t);
}

/* ---- what is refused ---- */

typedef struct {
    const char *find, *replace, *message;
} Fault;

static char *replaced(const char *text, const char *find, const char *replace) {
    const char *at = strstr(text, find);
    if (!at) fail_msg("the bundle holds no %s", find);
    size_t before = (size_t)(at - text), room = strlen(text) + strlen(replace) + 1;
    char *made = memory_allocate(room);
    snprintf(made, room, "%.*s%s%s", (int)before, text, replace, at + strlen(find));
    return made;
}

static void refuses_what_is_wrong(void **state) {
    (void)state;
    static const Fault faults[] = {
        {"fusebox-profile", "another-profile", "not a profile"},
        {"\"version\":1", "\"version\":2", "version 2"},
        {"\"version\":1", "\"version\":\"1\"", "version"},
        {"\"batch\":4", "\"batch\":-4", "run.batch"},
        {"\"batch\":4", "\"batch\":4.5", "run.batch"},
        {"\"batch\":4", "\"batch\":1e999", "overflow"},
        {"\"model\":\"tiny\"", "\"model\":7", "run.model"},
        {"\"model\":\"tiny\"", "\"model\":\"tiny\",\"model\":\"tiny\"", "duplicate"},
        {"\"flops\":", "\"flop\":", "peaks.measured.flops: missing"},
        {"\"paths\":[", "\"paths\":[7,", "paths[0]: not an object"},
        {"\"paths\":", "\"paths\":[],\"path\":", "paths: 0 of them"},
        {"\"pass\":\"forward\"", "\"pass\":\"sideways\"", "sideways"},
        {"\"form\":\"naive\"", "\"form\":\"molten\"", "molten"},
        {"\"operation\":\"attention\"", "\"operation\":\"\"", "an operation without a name"},
        {"\"place\":\"attention\",\"operation\":\"attention\",\"pass\":\"backward\"",
         "\"place\":\"attention\",\"operation\":\"attention\",\"pass\":\"forward\"", "are the same"},
        {"\"low_ns\":", "\"low_ns\":1e12,\"was\":", "not between"},
        {"\"events\":[[0,", "\"events\":[[99999,", "has no name"},
        {"\"events\":[[0,", "\"events\":[[-1,", "not an event"},
        {"\"rows\":[[", "\"rows\":[[null,", "cells in"},
        {"\"columns\":[", "\"columns\":[],\"was\":[", "columns: 0 of them"},
        {"\"rows\":[[", "\"rows\":[[[],", "neither a text nor a number"},
        {"\"kind\":\"count\"", "\"kind\":\"text\"", "not of its column's kind"},
        {"\"label\":\"fused\"", "\"label\":\"naive\"", "both are called 'naive'"},
        {"\"passed\":true", "\"passed\":1", "audit[0].passed"},
        {"\"answer\":[", "\"answer\":[null,", "answer[0]: not a text"},
        {"\"source_note\":\"", "\"source_note\":\"\\u0000", "\\u0000"},
    };
    Sample s;
    sample_open(&s, 2);
    char *text = rendered(&s);
    Bundle bundle;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char *wrong = replaced(text, faults[i].find, faults[i].replace);
        expect_error(bundle_parse(wrong, (int64_t)strlen(wrong), "wrong.json", &bundle), ERROR_FORMAT,
                     faults[i].message);
        memory_free(wrong);
    }
    memory_free(text);
    sample_close(&s);
}

/* Cut anywhere, or with a byte changed anywhere, it is refused or read, and never crashes. */
static void survives_any_damage(void **state) {
    (void)state;
    Sample s;
    sample_open(&s, 1);
    char *text = rendered(&s);
    int64_t length = (int64_t)strlen(text);
    Bundle bundle;
    for (int64_t cut = 0; cut < length; cut += 1 + cut / 40)
        expect_error(bundle_parse(text, cut, "cut.json", &bundle), ERROR_FORMAT, "cut.json");
    uint32_t random = 1;
    int refused = 0;
    for (int i = 0; i < 400; i++) {
        random = random * 1664525u + 1013904223u;
        char *at = &text[(random >> 8) % (uint32_t)length], was = *at;
        *at = "0-9\"[]{},:x\xff"[random >> 29];
        Status status = bundle_parse(text, length, "changed.json", &bundle);
        refused += status != OK;
        if (status) assert_int_equal(status_code(status), ERROR_FORMAT);
        status_free(status);
        bundle_free(&bundle);
        *at = was;
    }
    assert_true(refused > 0);
    expect_ok(bundle_parse(text, length, "whole.json", &bundle));
    bundle_free(&bundle);
    memory_free(text);
    sample_close(&s);
}

static void refuses_strange_files(void **state) {
    Bundle bundle;
    expect_error(bundle_read(inside(*state, "none.json"), &bundle), ERROR_FILE, "none.json");
    expect_error(bundle_read(*state, &bundle), ERROR_FILE, "directory");
    write_text_file(inside(*state, "empty.json"), "");
    expect_error(bundle_read(inside(*state, "empty.json"), &bundle), ERROR_FORMAT, "empty.json");
    char deep[20001];
    memset(deep, '[', 20000);
    deep[20000] = 0;
    write_text_file(inside(*state, "deep.json"), deep);
    expect_error(bundle_read(inside(*state, "deep.json"), &bundle), ERROR_FORMAT, "deep.json");
}

/* ---- figures that disagree ---- */

static void scale(OperationRow *r, double by) {
    double *const times[] = {&r->ns, &r->low, &r->high, &r->median, &r->spread};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) *times[i] *= by;
    for (int64_t i = 0; i < r->inside_count; i++) r->inside[i].ns *= by;
}

static void longer_step(BundlePath *path) {
    path->step.ns *= 10, path->step.low *= 10, path->step.high *= 10;
}
static void longer_operation(BundlePath *path) {
    scale(&path->rows[1], 10);
}
static void faster_operation(BundlePath *path) {
    scale(&path->rows[1], 0.1);
}
static void inside_above_operation(BundlePath *path) {
    path->rows[1].inside[0].ns = 2 * path->rows[1].ns;
}
static void kernels_times_a_hundred(BundlePath *path) {
    for (int64_t i = 0; i < path->kernels_count; i++) path->kernels[i].in[PASS_FORWARD].ns *= 100;
}
static void more_work(BundlePath *path) {
    path->rows[0].work.flops *= 10;
}
static void more_launches(BundlePath *path) {
    path->rows[0].launches += 1;
}
static void less_device_time(BundlePath *path) {
    path->step.device *= 0.9;
}
static void longer_phase(BundlePath *path) {
    path->phases[1].ns *= 1.3;
}
static void more_memory(BundlePath *path) {
    path->peak_bytes *= 2;
}
static void median_out_of_range(BundlePath *path) {
    path->rows[0].median = 2 * path->rows[0].high;
}
static void another_table(BundlePath *path) {
    for (int64_t i = 0; i < path->tables_count; i++)
        if (strcmp(path->tables[i].key, "kernels") == 0)
            path->tables[i].cells[table_column(&path->tables[i], "total_ns")].number *= 2;
}
static void better_coverage(BundlePath *path) {
    path->step.covered = 1;
}
static void passed_after_all(BundlePath *path) {
    for (int64_t i = 0; i < path->audit_count; i++) path->audit[i].passed = true;
}

typedef struct {
    void (*spoil)(BundlePath *path);
    const char *message;
} Disagreement;

/* The sample's launches are counted wrongly, so that its own audit has a check that failed. */
static void check_finds_each_disagreement(void **state) {
    (void)state;
    static const Disagreement all[] = {{longer_step, "low_ns"},
                                       {longer_operation, "share_of_limit"},
                                       {faster_operation, "share_of_limit"},
                                       {inside_above_operation, "attention forward: inside: the sum of ns"},
                                       {kernels_times_a_hundred, "kernels: the sum of ns"},
                                       {more_work, "mlp.expand forward: share_of_limit"},
                                       {more_launches, "inside: the sum of launches"},
                                       {less_device_time, "operations: the sum of ns"},
                                       {longer_phase, "phases: the sum of ns"},
                                       {more_memory, "memory: the sum of classes"},
                                       {median_out_of_range, "median_ns"},
                                       {another_table, "table kernels"},
                                       {better_coverage, "audit: " CHECK_COVERED},
                                       {passed_after_all, "records = launches: passed: true"}};
    Sample s;
    for (int form = 0; form < FORM_COUNT; form++) {
        s.traces[form] = sample_trace((Form)form, 1000);
        s.traces[form]->run.launches++;
    }
    expect_ok(profile_make(s.traces, 2, NULL, 0, &s.profile));
    char *text = rendered(&s);
    for (int i = -1; i < (int)(sizeof all / sizeof *all); i++) {
        Bundle bundle;
        expect_ok(bundle_parse(text, (int64_t)strlen(text), "sample.json", &bundle));
        if (i >= 0) all[i].spoil(&bundle.paths[1]);
        if (i < 0)
            expect_ok(bundle_check(&bundle));
        else
            expect_error(bundle_check(&bundle), ERROR_FORMAT, all[i].message);
        bundle_free(&bundle);
    }
    memory_free(text);
    sample_close(&s);
}

/* ---- diff ---- */

static void reads_limits(void **state) {
    (void)state;
    static const char *const wrong[] = {"",        "step", "step>",    "step>3%",    "step>-3%", "step<+3%",
                                        "step>+3", ">+3%", "step>+x%", "step>+inf%", "step>+3%%"};
    DiffLimit limit;
    expect_ok(diff_limit_parse("step>+3%", &limit));
    assert_string_equal(limit.figure, "step");
    assert_true(limit.above && fabs(limit.share - 0.03) < 1e-12);
    expect_ok(diff_limit_parse("attention backward<-2.5%", &limit));
    assert_string_equal(limit.figure, "attention backward");
    assert_true(!limit.above && fabs(limit.share + 0.025) < 1e-12);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(diff_limit_parse(wrong[i], &limit), ERROR_USAGE, "step>+3%");
}

static OperationRow row(const char *place, Pass pass, double ns, double spread) {
    return (OperationRow){.call = place,
                          .operation = "linear",
                          .pass = pass,
                          .ns = ns,
                          .low = ns * (1 - spread),
                          .high = ns * (1 + spread),
                          .median = ns,
                          .spread = ns * spread,
                          .launches = 1};
}

static void tells_what_changed(void **state) {
    (void)state;
    OperationRow a[] = {row("same", PASS_FORWARD, 100, 0.05), row("noisy", PASS_FORWARD, 100, 0.05),
                        row("slow", PASS_FORWARD, 100, 0.01), row("fast", PASS_FORWARD, 100, 0.01),
                        row("gone", PASS_FORWARD, 50, 0)},
                 b[] = {row("same", PASS_FORWARD, 100.5, 0), row("noisy", PASS_FORWARD, 104, 0.05),
                        row("slow", PASS_FORWARD, 110, 0.01), row("fast", PASS_FORWARD, 90, 0.01),
                        row("new", PASS_FORWARD, 60, 0)};
    const TraceRun run = {.model = "m", .device = "d", .dtype = "fp32"};
    const BundleStep step = {.recorded = 10, .ns = 100, .low = 99, .high = 101, .spread = 1};
    BundlePath first[] = {{.label = "fused", .step = step, .rows = a, .rows_count = 5}, {.label = "mixed"}},
               second[] = {{.label = "fused", .step = step, .rows = b, .rows_count = 5}};
    Bundle before = {.run = run, .paths = first, .paths_count = 1},
           after = {.run = run, .paths = second, .paths_count = 1};
    second[0].step.ns = 104;
    DiffLimit limits[4];
    const char *const texts[4] = {"step>+3%", "step>+5%", "slow>+9%", "fast forward<-20%"};
    for (int i = 0; i < 4; i++) expect_ok(diff_limit_parse(texts[i], &limits[i]));
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    int exceeded;
    expect_ok(diff_bundles(&before, &after, limits, 4, file, &exceeded));
    fclose(file);
    assert_int_equal(exceeded, 2);
    assert_non_null(strstr(text, "1 added, 1 removed, 1 slower, 1 faster, 2 the same within noise"));
    assert_non_null(strstr(text, "FAIL fused: step changed by +4.00%"));
    assert_non_null(strstr(text, "FAIL fused: slow changed by +10.00%"));
    expect_no_wild_number(text);
    assert_non_null(strstr(text, "tracing on in both"));
    free(text);
    first[0].step.timed = 3;
    file = open_memstream(&text, &length);
    expect_ok(diff_bundles(&before, &after, limits, 0, file, &exceeded));
    fclose(file);
    assert_non_null(strstr(text, "tracing on in one of them"));
    free(text);
    second[0].step.timed = 3;
    before.paths_count = 2; // of which the second is not in the other
    file = open_memstream(&text, &length);
    expect_ok(diff_bundles(&before, &after, limits, 0, file, &exceeded));
    fclose(file);
    assert_non_null(strstr(text, "step, tracing off"));
    assert_non_null(strstr(text, "mixed: not compared, the second profile has no such path"));
    free(text);
    file = open_memstream(&text, &length);
    expect_ok(diff_bundles(&after, &before, limits, 0, file, &exceeded));
    fclose(file);
    assert_non_null(strstr(text, "mixed: not compared, the first profile has no such path"));
    free(text);
    expect_ok(diff_limit_parse("nothing>+1%", &limits[0]));
    file = open_memstream(&text, &length);
    expect_error(diff_bundles(&before, &after, limits, 1, file, &exceeded), ERROR_USAGE, "nothing");
    fclose(file);
    free(text);
}

/* Of two bundles that differ in a row: what diff prints, and how many limits are exceeded. */
static char *diff_of(OperationRow a, OperationRow b, TraceRun run_a, TraceRun run_b, int64_t steps,
                     int *exceeded) {
    const BundleStep step = {.recorded = steps, .ns = 100, .low = 99, .high = 101, .spread = 1};
    BundlePath first = {.label = "fused", .step = step, .rows = &a, .rows_count = 1},
               second = {.label = "fused", .step = step, .rows = &b, .rows_count = 1};
    Bundle before = {.run = run_a, .paths = &first, .paths_count = 1},
           after = {.run = run_b, .paths = &second, .paths_count = 1};
    DiffLimit limit;
    char *text = NULL;
    size_t length = 0;
    expect_ok(diff_limit_parse("row>+3%", &limit));
    FILE *file = open_memstream(&text, &length);
    expect_ok(diff_bundles(&before, &after, &limit, 1, file, exceeded));
    fclose(file);
    return text;
}

/* However many samples there are and however far their extremes lie: it is medians that are compared. */
static void outliers_hide_no_change(void **state) {
    (void)state;
    const TraceRun run = {.model = "m", .device = "d", .dtype = "fp32"};
    OperationRow a = row("row", PASS_FORWARD, 100, 0.05), b = row("row", PASS_FORWARD, 150, 0.05);
    int exceeded;
    a.high = 400, b.low = 90;
    char *text = diff_of(a, b, run, run, 20, &exceeded);
    assert_int_equal(exceeded, 1);
    assert_non_null(strstr(text, "slower"));
    free(text);
}

static void the_table_and_the_limit_say_the_same(void **state) {
    (void)state;
    const TraceRun run = {.model = "m", .device = "d", .dtype = "fp32"};
    int exceeded;
    char *text = diff_of(row("row", PASS_FORWARD, 100, 0.3), row("row", PASS_FORWARD, 104, 0.3), run, run, 5,
                         &exceeded);
    assert_int_equal(exceeded, 0);
    assert_non_null(strstr(text, "1 the same within noise"));
    assert_non_null(strstr(text, "passed fused: row changed by +4.00%"));
    free(text);
    text = diff_of(row("row", PASS_FORWARD, 100, 0.01), row("row", PASS_FORWARD, 104, 0.01), run, run, 1,
                   &exceeded);
    assert_int_equal(exceeded, 1);
    assert_non_null(strstr(text, "its noise is not known"));
    free(text);
}

static void different_configurations_are_said(void **state) {
    (void)state;
    const TraceRun run = {.model = "m", .device = "d", .dtype = "fp32", .batch = 4},
                   other = {.model = "m", .device = "d", .dtype = "fp32", .batch = 8};
    const OperationRow same = row("row", PASS_FORWARD, 100, 0.01);
    int exceeded;
    char *text = diff_of(same, same, run, other, 5, &exceeded);
    assert_non_null(strstr(text, "DIFFERENT batch: 4, then 8\n"));
    assert_null(strstr(text, "DIFFERENT model"));
    free(text);
}

static void chance_moves_medians_so_far(void **state) {
    (void)state;
    double values[] = {9, 1, 3, 5, 7};
    const Stats s = stats_make(values, 5);
    assert_true(s.median == 5 && s.spread == 4);
    const Sampled before = {100, 4, 5}, near = {106, 4, 5},
                  far = {110, 4, 5}; // error 1.86 each, 2.63 of both, t(8) 3.33
    assert_false(medians_differ(before, near));
    assert_true(medians_differ(before, far));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outliers_hide_no_change),
        cmocka_unit_test(the_table_and_the_limit_say_the_same),
        cmocka_unit_test(different_configurations_are_said),
        cmocka_unit_test(chance_moves_medians_so_far),
        cmocka_unit_test_setup_teardown(writes_every_file, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(names_stay_text, scratch_setup, scratch_teardown),
        cmocka_unit_test(is_documented),
        cmocka_unit_test(renders_from_the_file),
        cmocka_unit_test(cuts_endless_names),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(survives_any_damage),
        cmocka_unit_test(check_finds_each_disagreement),
        cmocka_unit_test_setup_teardown(refuses_strange_files, scratch_setup, scratch_teardown),
        cmocka_unit_test(reads_limits),
        cmocka_unit_test(tells_what_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
