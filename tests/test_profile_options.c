/* The profile's options from the user's side: windows, timers, names, errors. */
#include "base/files.h"
#include "base/memory.h"
#include "tests/support/program.h"

#include <stdio.h>
#include <string.h>

#define PROFILED "train " TINY " --val-every=0 --sample-every=0 "

/* Without --steps a run ends with its profile. */
static void test_profile_ends(void **state) {
    const Ran *ran = program_succeeds(*state, PROFILED "--profile=1,0,0,2,1 --skip-benchmark 2>&1");
    expect_text(ran->output, "the run ends with its profile, after 3 steps; --steps=N continues training\n");
    expect_text(ran->output, "done: median of the last ");
}

static int briefs(const char *text) {
    int count = 0;
    while ((text = strstr(text, "\nprofile  "))) text++, count++;
    return count;
}

/* A long run shows the brief again at its end. */
static void test_brief_again(void **state) {
    const char *folder = *state;
    assert_int_equal(briefs(program_succeeds(folder, PROFILED "--steps=20 --profile=0,0,0,1,1")->output), 1);
    assert_int_equal(briefs(program_succeeds(folder, PROFILED "--steps=60 --profile=0,0,0,1,1")->output), 2);
}

static void test_window(void **state) {
    const Ran *ran = program_succeeds(*state, PROFILED
                                      "--steps=9 --profile='[2,4),[6,8)' --unit=us --limit=3 --sort=total_ns "
                                      "--profile-out=segments");
    expect_text(ran->output, "steps 2 to 3, counted from 1 ([2,4),[6,8)), segment 1 of 2");
    expect_text(ran->output, "steps 6 to 7, counted from 1 ([2,4),[6,8)), segment 2 of 2");
    expect_text(ran->output, "more rows left out (--limit)");
    expect_text(ran->output, " us  ");
    const char *head = strstr(ran->output, "\nCPU clock; steps 2 to 3");
    assert_true(head && head < strstr(ran->output, "Operations\n")); // the source is named before all tables
    expect_width(head);
    assert_true(path_exists(inside(*state, "segments/profiling_stats_segment1.json")));
    assert_true(path_exists(inside(*state, "segments/gpt2-nano_trace_bs2_seq32_segment2.json")));
}

/* Options as in guides to PyTorch's profiler: no timed steps, and a range named by the user. */
static void test_benchmark_skipped(void **state) {
    const Ran *ran =
        program_succeeds(*state, PROFILED "--steps=3 --profile=1,0,0,2,1 --skip-benchmark --torch-compat "
                                          "--fused=0 --profile-name=model_inference");
    expect_text(ran->output, "2 steps with tracing on");
    expect_text(ran->output, "model_inference ");
    assert_null(strstr(ran->output, "ProfilerStep*"));
    ran = program_succeeds(*state, PROFILED "--steps=2 --profile=1,0,0,1,1 --skip-benchmark");
    expect_text(ran->output, " ms, one step with tracing on, ");
    program_refuses(*state, ERROR_USAGE, "exclude each other",
                    PROFILED "--profile --skip-benchmark --timer-only");
}

static void test_timers(void **state) {
    const Ran *ran = program_succeeds(*state, PROFILED "--steps=6 --profile=1,0,0,4,1 --timer-only");
    expect_text(ran->output, "4 steps with tracing off");
    expect_text(ran->output, "reader ratio ");
    expect_text(ran->output, "CPU clock: --timer-only: nothing is traced; steps 2 to 5");
    assert_null(strstr(ran->output, "Kernels"));
}

/* If the run ends with the recorded steps, no steps were timed, and no such times are reported. */
static void test_nothing_timed(void **state) {
    const Ran *ran =
        program_succeeds(*state, PROFILED "--steps=4 --profile=1,0,0,3,1 --profile-latency --report=tables");
    expect_text(ran->output, "3 steps with tracing on: no steps were left to time");
    expect_text(ran->output, "no step was left to be measured with tracing off");
    expect_text(ran->output, "there are no queues on the CPU, so no latencies");
    assert_null(strstr(ran->output, "reader ratio"));
    assert_null(strstr(ran->output, "tracing costs"));
    assert_null(strstr(ran->output, "pinned"));
}

/* The CPU has no rest between primitives; each layer is a range in each pass; a user's model is named after
 * its folder. */
static void test_what_is_said(void **state) {
    const Ran *ran = program_succeeds(
        *state, PROFILED "--steps=2 --profile=1,0,0,1,1 --profile-isolate --report=tables --profile-out=said "
                         "--out=own");
    expect_text(ran->output, "--profile-isolate does nothing");
    program_succeeds(*state, "grep -q '^layer 0,1,.*,forward$' said/tables/ranges.csv");
    program_succeeds(*state, "grep -q '^layer 0,1,.*,backward$' said/tables/ranges.csv");
    ran = program_succeeds(*state, "infer --model=own --device=cpu --peaks=0 --batch=1 --profile=1,0,0,1,1");
    expect_text(ran->output, "profile  own/step-00000002, batch 1");
}

/* Operators without their kernels, and separate rows for readers' threads. */
static void test_operators_and_threads(void **state) {
    program_succeeds(*state, PROFILED "--steps=4 --profile=1,0,0,2,1 --workers=2 --profile-out=whole -q");
    program_succeeds(*state, "grep -q '^  ' whole/tables/operators.csv"); // a kernel below its operator
    program_succeeds(*state,
                     "test $(grep -c 'thread\\|reader 1' whole/tables/operators.csv whole/tables/ranges.csv "
                     "| grep -c ':0$') = 2");
    const Ran *ran =
        program_succeeds(*state, PROFILED "--steps=4 --profile=1,0,0,2,1 --workers=2 --reader-delay=20000 "
                                          "--op-detail=0 --thread-sep --profile-out=apart --limit=0");
    expect_text(ran->output, "linear forward, thread 0");
    program_succeeds(*state, "! grep -q '^  ' apart/tables/operators.csv");
    program_succeeds(*state, "grep -q '^\"read a batch, reader [12]\"' apart/tables/ranges.csv");
    program_refuses(*state, ERROR_USAGE, "--thread-sep", PROFILED "--thread-sep");
}

/* As PyTorch counts them: a product with a bias is addmm, the head's, without one, is mm. */
static void test_products_without_bias(void **state) {
    program_succeeds(
        *state,
        "infer --device=cpu --peaks=0 --tokenizer=bytes --prompt=abc --tokens=8 --fused=0 --profile='[2,7)' "
        "--torch-compat --profile-out=greedy -q");
    program_succeeds(*state, "grep '^aten::mm,' greedy/tables_decode/operations.csv | grep ',5$'");
    program_succeeds(
        *state, "grep '^aten::addmm,' greedy/tables_decode/operations.csv | grep ',80$'"); // 4 of 4 layers
}

static void expect_brief(const char *text, const char *const *parts, int most) {
    const char *begin = strstr(text, "\nprofile  ");
    assert_non_null(begin);
    int lines = 0;
    for (const char *at = begin + 1; (at = strchr(at, '\n')); at++) lines++;
    expect_width(begin + 1);
    if (lines > most) fail_msg("%d lines:\n%s", lines, begin);
    for (; *parts; parts++) expect_text(begin, *parts);
}

/* A profile fits on a screen by default. The first run measures the limits; later ones read them from the
 * cache. */
static void test_brief(void **state) {
    static const char *const one[] = {"profile  gpt2",    "median of 2 with tracing off",
                                      "forward ",         "longest  operation",
                                      "bound by fused: ", "audit    fused: ",
                                      "--report=tables",  NULL},
                             *const both[] = {"naive    ", "fused    ",
                                              "naive: ", "files    both: profile.html", NULL};
    const Ran *ran = program_succeeds(*state, "infer --device=cpu --batch=2 --seq=16 --profile=1,0,0,2,1");
    expect_brief(ran->output, one, 25);
    assert_null(strstr(ran->output, "Self CPU"));
    ran = program_succeeds(
        *state,
        "infer --device=cpu --peaks=0 --batch=2 --seq=16 --profile=1,0,0,2,1 --compare --profile-out=both");
    expect_brief(ran->output, both, 25);
    ran = program_succeeds(
        *state, "infer --device=cpu --peaks=0 --batch=2 --seq=16 --profile=1,0,0,2,1 --report=tables");
    expect_text(ran->output, "Self CPU");
    ran = program_succeeds(
        *state, "infer --device=cpu --peaks=0 --batch=2 --seq=16 --profile=1,0,0,2,1 --sort=calls");
    expect_text(ran->output, "Self CPU");
    ran = program_succeeds(
        *state,
        "infer --device=cpu --peaks=0 --batch-sizes=1,2 --seq=16 --profile=1,0,0,2,1 --profile-out=sizes");
    assert_null(strstr(ran->output, "profile  gpt2"));
    expect_text(ran->output, "Sizes side by side");
    expect_text(ran->output, "no room for ");
    expect_width(strstr(ran->output, "Sizes"));
    ran = program_succeeds(*state,
                           "infer --device=cpu --peaks=0 --batch-sizes=1,2 --seq=16 --profile=1,0,0,2,1 "
                           "--profile-out=sizes --report=tables");
    expect_text(ran->output, "Waited for cores");
    expect_width(strstr(ran->output, "Sizes"));
}

static void test_infer(void **state) {
    const Ran *ran =
        program_succeeds(*state, "infer --device=cpu --peaks=0 --batch-sizes=1,2 --seq-lens=8,16 "
                                 "--profile=1,0,0,2,1 --profile-out=sweep --torch-compat "
                                 "--fused=0 --limit=0 --full-names");
    expect_text(ran->output, "aten::_softmax ");
    expect_text(ran->output, "# of Calls");
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "sweep/profiling_stats_bs%d_seq%d.json", 1 + i / 2, i % 2 ? 16 : 8);
        assert_true(path_exists(inside(*state, name)));
    }
}

/* The files' tables equal the terminal's, except for the limit of rows. */
static void test_views_of_files(void **state) {
    program_succeeds(*state, PROFILED "--steps=3 --profile=1,0,0,1,1 --profile-out=views --torch-compat "
                                      "--fused=0 --unit=ns --sort=name --limit=1 -q");
    char *csv, *markdown;
    int64_t length;
    expect_ok(file_read(inside(*state, "views/tables/operations.csv"), 1 << 20, &csv, &length));
    expect_ok(file_read(inside(*state, "views/tables/all.md"), 1 << 20, &markdown, &length));
    assert_int_equal(strncmp(markdown, "# naive: gpt2", 13), 0);
    expect_text(markdown, "CPU clock; step");
    expect_text(markdown, " ns | ");
    assert_null(strstr(markdown, " us | "));
    const Ran *ran = program_succeeds(*state, "profile tables views/profiling_stats.json --torch-compat");
    expect_text(ran->output, "aten::_log_softmax "); // the same from the file
    ran = program_succeeds(*state, "profile tables views/profiling_stats.json");
    assert_null(strstr(ran->output, "aten::"));
    program_succeeds(*state, "grep -q '\"left_out\":0' views/*_trace_*.json");
    const char *first = strstr(csv, "\naten::_log_softmax,"), *last = strstr(csv, "\naten::sum,");
    assert_true(first && last && first < last);
    memory_free(csv);
    memory_free(markdown);
}

/* On the CPU the host's ranges are the only timeline. */
static void test_targets(void **state) {
    program_succeeds(*state,
                     PROFILED "--steps=3 --profile=1,0,0,1,1 --profile-targets=cpu --profile-out=host -q");
    program_succeeds(*state, "grep -qxF -- --profile-targets,cpu host/tables/provenance.csv");
    program_succeeds(*state, "test -s host/tables/ranges.csv");
    for (int i = 0; i < 2; i++)
        program_refuses(*state, ERROR_USAGE, "--profile-targets=gpu",
                        i ? "infer --model=gpt2-nano --device=cpu --profile --profile-targets=gpu"
                          : PROFILED "--profile --profile-targets=gpu");
    program_refuses(*state, ERROR_USAGE, "expected cpu,gpu|cpu|gpu",
                    PROFILED "--profile --profile-targets=tpu");
    program_refuses(*state, ERROR_USAGE, "records no kernels",
                    PROFILED "--profile --profile-targets=cpu --profile-latency");
    program_refuses(*state, ERROR_USAGE, "without --profile", PROFILED "--profile-targets=cpu");
}

static void test_refusals(void **state) {
    program_refuses(*state, ERROR_USAGE, "records up to step 10", PROFILED "--steps=5 --profile='[2,11)'");
    program_refuses(*state, ERROR_USAGE, "expected skip,closed", PROFILED "--profile=1,2");
    program_refuses(*state, ERROR_USAGE, "no table of the profile", PROFILED "--profile --sort=nothing");
    program_refuses(*state, ERROR_USAGE, "without --profile", PROFILED "--timer-only");
    program_refuses(*state, ERROR_USAGE, "exclude each other",
                    PROFILED "--profile --timer-only --profile-out=there");
    program_refuses(*state, ERROR_USAGE, "without --profile", PROFILED "--profile-graphs");
    program_refuses(*state, ERROR_USAGE, "without --profile-out",
                    PROFILED "--profile --profile-trace=trace.json.gz");
    program_refuses(*state, ERROR_USAGE, "exclude each other",
                    PROFILED "--profile --profile-graphs --graphs=0");
    program_refuses(*state, ERROR_USAGE, "exclude each other",
                    PROFILED "--profile --profile-latency --timer-only");
    program_refuses(*state, ERROR_USAGE, "exclude each other",
                    PROFILED "--profile --profile-isolate --profile-graphs");
    program_refuses(*state, ERROR_USAGE, "exclude each other",
                    PROFILED "--profile --profile-latency --profile-graphs");
    program_refuses(*state, ERROR_USAGE, "has 2 segments, but a comparison of sizes",
                    PROFILED
                    "-q --sweep --profile=1,0,0,1,2 --profile-out=two --batch-sizes=1,2 --seq-lens=8");
    program_refuses(*state, ERROR_USAGE, "--profile= is empty", PROFILED "--profile=");
}

/* An output that cannot be written is reported before the first step, or at the end, but never ignored. */
static void test_unwritable(void **state) {
    const Ran *ran =
        program_run(*state, PROFILED "--steps=3 --profile=1,0,0,1,1 --profile-out=text.txt --log=none.jsonl");
    assert_int_equal(ran->code, ERROR_FILE);
    expect_text(ran->error, "cannot make the folder text.txt");
    assert_string_equal(ran->output, "");
    assert_false(path_exists(inside(*state, "none.jsonl")));
    if (!path_exists("/dev/full")) return;
    ran = program_run(*state, PROFILED "--steps=3 --profile=1,0,0,1,1 >/dev/full");
    assert_int_equal(ran->code, ERROR_FILE);
    expect_text(ran->error, "cannot write to standard output");
    program_succeeds(*state, PROFILED "--steps=3 --profile=1,0,0,1,1 --profile-out=files -q");
    ran =
        program_run(*state, "profile diff files/profiling_stats.json files/profiling_stats.json >/dev/full");
    assert_int_equal(ran->code, ERROR_FILE);
}

int main(void) {
    const struct CMUnitTest programs[] = {cmocka_unit_test(test_operators_and_threads),
                                          cmocka_unit_test(test_window),
                                          cmocka_unit_test(test_brief_again),
                                          cmocka_unit_test(test_profile_ends),
                                          cmocka_unit_test(test_timers),
                                          cmocka_unit_test(test_benchmark_skipped),
                                          cmocka_unit_test(test_nothing_timed),
                                          cmocka_unit_test(test_infer),
                                          cmocka_unit_test(test_brief),
                                          cmocka_unit_test(test_products_without_bias),
                                          cmocka_unit_test(test_what_is_said),
                                          cmocka_unit_test(test_views_of_files),
                                          cmocka_unit_test(test_targets),
                                          cmocka_unit_test(test_refusals),
                                          cmocka_unit_test(test_unwritable)};
    return cmocka_run_group_tests(programs, program_setup, scratch_teardown);
}
