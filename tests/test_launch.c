/* Ranks started on this host: exit codes, signals, no leftover processes; and the error on the other ranks
 * when one ends, hangs, is stopped or fails. */
#define _GNU_SOURCE
#include "comm/launch.h"

#include "base/files.h"
#include "comm/rendezvous.h"
#include "kernels/device/device.h"
#include "tests/support/ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds. A process that would wait forever is ended after PATIENCE; one that an event ends must end before
 * SOON, even on a busy machine. */
enum { RANKS = 3, PATIENCE = 120, SOON = 60, COUNT = 16 };

/* Shared by the processes of a test. */
typedef struct {
    _Atomic int started, signals[RANKS];
    _Atomic int processes[COUNT], noted; // processes that must not outlive the launcher
    char said[RANKS][1000];              // the error message of each rank
    _Atomic int informed[RANKS];
} Shared;

static Shared *shared;
static int own_rank; // in a rank

static void note_process(pid_t process) {
    shared->processes[atomic_fetch_add(&shared->noted, 1) % COUNT] = process;
}

static void wait_seconds(double seconds) {
    for (double until = device_clock() + seconds; device_clock() < until;) {
        const struct timespec pause = {.tv_nsec = 2000000};
        (void)nanosleep(&pause, NULL);
    }
}

/* Waits until the counter has this value. */
static void wait_until(const _Atomic int *counter, int value) {
    for (double until = device_clock() + PATIENCE; *counter < value && device_clock() < until;)
        wait_seconds(0.002);
}

/* ---- a launcher in its own process ---- */

typedef int (*Rank)(const Identity *identity); // its exit code

typedef struct {
    int code;
    double seconds;
    char error[4000];
} Ran;

static pid_t start_launcher(const char *folder, Rank rank, double grace) {
    fflush(NULL);
    memset(shared, 0, sizeof *shared);
    pid_t launcher = fork();
    assert_true(launcher >= 0);
    if (launcher > 0) return launcher;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int error = open(inside(folder, "standard-error"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (error < 0 || dup2(error, 2) < 0) _exit(99);
    Identity identity;
    int code;
    const Launch options = {.program = "test", .ranks = RANKS, .grace = grace};
    Status status = launch(&options, &identity, &code);
    if (status) _exit(status_exit(status, "test"));
    if (!identity.starter) _exit(code);
    own_rank = identity.rank;
    note_process(getpid());
    shared->started++;
    _exit(rank(&identity));
}

static Ran end_launcher(const char *folder, pid_t launcher, double start) {
    Ran ran = {0};
    int status;
    char *text;
    int64_t length;
    while (waitpid(launcher, &status, 0) < 0) assert_int_equal(errno, EINTR);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ran.seconds = device_clock() - start;
    expect_ok(file_read(inside(folder, "standard-error"), sizeof ran.error - 1, &text, &length));
    memcpy(ran.error, text, (size_t)length);
    free(text);
    return ran;
}

static Ran run_launcher(const char *folder, Rank rank, double grace) {
    double start = device_clock();
    return end_launcher(folder, start_launcher(folder, rank, grace), start);
}

/* No recorded process is left, not even as a zombie of the tests' init. */
static void expect_nobody(void) {
    double until = device_clock() + SOON;
    for (int i = 0; i < shared->noted && i < COUNT; i++) {
        while (kill(shared->processes[i], 0) == 0 && device_clock() < until) {
            char path[64], *text = NULL, state = 0;
            int64_t length;
            snprintf(path, sizeof path, "/proc/%d/stat", shared->processes[i]);
            Status status = file_read(path, 4096, &text, &length);
            if (!status) state = strrchr(text, ')')[2];
            status_free(status);
            free(text);
            if (state == 'Z') break; // it has ended, but its new parent has not waited for it yet
            wait_seconds(0.01);
        }
        if (device_clock() >= until) fail_msg("process %d is left", shared->processes[i]);
    }
}

static void expect_said(const Ran *ran, const char *part) {
    if (!strstr(ran->error, part)) fail_msg("\"%s\" is not in: %s", part, ran->error);
}

static int ends_well(const Identity *identity) {
    (void)identity;
    return 0;
}

static void test_good_end(void **state) {
    Ran ran = run_launcher(*state, ends_well, 1);
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.error, "");
    assert_int_equal(shared->started, RANKS);
}

static int second_exits_with_3(const Identity *identity) {
    if (identity->rank == 1) return 3;
    wait_until(&shared->started, RANKS);
    wait_seconds(0.3);
    return 6; // it has detected the loss, and ends by itself
}

static void test_exit_code(void **state) {
    Ran ran = run_launcher(*state, second_exits_with_3, 5);
    assert_int_equal(ran.code, 3);
    expect_said(&ran, "test: rank 1 has ended with exit code 3\n");
    assert_true(ran.seconds < SOON);
}

static int third_is_killed(const Identity *identity) {
    wait_until(&shared->started, RANKS);
    if (identity->rank == 2) (void)kill(getpid(), SIGKILL);
    wait_seconds(PATIENCE);
    return 0;
}

static void test_killed_rank(void **state) {
    Ran ran = run_launcher(*state, third_is_killed, 0.5);
    assert_int_equal(ran.code, ERROR_DEVICE);
    expect_said(&ran, "test: rank 2 was killed by signal 9 (Killed)\n");
    assert_true(ran.seconds < SOON);
    expect_nobody();
}

/* Ranks that do not end, even after SIGTERM, and one that leaves a child process. */
static int clings(const Identity *identity) {
    signal(SIGTERM, SIG_IGN);
    if (identity->rank == 1) {
        pid_t child = fork();
        if (child == 0) wait_seconds(PATIENCE);
        if (child == 0) _exit(0);
        note_process(child);
    }
    wait_until(&shared->noted, RANKS + 1);
    if (identity->rank == 1) return 4;
    wait_seconds(PATIENCE);
    return 0;
}

static void test_clinging_ranks(void **state) {
    Ran ran = run_launcher(*state, clings, 0.5);
    assert_int_equal(ran.code, 4);
    expect_said(&ran, "test: rank 0 does not end, and is killed");
    expect_said(&ran, "test: rank 2 does not end, and is killed");
    assert_true(ran.seconds < SOON);
    expect_nobody();
}

static void count_signal(int number) {
    (void)number;
    shared->signals[own_rank]++;
}

static int ends_when_told(const Identity *identity) {
    const int rank = identity->rank;
    signal(SIGINT, count_signal);
    shared->informed[rank] = 1;
    for (double until = device_clock() + PATIENCE; !shared->signals[rank] && device_clock() < until;)
        wait_seconds(0.01);
    wait_seconds(0.1); // for a second one
    return 0;
}

static void test_signals(void **state) {
    double start = device_clock();
    pid_t launcher = start_launcher(*state, ends_when_told, 1);
    for (int rank = 0; rank < RANKS; rank++) wait_until(&shared->informed[rank], 1);
    (void)kill(launcher, SIGINT);
    Ran ran = end_launcher(*state, launcher, start);
    assert_int_equal(ran.code, 0);
    for (int rank = 0; rank < RANKS; rank++) assert_int_equal(shared->signals[rank], 1);

    start = device_clock();
    launcher = start_launcher(*state, third_is_killed, 1); // and no handler
    wait_until(&shared->started, 1);
    (void)kill(launcher, SIGTERM);
    ran = end_launcher(*state, launcher, start);
    assert_true(ran.code == 128 + SIGTERM || ran.code == ERROR_DEVICE); // whichever came first
    expect_nobody();
}

static int waits(const Identity *identity) {
    (void)identity;
    wait_seconds(PATIENCE);
    return 0;
}

/* A launcher that is killed takes its ranks along, at whatever time. */
static void test_killed_launcher(void **state) {
    for (int i = 0; i < 20; i++) {
        pid_t launcher = start_launcher(*state, waits, 1);
        if (i % 2) wait_until(&shared->started, RANKS);
        wait_seconds(0.001 * i);
        (void)kill(launcher, SIGKILL);
        (void)waitpid(launcher, NULL, 0);
        expect_nobody();
    }
}

/* ---- the watch ---- */

static struct {
    int wrong;      // the rank that misbehaves
    char what;      // 'k'illed, 's'topped, 'h'angs, 'f'ails
    double timeout; // of the watch
} watch;

static void on_lost(void *user, Status status) {
    int rank = *(int *)user;
    snprintf(shared->said[rank], sizeof shared->said[rank], "%s", status_message(status));
    shared->informed[rank] = 1;
    _exit((int)status_code(status));
}

/* Four steps, each a collective in which all ranks wait for each other. */
static int steps(const Identity *identity) {
    int rank = identity->rank;
    Rendezvous *r;
    Status status = rendezvous_open(identity, PATIENCE, NULL, &r);
    if (status) return status_exit(status, "test");
    heartbeat_begin(
        r, &(HeartbeatSetup){.timeout = watch.timeout, .silence = 5, .lost = on_lost, .user = &rank});
    char all[RANKS];
    for (int step = 1; step <= 4 && !status; step++) {
        heartbeat_step(r, step);
        if (step == 3 && rank == watch.wrong) {
            wait_seconds(0.6); // so that the others receive the step's heartbeat first
            if (watch.what == 'k') (void)kill(getpid(), SIGKILL);
            if (watch.what == 's') (void)kill(getpid(), SIGSTOP);
            if (watch.what == 'h') wait_seconds(PATIENCE);
            if (watch.what == 'f') status = (fail)(ERROR_MEMORY, "no room for %d bytes", 7);
            if (watch.what == 'f') break;
        }
        heartbeat_note(r, "all-reduce of %d fp32", 100 * step);
        /* A rank that is alive but does not enter a collective, as if hanging in a library. */
        status = rendezvous_gather(r, "", 1, all);
        if (status) wait_seconds(PATIENCE); // only the watch ends it
    }
    rendezvous_close(r, status);
    return (int)status_code(status);
}

static void expect_told(int rank, const char *part) {
    if (!strstr(shared->said[rank], part))
        fail_msg("rank %d: \"%s\" is not in: %s", rank, part, shared->said[rank]);
}

/* If all ranks end, none waits two seconds for the others. A busy machine may delay a run that long, so only
 * one of several runs must be quick. */
static void test_parting(void **state) {
    double fastest = PATIENCE;
    watch.wrong = -1;
    watch.timeout = 0;
    for (int tries = 0; tries < 10 && fastest > 1.5; tries++) {
        Ran ran = run_launcher(*state, steps, 2);
        for (int rank = 0; rank < RANKS; rank++) assert_int_equal(shared->informed[rank], 0);
        assert_int_equal(ran.code, 0);
        if (ran.seconds < fastest) fastest = ran.seconds;
    }
    assert_true(fastest < 1.5);
}

static void test_watch(void **state) {
    static const struct {
        int wrong;
        char what;
        double timeout;
        int code; // of the launcher
        const char *part, *last;
    } cases[] = {
        {1, 'k', 0, ERROR_DEVICE, "rank 1 on ", " is gone; its last action: step "},
        {0, 'k', 0, ERROR_DEVICE, "rank 0 on ", " is gone; its last action: step "},
        {2, 's', 0, ERROR_DEVICE, "rank 2 on ", " has not been heard of; its last action: step "},
        {0, 's', 0, ERROR_DEVICE, "rank 0 on ", " has not been heard of; its last action: step "},
        {1, 'h', 3, ERROR_DEVICE, "rank 1 on ", "its last action: step 3 (collective 2), "},
        {0, 'h', 3, ERROR_DEVICE, "rank 0 on ", " keeps the others waiting (rank "},
        {2, 'f', 0, ERROR_MEMORY, "rank 2 on ", " has failed: no room for 7 bytes; its last action: step 3"},
        {0, 'f', 0, ERROR_MEMORY, "rank 0 on ", " has failed: no room for 7 bytes; its last action: step 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        watch.wrong = cases[i].wrong;
        watch.what = cases[i].what;
        watch.timeout = cases[i].timeout;
        Ran ran = run_launcher(*state, steps, 2);
        print_message("%c of rank %d: %.1f s: %s\n%s", watch.what, watch.wrong, ran.seconds,
                      shared->said[watch.wrong == 2 ? 1 : 2], ran.error);
        for (int rank = 0; rank < RANKS; rank++) {
            if (rank == cases[i].wrong && cases[i].what != 'h') continue;
            assert_int_equal(shared->informed[rank], 1);
            expect_told(rank, cases[i].part);
            expect_told(rank, cases[i].last);
        }
        assert_int_equal(ran.code, cases[i].code);
        assert_true(ran.seconds < SOON);
        expect_nobody();
    }
}

/* A rank that ends before the others is not missed. */
static int ends_early(const Identity *identity) {
    int rank = identity->rank;
    Rendezvous *r;
    Status status = rendezvous_open(identity, PATIENCE, NULL, &r);
    if (status) return status_exit(status, "test");
    heartbeat_begin(r, &(HeartbeatSetup){.silence = SOON, .lost = on_lost, .user = &rank});
    if (rank != watch.wrong)
        wait_seconds(1.8); // less than the time that a leaving rank may wait for the others
    if (rank != watch.wrong) shared->informed[rank] = -1;
    rendezvous_close(r, OK);
    for (int other = 0; other < RANKS && rank == watch.wrong; other++)
        if (shared->informed[other]) return 1;
    return 0;
}

static void test_early_end(void **state) {
    for (watch.wrong = 0; watch.wrong < RANKS; watch.wrong++) {
        Ran ran = run_launcher(*state, ends_early, 2);
        assert_int_equal(ran.code, 0);
        for (int rank = 0; rank < RANKS; rank++) assert_true(shared->informed[rank] < 1);
    }
}

/* ---- a step's deadline ---- */

static void test_limit(void **state) {
    (void)state;
    const double recent[HEARTBEAT_RECENT] = {4, 7, 5, 20, 6, 4, 4, 4}, quick[HEARTBEAT_RECENT] = {3, 3, 3, 3};
    assert_true(heartbeat_limit(recent, 0) == 600 &&
                heartbeat_limit(recent, 1) == 600); // fewer than two steps determine no deadline
    assert_true(heartbeat_limit(recent, 2) == 21);
    assert_true(heartbeat_limit(recent, 3) == 21);
    assert_true(heartbeat_limit(recent, 4) == 60);
    assert_true(heartbeat_limit(recent, 1000) == 60); // only the last eight count
    assert_true(heartbeat_limit(quick, 4) == 10);     // at least
}

/* ---- counting GPUs in another process ---- */

static void test_gpu_count(void **state) {
    (void)state;
    int first = -1, second = -2;
    expect_ok(launch_count_gpus(&first));
    expect_ok(launch_count_gpus(&second));
    assert_true(first >= 0);
    assert_int_equal(first, second);
}

int main(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_good_end),       IN_FOLDER(test_exit_code),    IN_FOLDER(test_killed_rank),
        IN_FOLDER(test_clinging_ranks), IN_FOLDER(test_signals),      IN_FOLDER(test_killed_launcher),
        IN_FOLDER(test_parting),        IN_FOLDER(test_watch),        IN_FOLDER(test_early_end),
        IN_FOLDER(test_gpu_count),      cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
