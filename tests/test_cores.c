/* Cores shared with other programs: how threads wait, and the warning about times measured meanwhile. */
#include "base/cores.h"
#include "tests/support/program.h"

#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RIVALS_MOST = 512 };

/* ---- how threads wait ---- */

/* OpenMP's display of its settings, which appears once for each start of the program. */
static void expect_policy(const char *folder, const char *environment, const char *part) {
    const Ran *ran = program_succeeds(
        folder, "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose %s train --version",
        environment);
    const char *last = ran->error, *next;
    while ((next = strstr(last + 1, "OPENMP DISPLAY ENVIRONMENT BEGIN"))) last = next;
    expect_text(last, part);
}

static void threads_wait_for_a_moment_only(void **state) {
    expect_policy(*state, "", "GOMP_SPINCOUNT = '3000'");
    expect_policy(*state, "OMP_PROC_BIND=true", "GOMP_SPINCOUNT = '3000'");
}

static void the_environment_decides_how_threads_wait(void **state) {
    expect_policy(*state, "GOMP_SPINCOUNT=77", "GOMP_SPINCOUNT = '77'");
    expect_policy(*state, "OMP_WAIT_POLICY=active", "OMP_WAIT_POLICY = 'ACTIVE'");
}

/* The number of threads in the report is that of the cores that OpenMP may use. */
static void bound_threads_have_all_cores(void **state) {
    static const char *const environments[] = {"OMP_PROC_BIND=true", "OMP_PLACES=cores",
                                               "GOMP_CPU_AFFINITY=0-4095", "OMP_PROC_BIND=false"};
    char threads[32];
    snprintf(threads, sizeof threads, ", %d thread", omp_get_num_procs());
    for (size_t i = 0; i < sizeof environments / sizeof *environments; i++)
        expect_text(program_succeeds(*state,
                                     "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT %s train " TINY " --steps=1",
                                     environments[i])
                        ->output,
                    threads);
}

/* ---- other programs on the cores ---- */

static pid_t rivals[RIVALS_MOST];
static int rival_count;

/* One busy process per core. */
static void rivals_begin(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (rival_count = 0; rival_count < cores && rival_count < RIVALS_MOST; rival_count++) {
        rivals[rival_count] = fork();
        assert_true(rivals[rival_count] >= 0);
        while (rivals[rival_count] == 0) {}
    }
}

static int rivals_end(void **state) {
    (void)state;
    for (int i = 0; i < rival_count; i++) kill(rivals[i], SIGKILL);
    for (int i = 0; i < rival_count; i++) waitpid(rivals[i], NULL, 0);
    rival_count = 0;
    return 0;
}

static void every_report_says_that_cores_were_shared(void **state) {
    rivals_begin();
    const char *mark = "CORES SHARED";
    expect_text(
        program_succeeds(*state, "train " TINY " --steps=20 --log=log.jsonl --val-every=0 --peaks=0")->output,
        mark);
    json_t *events = log_read(*state, "log.jsonl", false);
    assert_true(json_number_value(json_object_get(log_last(events, "end"), "cores_waited")) > CORES_SHARED);
    json_decref(events);
    expect_text(program_succeeds(*state, "train " TINY " --compare --peaks=0")->output, mark);
    expect_text(program_succeeds(
                    *state, "infer --model=gpt2-nano --batch=1 --seq=64 --device=cpu --peaks=0 --repeats=50")
                    ->output,
                mark);
    const Ran *ran = program_succeeds(
        *state, "train " TINY " --sweep --batch-sizes=2,4 --seq-lens=32 --profile-out=sweep --peaks=0 "
                "--profile='2,0,1,10,1'");
    expect_text(ran->output, "batch 4, seq 32, fused: CORES SHARED");
    ran = program_succeeds(*state, "train " TINY " --steps=20 --val-every=0 --peaks");
    expect_text(ran->output, "unknown: other programs used the cores");
    assert_null(strstr(ran->output, "MFU"));
    rivals_end(state);
    program_succeeds(
        *state,
        "test -z \"$(find . -name peaks.json)\""); // limits measured while cores are shared are not cached
    expect_text(program_succeeds(*state, "cat sweep/kernel_analysis_report_bs2_seq32.md")->output, mark);
}

/* If a program has more threads than cores, they wait for each other, not for other programs. */
static void own_threads_are_no_others(void **state) {
    (void)state;
    const CoreTimes before = cores_read();
    double counted = 0;
#pragma omp parallel for num_threads(4 * (int)sysconf(_SC_NPROCESSORS_ONLN)) reduction(+ : counted) schedule(static, 1)
    for (int i = 0; i < 64; i++)
        for (int k = 0; k < 3000000; k++) counted += 1e-9 * k;
    const CoreTimes after = cores_read();
    assert_true(counted > 0 && after.waited > before.waited);
    double others = after.others - before.others, ran = after.ran - before.ran;
    assert_true(cores_waited(before) <= (others + 0.05) / (ran + others + 0.05));
}

static void a_small_share_is_no_warning(void **state) {
    (void)state;
    assert_string_equal(cores_warning(0.9 * CORES_SHARED).text, "");
    expect_text(cores_warning(0.37).text, "waited for a core 37% of their time");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_wait_for_a_moment_only),
        cmocka_unit_test(the_environment_decides_how_threads_wait),
        cmocka_unit_test(bound_threads_have_all_cores),
        cmocka_unit_test_teardown(every_report_says_that_cores_were_shared, rivals_end),
        cmocka_unit_test(own_threads_are_no_others),
        cmocka_unit_test(a_small_share_is_no_warning)};
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
