/* A profile's bundle is written, read back and compared; anything else is refused. */
#define _GNU_SOURCE
#include "base/files.h"
#include "base/memory.h"
#include "profile/profile.h"
#include "report/anatomy.h"
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

/* A profile of both paths, with a measured difference and an infinite one. */
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
    static const char *const files[] = {
        "profiling_stats_bs4_seq32.json", "kernel_analysis_report_bs4_seq32.md",
        "tiny_naive_trace_bs4_seq32.json", "tiny_fused_trace_bs4_seq32.json", "profile_bs4_seq32.html"};
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

/* A file is printed exactly like the profile that it contains. */
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
        assert_non_null(strstr(after, "\n### 4.1 ")); // where guides look for the kernels
        assert_non_null(strstr(after, "\n### 4.3 "));
        bundle_free(&bundle);
        bundle_unmake(&made);
        answers_free(&answers);
        free(before);
        free(after);
        memory_free(text);
        sample_close(&s);
    }
}

/* A section of the report contains the kernel's shapes and its anatomy. */
static void report_has_the_anatomy(void **state) {
    (void)state;
    Sample s;
    MadeBundle made;
    const Anatomy *found[4];
    const char *const name =
        "void (anonymous namespace)::norm_rows<float, (NormKind)0, 2, true, false>(ForwardRows<float>)";
    sample_open(&s, 1);
    KernelRow *longest =
        s.profile.paths[0].figures.kernels; // at most ten kernels are listed, so it is in the report
    longest->name = name;
    longest->shapes = "[[4, 32, 64], [64]]";
    Answers answers = questions_answer(&s.profile);
    bundle_make(&s.profile, &answers, &(ProfileOptions){0}, &made);
    char *text = printed(&made.bundle);
    assert_int_equal(anatomy_find(name, "", found, 4), 1);
    assert_string_equal(found[0]->file, "kernels/norm/cuda_fused.cu");
    assert_non_null(strstr(text, "- Shapes: [[4, 32, 64], [64]]\n"));
    assert_non_null(strstr(text, "- Kernel: kernels/norm/cuda_fused.cu:"));
    for (int part = 0; part < ANATOMY_PARTS; part++) assert_non_null(strstr(text, found[0]->parts[part]));
    free(text);
    bundle_unmake(&made);
    answers_free(&answers);
    sample_close(&s);
}

/* If several kernels have one name, those closest to the kernel's operation are listed; a name without
 * parameters is a primitive, not a kernel. */
static void finds_the_anatomy(void **state) {
    (void)state;
    const Anatomy *found[8];
    assert_int_equal(anatomy_find("scale", "kernels/norm/cuda_naive.cu:300", found, 8), 0);
    assert_int_equal(anatomy_find("void scale<float, 4>(...)", "", found, 8), 4);
    assert_int_equal(anatomy_find("void scale<float, 4>(...)", "kernels/norm/cuda_naive.cu:300", found, 8),
                     1);
    assert_string_equal(found[0]->file, "kernels/norm/cuda_naive.cu");
    assert_int_equal(anatomy_find("void scale<float, 4>(...)", "kernels/norm/norm.c:1", found, 8), 1);
    assert_string_equal(found[0]->file, "kernels/norm/cuda_naive.cu");
    assert_int_equal(anatomy_find("void scale<float, 4>(...)", "", found, 2), 2);
    assert_int_equal(anatomy_find("void ampere_sgemm(int)", "", found, 8), 0);
    for (int i = 0; i < anatomy_count; i++)
        for (int part = 0; part < ANATOMY_PARTS; part++) {
            assert_true(*anatomy_rows[i].parts[part]);
            assert_true(strlen(anatomy_rows[i].parts[part]) <= 107); // its line has 120 columns
        }
}

/* Kernel names have unlimited length, a bundle's texts do not: a written bundle must be readable. */
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

/* ---- invalid bundles ---- */

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

/* A bundle truncated anywhere, or with any byte changed, is refused or read, without a crash. */
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
    expect_error(bundle_read(*state, &bundle), ERROR_FILE, BUNDLE_FILE);
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
static void other_coverage(BundlePath *path) {
    path->step.covered /= 2;
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
                                       {other_coverage, "audit: " CHECK_COVERED},
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

/* A bundle of one path with these times of the row "row" and of the step. */
typedef struct {
    OperationRow row;
    BundlePath path;
    Bundle bundle;
} One;

enum { SIDE = 5 };

static void make_one(One *one, const TraceRun *run, double ns, double cores_waited) {
    one->row = row("row", PASS_FORWARD, ns, 0.01);
    one->path = (BundlePath){
        .label = "fused",
        .step = {.recorded = 10, .timed = 10, .ns = ns, .spread = 1, .cores_waited = cores_waited},
        .rows = &one->row,
        .rows_count = 1};
    one->bundle = (Bundle){.run = *run, .paths = &one->path, .paths_count = 1};
}

static const TraceRun plain_run = {.model = "m", .device = "d", .dtype = "fp32"};

/* The output of diff for several runs per side, and how many of two limits are exceeded. */
static char *diff_of(const double before[], const double after[], int runs, double waited, int *exceeded) {
    One ones[2][SIDE];
    Bundle bundles[2][SIDE];
    DiffLimit limits[2];
    char *text = NULL;
    size_t length = 0;
    for (int i = 0; i < runs; i++) {
        make_one(&ones[0][i], &plain_run, before[i], waited);
        make_one(&ones[1][i], &plain_run, after[i], waited);
        for (int side = 0; side < 2; side++) bundles[side][i] = ones[side][i].bundle;
    }
    expect_ok(diff_limit_parse("step>+3%", &limits[0]));
    expect_ok(diff_limit_parse("row>+3%", &limits[1]));
    const DiffSide sides[2] = {{bundles[0], runs}, {bundles[1], runs}};
    FILE *file = open_memstream(&text, &length);
    expect_ok(diff_bundles(sides, limits, 2, file, exceeded));
    fclose(file);
    expect_no_wild_number(text);
    return text;
}

static void expect_diff(const double before[], const double after[], int runs, double waited, int fails,
                        const char *said) {
    int exceeded;
    char *text = diff_of(before, after, runs, waited, &exceeded);
    if (exceeded != fails) fail_msg("%d limits exceeded, and not %d: %s", exceeded, fails, text);
    assert_non_null(strstr(text, said));
    free(text);
}

static void the_spread_between_runs_decides(void **state) {
    (void)state;
    const double near[SIDE] = {100, 101, 99, 100.5, 99.5}, slower[SIDE] = {110, 111, 109, 110.5, 109.5},
                 wide[SIDE] = {100, 140, 90, 120, 80}, wide_slower[SIDE] = {110, 154, 99, 132, 88};
    expect_diff(near, near, SIDE, 0, 0, "0 slower, 0 faster, 1 the same within noise");
    expect_diff(near, slower, SIDE, 0, 2, "1 slower");
    expect_diff(wide, wide_slower, SIDE, 0, 0, "passed fused: step changed by +10.00%");
    expect_diff(
        near, slower, SIDE, 0, 2,
        "+8.5 to +11.6%"); // 109 / 100.5 and 111 / 99.5: two of the 25 ratios lie outside on either side
}

/* The spread of one process's steps does not show how much another process would differ. */
static void one_run_a_side_cannot_tell(void **state) {
    (void)state;
    const double before[] = {100}, after[] = {150};
    expect_diff(before, after, 1, 0, 0, "fewer than two undisturbed runs on a side");
    expect_diff(before, after, 1, 0, 0, "but these runs cannot decide it");
}

static void shared_cores_give_no_verdict(void **state) {
    (void)state;
    const double near[SIDE] = {100, 101, 99, 100.5, 99.5}, slower[SIDE] = {150, 151, 149, 150.5, 149.5};
    expect_diff(near, slower, SIDE, 0.06, 0, "1 undecided");
    expect_diff(near, slower, SIDE, 0.04, 2, "1 slower");
}

static void bytes_have_no_noise(void **state) {
    (void)state;
    One ones[2];
    DiffLimit limit;
    char *text = NULL;
    size_t length = 0;
    int exceeded;
    for (int side = 0; side < 2; side++) {
        make_one(&ones[side], &plain_run, 100, 0.5);
        ones[side].path.peak_bytes = 1000 + 20 * side;
    }
    expect_ok(diff_limit_parse("memory>+1%", &limit));
    const DiffSide sides[2] = {{&ones[0].bundle, 1}, {&ones[1].bundle, 1}};
    FILE *file = open_memstream(&text, &length);
    expect_ok(diff_bundles(sides, &limit, 1, file, &exceeded));
    assert_int_equal(exceeded, 1);
    expect_ok(diff_limit_parse("nothing>+1%", &limit));
    expect_error(diff_bundles(sides, &limit, 1, file, &exceeded), ERROR_USAGE, "nothing");
    ones[1].row.call = "new";
    expect_ok(diff_bundles(sides, &limit, 0, file, &exceeded));
    ones[1].path.label = "mixed";
    ones[1].bundle.paths_count = 2;
    BundlePath both[2] = {ones[1].path, ones[0].path};
    ones[1].bundle.paths = both;
    expect_ok(diff_bundles(sides, &limit, 0, file, &exceeded));
    fclose(file);
    assert_non_null(strstr(text, "1 added, 1 removed"));
    assert_non_null(strstr(text, "mixed: not compared, the first profile has no such path"));
    free(text);
}

static void different_configurations_are_said(void **state) {
    (void)state;
    One ones[2];
    TraceRun run = plain_run;
    char *text = NULL;
    size_t length = 0;
    int exceeded;
    char *settings[2][3] = {{"fused=1", "beta1=0.9", "older=1"}, {"fused=0", "beta1=0.9"}};
    run.command = "train --data=before.txt --model=gpt2 --batch=4 --seq=1024 --profile-out=runs/before";
    run.batch = 4, run.threads = 2, run.commit = "abc", run.host_clocks = "2.0 GHz";
    run.settings = settings[0], run.settings_count = 3;
    make_one(&ones[0], &run, 100, 0);
    run.command = "train --data=after.txt";
    run.batch = 8, run.threads = 1, run.commit = "abd", run.host_clocks = "2.1 GHz";
    run.settings = settings[1], run.settings_count = 2;
    make_one(&ones[1], &run, 100, 0);
    const DiffSide sides[2] = {{&ones[0].bundle, 1}, {&ones[1].bundle, 1}};
    FILE *file = open_memstream(&text, &length);
    expect_ok(diff_bundles(sides, NULL, 0, file, &exceeded));
    fclose(file);
    assert_non_null(strstr(text, "DIFFERENT batch: 4, then 8\n"));
    assert_non_null(strstr(text, "DIFFERENT threads: 2, then 1\n"));
    assert_non_null(strstr(text, "runs/before, then train\n--data=after.txt\n")); // REPORT_WIDTH
    assert_non_null(strstr(text, "DIFFERENT commit: abc, then abd\n"));
    assert_non_null(strstr(text, "DIFFERENT --fused: 1, then 0\n"));
    assert_null(strstr(text, "beta1"));
    assert_null(strstr(text, "older"));
    assert_null(strstr(text, "clocks"));
    assert_null(strstr(text, "DIFFERENT model"));
    free(text);
}

/* With ten pairs the interval is from the second to the ninth, with 2 * 11 / 1024 outside; with five none may
 * be left out. */
static void pairs_keep_their_ratio(void **state) {
    (void)state;
    const double under[] = {1, 2, 1, 1, 4, 1, 1, 1, 1, 1}, over[] = {10, 2, 3, 2, 16, 5, 6, 7, 8, 9};
    const MedianInterval ten = pairs_ratio(over, under, 10), five = pairs_ratio(over, under, 5);
    assert_true(ten.median == 5.5 && ten.low == 2 && ten.high == 9);
    assert_true(five.median == 3 && five.low == 1 && five.high == 10);
}

static bool steady(const double *values, int64_t count) {
    return series_steady(&(Series){.values = (double *)(uintptr_t)values, .count = count}, 0.01);
}

/* With ten values, the last two are compared with the two before them. */
static void drifts_end(void **state) {
    (void)state;
    const double drifting[] = {1, 1, 1, 1, 1, 1, 2, 2, 2.1, 2.1},
                 steady_at_last[] = {9, 9, 9, 9, 9, 9, 2, 2.2, 2.1, 2.1};
    assert_false(steady(drifting, 10));
    assert_true(steady(steady_at_last, 10));
    assert_true(steady(drifting, 8) == false && steady(steady_at_last + 6, 4) == false);
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

        cmocka_unit_test(the_spread_between_runs_decides),
        cmocka_unit_test(one_run_a_side_cannot_tell),
        cmocka_unit_test(shared_cores_give_no_verdict),
        cmocka_unit_test(bytes_have_no_noise),
        cmocka_unit_test(pairs_keep_their_ratio),
        cmocka_unit_test(drifts_end),
        cmocka_unit_test(different_configurations_are_said),
        cmocka_unit_test(chance_moves_medians_so_far),
        cmocka_unit_test_setup_teardown(writes_every_file, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(names_stay_text, scratch_setup, scratch_teardown),
        cmocka_unit_test(is_documented),
        cmocka_unit_test(renders_from_the_file),
        cmocka_unit_test(report_has_the_anatomy),
        cmocka_unit_test(finds_the_anatomy),
        cmocka_unit_test(cuts_endless_names),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(survives_any_damage),
        cmocka_unit_test(check_finds_each_disagreement),
        cmocka_unit_test_setup_teardown(refuses_strange_files, scratch_setup, scratch_teardown),
        cmocka_unit_test(reads_limits),

    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
