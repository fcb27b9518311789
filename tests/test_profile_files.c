/* Profiles from the user's side: runs the programs and reads their files. */
#include "base/files.h"
#include "base/memory.h"
#include "base/version.h"
#include "report/bundle_schema.h"
#include "tests/support/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT "--profile=1,0,1,2,1 --steps=6 --val-every=0 --sample-every=0"

/* Reads a run's bundle, which checks its form. */
static Bundle bundle_in(const char *folder, const char *name) {
    Bundle bundle;
    expect_ok(bundle_read(inside(folder, name), &bundle));
    return bundle;
}

static json_t *json_in(const char *folder, const char *name) {
    json_error_t error;
    json_t *root = json_load_file(inside(folder, name), JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("%s: line %d: %s", name, error.line, error.text);
    return root;
}

/* ---- a run's files ---- */

static void expect_setting(const TraceRun *run, const char *setting) {
    for (int64_t i = 0; i < run->settings_count; i++)
        if (strcmp(run->settings[i], setting) == 0) return;
    fail_msg("the profile does not say %s", setting);
}

/* Each primitive names a line of a file of ours. */
static const char *source_of(const BundlePath *path, const char *kernel) {
    const char *found = NULL;
    for (int64_t i = 0; i < path->kernels_count; i++) {
        const KernelRow *k = &path->kernels[i];
        if (strchr(k->name, ':') && !(k->source && strchr(k->source, ':')))
            fail_msg("%s has no source", k->name);
        if (strcmp(k->name, kernel) == 0) found = k->source;
    }
    if (!found) fail_msg("no kernel is named %s", kernel);
    return found;
}

static void train_leaves_its_files(void **state) {
    program_succeeds(*state, "train " TINY " " SHORT " --dtype=fp32 --peaks --profile-out=made/here -q");
    Bundle bundle = bundle_in(*state, "made/here/profiling_stats.json");
    assert_int_equal(bundle.paths_count, 1);
    const BundlePath *path = &bundle.paths[0];
    assert_string_equal(path->label, "fused");
    expect_text(bundle.run.command, "--profile-out=made/here");
    assert_true(strncmp(bundle.run.version, "fusebox ", 8) == 0 && strncmp(bundle.run.date, "20", 2) == 0);
    assert_string_equal(bundle.run.commit, version_commit());
    assert_non_null(strstr(bundle.run.build, "-march="));
    assert_true(bundle.run.threads > 0 && *bundle.run.host && strstr(bundle.run.host_clocks, " processors"));
    expect_setting(&bundle.run, "dtype=fp32");     // given
    expect_setting(&bundle.run, "recompute=none"); // a default
    assert_true(path->step.ns > 0 && path->peak_bytes > 0 && path->step.launches > 0 &&
                path->rows[0].work.flops > 0);
    assert_int_equal(path->step.tokens, 64);
    assert_true(path->audit_count >=
                6); // one more check each if the limits and the tracing overhead are known
    assert_string_not_equal(source_of(path, "attention backward: flash attention"),
                            source_of(path, "attention forward: flash attention"));
    expect_text(source_of(path, "norm backward: gradients"), "kernels/norm/cpu_fused.c:"); // of several calls
    bundle_free(&bundle);
    const Ran *ran = program_succeeds(*state, "profile check made/here");
    expect_text(ran->output, "gpt2-nano (changed), fp32");
    program_succeeds(*state, "profile page made/here again.html");
    expect_same_file(*state, "made/here/profile.html", "again.html");
    program_succeeds(*state,
                     "grep -q -- --profile-out=made/here made/here/kernel_analysis_report_bs2_seq32.md");
    assert_true(path_exists(inside(*state, "made/here/tables/operations.csv")));
    program_succeeds(*state, "grep -qxF -- --dtype,fp32 made/here/tables/provenance.csv");
    program_succeeds(*state,
                     "grep -qF -- '| --dtype | fp32 |' made/here/kernel_analysis_report_bs2_seq32.md");
    program_succeeds(*state, "grep -qF -- '\"--dtype\":\"fp32\"' made/here/*_trace_*.json");
    program_succeeds(
        *state, "test $(ls made/here/tables/*.csv | wc -l) = $(grep -c '^### ' made/here/tables/all.md)");
}

/* Requirements of viewers for the trace of a real run: no negative time, slices of a track disjoint or
 * nested. */
static void expect_nested(const char *folder, const char *name) {
    json_t *root = json_in(folder, name), *event;
    enum { TRACKS = 512, DEPTHS = 32, FIRST_TRACK = 10000 };
    double open[TRACKS][DEPTHS]; // ends of the enclosing slices
    int depth[TRACKS] = {0};
    size_t i, slices = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        int track = (int)(json_integer_value(json_object_get(event, "pid")) * 128 +
                          json_integer_value(json_object_get(event, "tid")) - FIRST_TRACK);
        assert_true(track >= 0 && track < TRACKS);
        double begin = json_number_value(json_object_get(event, "ts"));
        double end = begin + json_number_value(json_object_get(event, "dur"));
        assert_true(begin >= 0 && end >= begin);
        slices++;
        while (depth[track] > 0 && open[track][depth[track] - 1] <= begin + 1e-6) depth[track]--;
        if (depth[track] > 0) assert_true(end <= open[track][depth[track] - 1] + 1e-6);
        assert_true(depth[track] < DEPTHS);
        open[track][depth[track]++] = end;
    }
    assert_true(slices > 100);
    json_decref(root);
}

static void trace_is_nested(void **state) {
    program_succeeds(*state,
                     "train " TINY " " SHORT " --fused=0 --profile-out=nested --profile-trace=trace.json -q");
    expect_nested(*state, "nested/trace.json");
}

/* One process; arrows from operations to their primitives; inputs; the data loader's thread, which read the
 * first batches before the first step. */
static void trace_of_the_cpu(void **state) {
    int64_t primitives = 0, products = 0, arrows = 0, readings = 0, shapes = 0;
    size_t i;
    program_succeeds(*state, "train " TINY " --steps=50 --workers=1 --profile=38,0,0,9,1 --fused=0 "
                             "--profile-out=threads --profile-trace=trace.json -q");
    expect_nested(*state, "threads/trace.json");
    json_t *root = json_in(*state, "threads/trace.json"), *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        const char *phase = json_string_value(json_object_get(event, "ph")),
                   *category = json_string_value(json_object_get(event, "cat")),
                   *name = json_string_value(json_object_get(event, "name"));
        const json_t *args = json_object_get(event, "args");
        assert_int_equal(json_integer_value(json_object_get(event, "pid")), 1);
        if (*phase == 's') arrows += strcmp(category, "part") == 0;
        if (strcmp(name, "thread_name") == 0)
            readings += strcmp(json_string_value(json_object_get(args, "name")), "loader 0") == 0;
        if (*phase != 'X') continue;
        readings += strcmp(name, "read a batch") == 0;
        primitives += strcmp(category, "primitive") == 0;
        products += strcmp(category, "kernel") == 0;
        if (strcmp(name, "mlp.expand") == 0 && json_object_get(args, "shapes"))
            shapes += json_object_get(args, "strides") != NULL;
    }
    json_decref(root);
    assert_true(readings > 1 && primitives > 0 && arrows == primitives && products > 0 && shapes > 0);
}

/* ---- generation ---- */

static double class_bytes(const json_t *path, const char *name) {
    size_t i;
    json_t *class;
    json_array_foreach(json_object_get(json_object_get(path, "memory"), "classes"), i,
                       class) if (strcmp(json_string_value(json_object_get(class, "class")), name) ==
                                  0) return json_number_value(json_object_get(class, "bytes"));
    return 0;
}

/* A step reads `tokens` at once and runs forward only; the cache is a class of its own. */
static void expect_generation(const char *folder, const char *name, const char *step, int paths, int recorded,
                              double tokens) {
    Bundle bundle = bundle_in(folder, name);
    assert_int_equal(bundle.paths_count, paths);
    assert_int_equal(bundle.run.seq, (int64_t)tokens);
    bundle_free(&bundle);
    json_t *root = json_in(folder, name), *path, *row;
    size_t i, k;
    json_array_foreach(json_object_get(root, "paths"), i, path) {
        const json_t *of_step = json_object_get(path, "step");
        assert_string_equal(json_string_value(json_object_get(of_step, "name")), step);
        assert_int_equal(json_integer_value(json_object_get(of_step, "recorded")), recorded);
        assert_true(json_number_value(json_object_get(of_step, "tokens")) == tokens);
        json_array_foreach(json_object_get(path, "operations"), k, row)
            assert_string_equal(json_string_value(json_object_get(row, "pass")), "forward");
        /* Keys and values of 4 layers, of 8 tokens read and 12 written, 128 wide, in fp32. */
        assert_true(class_bytes(path, "cache") == 2 * 4 * 20 * 128 * 4);
        assert_true(class_bytes(path, "saved") > 0);
    }
    json_decref(root);
}

static void generation_is_profiled(void **state) {
    const char
        *folder = *state,
        *text = "infer --model=gpt2-nano --device=cpu --dtype=fp32 --peaks=0 --prompt=profiled --tokens=12";
    const Ran *plain = program_succeeds(folder, "%s -q", text);
    const Ran *ran =
        program_succeeds(folder, "%s --profile=2,0,1,3,1 --profile-out=text --report=tables", text);
    assert_int_equal(strncmp(ran->output, "profiled", 8), 0);
    assert_string_equal(ran->output + 8, plain->output);
    static const char *const parts[] = {"prefill: the prompt, 8 tokens at once", "prefill, steps 3 to 5",
                                        "decoding: one token a step", "decoding step, steps 4 to 6",
                                        "sample "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) expect_text(ran->error, parts[i]);
    expect_generation(folder, "text/profiling_stats_prefill.json", "prefill", 1, 3, 8);
    expect_generation(folder, "text/profiling_stats_decode.json", "decoding step", 1, 3, 1);
    expect_nested(folder, "text/gpt2-nano_trace_bs1_seq8_prefill.json");
    expect_nested(folder, "text/gpt2-nano_trace_bs1_seq1_decode.json");

    ran = program_succeeds(
        folder, "%s --profile='[2,4),[6,8)' --compare --report=questions --profile-out=pair", text);
    assert_string_equal(ran->output + 8, plain->output);
    expect_text(ran->error, "fused, forward: attention is fused; softmax is hidden behind the products");
    expect_text(ran->error,
                "launches 44 to 8"); // of attention in a decoding step: the CPU has no decode kernels
    expect_text(ran->error, "largest difference of an output: ");
    expect_generation(folder, "pair/profiling_stats_prefill.json", "prefill", 2, 3, 8);
    expect_generation(folder, "pair/profiling_stats_decode_segment2.json", "decoding step", 2, 2, 1);
    expect_nested(folder, "pair/gpt2-nano_fused_trace_bs1_seq1_decode_segment1.json");

    ran = program_succeeds(folder, "%s --profile=1,0,0,4,1 --timer-only --no-cache", text);
    expect_text(ran->error, "4 steps with tracing off");
    program_refuses(folder, ERROR_USAGE, "give --tokens=13", "%s --profile='[2,13)'", text);
    program_refuses(folder, ERROR_USAGE, "--compare", "%s --compare", text);
}

/* ---- the questions ---- */

static void questions_are_answered(void **state) {
    const Ran *ran = program_succeeds(*state, "train " TINY " " SHORT
                                              " --compare --report=questions --profile-out=both --out=both");
    static const char *const parts[] = {"1. How long does softmax take",
                                        "naive, forward: softmax ",
                                        "fused, forward: attention is fused",
                                        "2. What share of the time goes to matrix products",
                                        "of the whole step with AdamW",
                                        "3. Which kernels other than matrix products",
                                        "4. Which kernel takes the most time in the forward",
                                        "5. What does each fusion save?",
                                        "in all: the median step ",
                                        "6. What limits the step",
                                        "audit, naive",
                                        "audit, fused"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) expect_text(ran->output, parts[i]);
    Bundle bundle = bundle_in(*state, "both/profiling_stats.json");
    assert_int_equal(bundle.paths_count, 2);
    assert_string_equal(bundle.paths[0].label, "naive");
    assert_string_equal(bundle.paths[1].label, "fused");
    assert_int_equal(bundle.paths[0].rows_count, bundle.paths[1].rows_count);
    assert_true(bundle.paths[0].step.launches > bundle.paths[1].step.launches);
    /* All reports give the same step time: that of the alternating rounds. */
    json_t *root = json_in(*state, "both/compare.json");
    for (int i = 0; i < 2; i++) {
        const json_t *path = json_object_get(root, bundle.paths[i].label);
        const double ms = json_number_value(json_object_get(path, "step_ms"));
        assert_int_equal(bundle.paths[i].step.timed, 10);
        assert_true(ms > 0 && fabs(1e-6 * bundle.paths[i].step.ns - ms) <= 1e-9 * ms);
    }
    json_decref(root);
    bundle_free(&bundle);
    root = json_in(*state, "both/profiling_stats.json");
    assert_true(json_array_size(json_object_get(root, "differences")) > 10);
    json_decref(root);
    assert_true(path_exists(inside(*state, "both/gpt2-nano_naive_trace_bs2_seq32.json")));
    assert_true(path_exists(inside(*state, "both/gpt2-nano_fused_trace_bs2_seq32.json")));
}

/* The pages of the tests above: the scripts run, and no text is cut. */
static void pages_fit_desks_and_phones(void **state) {
    OWNED char *script = realpath("tests/page", NULL);
    assert_non_null(script);
    if (program_run(*state, "command -v node")->code) skip();
    const Ran *ran = program_run(*state, "node %s made/here/profile.html both/profile.html", script);
    if (ran->code) fail_msg("%s%s", ran->output, ran->error);
}

/* The FLOPs that a Llama needs, counted by hand: products; 6 for each rotated pair; 4 for each SwiGLU and 11
 * for its gradient, which the next layer computes; 4 and 3 per logit for softmax. */
static void a_llamas_work_is_counted(void **state) {
    const double rows = 64, width = 128, kv = 64, qkv = width + 2 * kv, hidden = 384, vocab = 256;
    // visible keys of all queries and heads, columns of a head, FLOPs of rotating q and k
    const double seen = 2 * 4 * (32 * 33 / 2), head = 32;
    const double turned = 6 * rows * (width + kv) / 2;
    const struct {
        const char *place;
        double flops[2]; // forward, backward
    } rooms[] = {
        {"attention.qkv", {2 * rows * width * qkv, 4 * rows * width * qkv}},
        {"attention", {4 * head * seen + turned, 8 * head * seen + turned}},
        {"attention.projection", {2 * rows * width * width, 4 * rows * width * width}},
        {"mlp.expand", {2 * rows * width * 2 * hidden + 4 * rows * hidden, 4 * rows * width * 2 * hidden}},
        {"mlp.contract", {2 * rows * hidden * width, 4 * rows * hidden * width + 11 * rows * hidden}},
        {"head and loss", {rows * vocab * (2 * width + 4), rows * vocab * (4 * width + 3)}},
    };
    const Ran *ran = program_succeeds(
        *state, "train --model=llama-nano --layers=1 --seq=32 --batch=2 --peaks=0 "
                "--data=text.txt --device=cpu " SHORT " --compare --report=questions --profile-out=llama");
    expect_text(ran->output, "6. What limits the step");
    Bundle bundle = bundle_in(*state, "llama/profiling_stats.json");
    assert_int_equal(bundle.paths_count, 2);
    for (int64_t path = 0; path < bundle.paths_count; path++)
        for (size_t i = 0; i < 2 * (sizeof rooms / sizeof *rooms); i++) {
            const char *place = rooms[i / 2].place;
            double want = rooms[i / 2].flops[i % 2], got = 0;
            for (int64_t row = 0; row < bundle.paths[path].rows_count; row++) {
                const OperationRow *r = &bundle.paths[path].rows[row];
                if (strcmp(r->call, place) == 0 && r->pass == (i % 2 ? PASS_BACKWARD : PASS_FORWARD))
                    got += r->work.needed;
            }
            if (got != want) fail_msg("%s: %.0f operations, and not %.0f", place, got, want);
        }
    bundle_free(&bundle);
}

/* ---- sweeps ---- */

/* The text of a cell in the first row below the head of a CSV whose cells hold no comma. */
static void first_cell(const char *csv, const char *key, char text[64]) {
    const char *head = csv, *row = strchr(csv, '\n') + 1;
    const size_t length = strlen(key);
    while (strncmp(head, key, length) != 0 || (head[length] != ',' && head[length] != '\n')) {
        head = strchr(head, ',') + 1;
        row = strchr(row, ',') + 1;
    }
    snprintf(text, 64, "%.*s", (int)strcspn(row, ",\n"), row);
}

/* Idle time is a step's time minus the device's, both with tracing on. */
static void expect_idle(const char *folder, const char *sweep, const char *table) {
    char path[160], idle[64], overhead[64];
    snprintf(path, sizeof path, "%s/profiling_stats_bs1_seq8.json", sweep);
    Bundle bundle = bundle_in(folder, path);
    const BundleStep *step = &bundle.paths[0].step;
    first_cell(table, "idle_share", idle);
    first_cell(table, "overhead_share", overhead);
    assert_true(fabs(atof(idle) - (1 - step->device / step->traced)) < 1e-6);
    assert_int_equal(*overhead == 0, step->overhead_noise || step->timed <= 0);
    bundle_free(&bundle);
}

static void expect_sweep(const char *folder, const char *sweep) {
    static const char *const names[] = {"profiling_stats_bs%d_seq%d.json",
                                        "kernel_analysis_report_bs%d_seq%d.md",
                                        "gpt2-nano_trace_bs%d_seq%d.json"};
    for (int batch = 1; batch <= 2; batch++)
        for (int seq = 8; seq <= 16; seq += 8)
            for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                char name[128], path[160];
                snprintf(name, sizeof name, names[i], batch, seq);
                snprintf(path, sizeof path, "%s/%s", sweep, name);
                if (!path_exists(inside(folder, path))) fail_msg("there is no %s", path);
            }
    char *table;
    int64_t length, lines = 0;
    char path[64];
    snprintf(path, sizeof path, "%s/sweep.csv", sweep);
    expect_ok(file_read(inside(folder, path), 1 << 20, &table, &length));
    for (const char *at = table; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, 5); // a head and four sizes
    expect_idle(folder, sweep, table);
    memory_free(table);
    snprintf(path, sizeof path, "%s/sweep.html", sweep);
    expect_ok(file_read(inside(folder, path), 1 << 20, &table, &length));
    lines = 0;
    for (const char *at = table; (at = strstr(at, "<rect ")); at++) lines++;
    assert_true(lines == 3 * 4 ||
                lines == 4 * 4); // a bar for each size; the share of the limits may be unknown
    assert_null(strstr(table, ">nan"));
    expect_text(table, "--matrix: #4474a6"); // the style of a profile's page
    assert_null(strstr(table, "min-width: 700px"));
    memory_free(table);
    snprintf(path, sizeof path, "%s/kernel_analysis_report_bs1_seq8.md", sweep);
    expect_ok(file_read(inside(folder, path), 1 << 20, &table, &length));
    expect_text(table, "FLOP/s | "); // each figure with a suitable unit
    expect_text(table, "B/s | ");
    assert_null(strstr(table, "| TB/s |"));
    memory_free(table);
}

/* Values that a guide to PyTorch's profiler reads from the file. */
static void expect_guide(const char *folder, const char *name) {
    json_t *root = json_in(folder, name), *operators = json_object_get(root, "top_aten_operators");
    const json_t *first = json_array_get(operators, 0), *summary = json_object_get(root, "summary");
    double all = json_number_value(json_object_get(summary, "total_cuda_time_ms")),
           longest = json_number_value(json_object_get(first, "cuda_time_total_ms"));
    assert_int_equal(json_array_size(operators), 10);
    assert_int_equal(strncmp(json_string_value(json_object_get(first, "name")), "aten::", 6), 0);
    assert_non_null(strstr(json_string_value(json_object_get(first, "potential_cuda_file")), "cpu_naive.c:"));
    assert_true(longest > 0 && longest < all);
    assert_true(json_integer_value(json_object_get(summary, "aten_operators")) > 20);
    json_decref(root);
}

static void sweeps_leave_every_size(void **state) {
    const char *sizes = "--sweep --dtype=fp32 --profile=1,0,1,2,1 --batch-sizes=1,2 --seq-lens=8,16";
    const Ran *ran =
        program_succeeds(*state, "train " TINY " %s --fused=0 --profile-out=t --report=questions", sizes);
    expect_text(ran->output, "Sizes side by side");
    expect_text(ran->output, "batch 2, seq 16\n");
    assert_null(strstr(ran->output, "memory plan")); // no report of single sizes, which are in files
    expect_text(ran->output, "fp32, on ");
    expect_text(ran->output, "; records from: CPU clock");
    expect_sweep(*state, "t");
    expect_guide(*state, "t/profiling_stats_bs1_seq8.json");
    program_succeeds(*state, "infer --model=gpt2-nano --device=cpu --peaks=0 %s --profile-out=i -q", sizes);
    expect_sweep(*state, "i");
    program_refuses(*state, ERROR_USAGE, "--profile-out", "train " TINY " --sweep --seq-lens=8");
    program_refuses(*state, ERROR_USAGE, "--seq-lens", "train " TINY " --sweep --profile-out=x");
    program_refuses(*state, ERROR_USAGE, "--sweep", "train " TINY " --batch-sizes=1");
    program_refuses(*state, ERROR_USAGE, "--sweep",
                    "train " TINY " --sweep --seq-lens=8 --profile-out=x --out=y");
    program_refuses(*state, ERROR_USAGE, "context",
                    "train " TINY " --sweep --seq-lens=64 --profile-out=x -q");
}

/* ---- diff ---- */

/* A copy of the bundle with its first text `find` replaced. */
static void change(const char *folder, const char *from, const char *to, const char *find,
                   const char *replace) {
    char *text;
    int64_t length;
    expect_ok(file_read(inside(folder, from), 16 << 20, &text, &length));
    char *at = strstr(text, find), *changed = memory_allocate((size_t)length + strlen(replace) + 1);
    assert_non_null(at);
    *at = 0;
    sprintf(changed, "%s%s%s", text, replace, at + strlen(find));
    write_text_file(inside(folder, to), changed);
    memory_free(changed);
    memory_free(text);
}

static void diff_tells_by_its_exit_code(void **state) {
    program_succeeds(*state, "train " TINY " " SHORT " --profile-out=d -q");
    change(*state, "d/profiling_stats.json", "more.json", "\"peak_bytes\":", "\"peak_bytes\":9");
    change(*state, "d/profiling_stats.json", "bad.json", "\"version\":1", "\"version\":99");
    change(*state, "d/profiling_stats.json", "none.json", "\"place\":\"embed\"", "\"place\":\"lookup\"");
    const char *same = "profile diff d d/profiling_stats.json";
    const Ran *ran = program_succeeds(*state, "%s --fail-if 'step>+3%%' --fail-if='memory>+0%%'", same);
    expect_text(ran->output, "0 added, 0 removed, 0 slower, 0 faster");
    ran = program_succeeds(*state, "profile diff d/profiling_stats.json none.json");
    expect_text(ran->output, "1 added, 1 removed");
    change(*state, "d/profiling_stats.json", "shared.json",
           "\"cores_waited\":", "\"cores_waited\":0.5,\"was\":");
    ran = program_succeeds(*state, "profile diff d/profiling_stats.json shared.json");
    expect_text(ran->output, "after, run 1, fused: CORES SHARED");
    ran = program_run(*state, "profile diff d/profiling_stats.json more.json --fail-if 'memory>+3%%'");
    assert_int_equal(ran->code, 8);
    expect_text(ran->output, "FAIL fused: memory changed");
    assert_int_equal(program_run(*state, "profile diff d/profiling_stats.json more.json")->code, 0);
    program_refuses(*state, ERROR_FORMAT, "version 99", "profile diff d/profiling_stats.json bad.json");
    program_refuses(*state, ERROR_FILE, "missing.json", "profile diff missing.json bad.json");
    program_refuses(*state, ERROR_FILE, "d/tables/profiling_stats.json", "profile diff d d/tables");
    program_refuses(*state, ERROR_USAGE, "a third", "profile diff a b c");
    expect_text(program_succeeds(*state, "profile anatomy update_parameters")->output,
                "optim/cuda_fused.cu:");
    program_refuses(*state, ERROR_USAGE, "no CUDA kernel", "profile anatomy nonsense");
    program_refuses(*state, ERROR_USAGE, "needs two files", "profile diff a");
    program_refuses(*state, ERROR_USAGE, "step>+3%", "%s --fail-if step", same);
    program_refuses(*state, ERROR_USAGE, "a figure 'sofa'", "%s --fail-if='sofa>+1%%' >/dev/null", same);
    program_refuses(*state, ERROR_USAGE, "there is no command 'shrink'", "profile shrink");
    program_refuses(*state, ERROR_USAGE, "a command is needed", "profile");
    program_refuses(*state, ERROR_FORMAT, "bad.json", "profile check bad.json");
    change(*state, "d/profiling_stats.json", "sum.json", "\"device_ns\":", "\"device_ns\":1,\"was\":");
    program_refuses(*state, ERROR_FORMAT, "sum.json: paths[0]", "profile check sum.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_leaves_its_files),     cmocka_unit_test(trace_is_nested),
        cmocka_unit_test(trace_of_the_cpu),           cmocka_unit_test(questions_are_answered),
        cmocka_unit_test(sweeps_leave_every_size),    cmocka_unit_test(diff_tells_by_its_exit_code),
        cmocka_unit_test(generation_is_profiled),     cmocka_unit_test(a_llamas_work_is_counted),
        cmocka_unit_test(pages_fit_desks_and_phones),
    };
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
