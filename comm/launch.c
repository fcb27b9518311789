#define _GNU_SOURCE
#include "comm/launch.h"

#include "base/memory.h"
#include "comm/lanes.h"
#include "comm/wire.h"
#include "kernels/device/device.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 200 };
static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

typedef struct {
    const Launch *launch;
    pid_t *processes; // (ranks) 0: has ended
    int running;
    Identity *identity; // in a rank: its own
    int listener;
    uint64_t token;
    sigset_t watched, before;
    int asked;   // the last signal that was passed on, or 0
    int failed;  // the first rank that failed, or -1
    int code;    // the launcher's exit code
    double next; // when those that still run are told to end, and then made to
    int told;    // how often they have been
} Launcher;

/* ---- starting ---- */

/* In the new process. */
static void become_rank(Launcher *l, int rank, pid_t launcher) {
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(128 + SIGKILL); // it has died before that could be said
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    *l->identity = (Identity){.starter = "train --gpus",
                              .rank = rank,
                              .size = l->launch->ranks,
                              .local_rank = rank,
                              .host = "127.0.0.1",
                              .port = wire_port(l->listener),
                              .listener = rank == 0 ? l->listener : -1,
                              .token = l->token};
    if (rank > 0) close(l->listener);
}

static void signal_ranks(const Launcher *l, int number) {
    for (int rank = 0; rank < l->launch->ranks; rank++)
        if (l->processes[rank]) (void)kill(-l->processes[rank], number);
}

/* Returns in each of the processes that are made here, too. */
static Status fork_ranks(Launcher *l) {
    const pid_t launcher = getpid();
    for (int rank = 0; rank < l->launch->ranks; rank++) {
        pid_t process = fork();
        if (process < 0) return fail(ERROR_MEMORY, "rank %d cannot be started: %s", rank, strerror(errno));
        if (process == 0) {
            become_rank(l, rank, launcher);
            return OK;
        }
        (void)setpgid(process, process); // whichever of the two comes first
        l->processes[rank] = process;
        l->running++;
    }
    return OK;
}

/* ---- ending ---- */

/* A rank has ended. The first that failed says how the launcher ends, but ERROR_DEVICE gives way to another
 * code: it is what ranks end with that have lost another. */
static void note_end(Launcher *l, int rank, int status) {
    const bool killed = WIFSIGNALED(status);
    const int number = killed ? WTERMSIG(status) : WEXITSTATUS(status);
    l->processes[rank] = 0;
    l->running--;
    const bool cause = l->told == 0 && l->code == ERROR_DEVICE && !killed && number != ERROR_DEVICE;
    if (number == 0 || (l->failed >= 0 && !cause)) return;
    if (l->failed < 0) l->next = device_clock() + l->launch->grace;
    l->failed = rank;
    l->code = !killed ? number : number == l->asked ? 128 + number : (int)ERROR_DEVICE;
    if (!killed)
        fprintf(stderr, "%s: rank %d has ended with exit code %d\n", l->launch->program, rank, number);
    else if (number != l->asked)
        fprintf(stderr, "%s: rank %d was killed by signal %d (%s)\n", l->launch->program, rank, number,
                strsignal(number));
}

/* Takes note of the ranks that have ended: first of those that a signal killed. */
static void reap(Launcher *l) {
    for (int killed = 1; killed >= 0; killed--) {
        for (int rank = 0; rank < l->launch->ranks; rank++) {
            siginfo_t info = {0};
            int status;
            if (!l->processes[rank] ||
                waitid(P_PID, (id_t)l->processes[rank], &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
                info.si_pid == 0)
                continue;
            if (killed && info.si_code == CLD_EXITED) continue;
            (void)kill(-l->processes[rank], SIGKILL); // what it leaves behind, while the number is its own
            if (waitpid(l->processes[rank], &status, 0) > 0) note_end(l, rank, status);
        }
    }
}

/* Those that outlive another's failure. */
static void press(Launcher *l) {
    if (l->failed < 0 || device_clock() < l->next) return;
    for (int rank = 0; l->told == 1 && rank < l->launch->ranks; rank++)
        if (l->processes[rank])
            fprintf(stderr, "%s: rank %d does not end, and is killed\n", l->launch->program, rank);
    signal_ranks(l, l->told == 0 ? SIGTERM : SIGKILL);
    l->told++;
    l->next = device_clock() + l->launch->grace;
}

static void wait_for_ranks(Launcher *l) {
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    while (l->running > 0) {
        int number = sigtimedwait(&l->watched, NULL, &look);
        if (number > 0 && number != SIGCHLD) {
            l->asked = number;
            signal_ranks(l, number);
        }
        reap(l);
        press(l);
    }
}

static Status start(Launcher *l) {
    TRY(identity_random(&l->token));
    TRY(wire_listen("127.0.0.1", 0, &l->listener));
    sigemptyset(&l->watched);
    sigaddset(&l->watched, SIGCHLD);
    for (int i = 0; i < PASSED_ON; i++) sigaddset(&l->watched, passed_on[i]);
    sigprocmask(SIG_BLOCK, &l->watched, &l->before);
    fflush(NULL); // what is buffered would be written by every rank
    Status status = fork_ranks(l);
    if (l->identity->starter) return OK;
    if (status) { // some have been started
        l->failed = 0;
        signal_ranks(l, SIGKILL);
    }
    close(l->listener);
    wait_for_ranks(l);
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    return status;
}

Status launch(const Launch *options, Identity *identity, int *code) {
    OWNED pid_t *processes = memory_array((size_t)options->ranks, sizeof *processes);
    Launcher l = {.launch = options, .processes = processes, .identity = identity, .failed = -1};
    *identity = (Identity){.listener = -1};
    Status status = start(&l);
    *code = l.code;
    return status;
}

/* ---- GPUs ---- */

Status launch_count_gpus(int *count) {
    int status = 0;
    *count = 0;
    if (!gpu_count) return OK;
    fflush(NULL);
    pid_t process = fork();
    if (process < 0) return fail(ERROR_MEMORY, "no process can be started: %s", strerror(errno));
    if (process == 0) _exit(gpu_count()); // a host has fewer than 256
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status)) *count = WEXITSTATUS(status);
    return OK;
}
