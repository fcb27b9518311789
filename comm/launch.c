#define _GNU_SOURCE
#include "comm/launch.h"

#include "base/memory.h"
#include "comm/lanes.h"
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
static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

/* How a rank failed. A later value explains a failure better. */
typedef enum { NONE, LOST_ANOTHER, KILLED, FAILED } Failure;

typedef struct {
    const Launch *options;
    pid_t *processes; // (ranks) 0: has ended
    int running;
    sigset_t handled, before;
    int received; // the last signal that was forwarded, or 0
    Failure failure;
    int code;    // the launcher's exit code
    double next; // when the remaining ranks are signalled next, after a failure
    int pressed; // number of signals sent so far
} Launcher;

static void signal_ranks(const Launcher *l, int number) {
    for (int rank = 0; rank < l->options->ranks; rank++)
        if (l->processes[rank]) (void)kill(-l->processes[rank], number);
}

/* ---- starting ---- */

/* In the new process. */
static void become_rank(const Launcher *l, int rank, pid_t launcher, Identity *identity) {
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(128 + SIGKILL); // the launcher died before prctl
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    identity->starter = "train --gpus";
    identity->rank = identity->local_rank = rank;
}

/* Returns in each of the new processes, too. */
static Status fork_ranks(Launcher *l, Identity *identity) {
    const pid_t launcher = getpid();
    for (int rank = 0; rank < l->options->ranks; rank++) {
        pid_t process = fork();
        if (process < 0) return fail(ERROR_MEMORY, "rank %d cannot be started: %s", rank, strerror(errno));
        if (process == 0) {
            become_rank(l, rank, launcher, identity);
            return OK;
        }
        (void)setpgid(process, process); // parent and child both set it: either may run first
        l->processes[rank] = process;
        l->running++;
    }
    return OK;
}

/* ---- ending ---- */

/* Sets the exit code to that of the first rank whose failure explains most. */
static void note_end(Launcher *l, int rank, int status) {
    const bool killed = WIFSIGNALED(status);
    const int number = killed ? WTERMSIG(status) : WEXITSTATUS(status);
    const Failure failure = number == 0                         ? NONE
                            : killed && number != l->received   ? KILLED
                            : !killed && number == ERROR_DEVICE ? LOST_ANOTHER
                                                                : FAILED;
    l->processes[rank] = 0;
    l->running--;
    if (failure <= l->failure || l->pressed) return;
    if (!l->failure) l->next = device_clock() + l->options->grace;
    l->failure = failure;
    l->code = failure == KILLED ? (int)ERROR_DEVICE : killed ? 128 + number : number;
    if (!killed)
        fprintf(stderr, "%s: rank %d has ended with exit code %d\n", l->options->program, rank, number);
    else if (failure == KILLED)
        fprintf(stderr, "%s: rank %d was killed by signal %d (%s)\n", l->options->program, rank, number,
                strsignal(number));
}

/* Notes the ranks that have ended. */
static void reap(Launcher *l) {
    for (int rank = 0; rank < l->options->ranks; rank++) {
        siginfo_t info = {0};
        int status;
        const pid_t process = l->processes[rank];
        if (!process || waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || !info.si_pid)
            continue;
        (void)kill(-process, SIGKILL); // the rest of its group, before the kernel may reuse the number
        if (waitpid(process, &status, 0) > 0) note_end(l, rank, status);
    }
}

/* Signals the ranks that are still running after another rank has failed. */
static void press(Launcher *l) {
    if (!l->failure || device_clock() < l->next) return;
    for (int rank = 0; l->pressed == 1 && rank < l->options->ranks; rank++)
        if (l->processes[rank])
            fprintf(stderr, "%s: rank %d does not end, and is killed\n", l->options->program, rank);
    signal_ranks(l, l->pressed++ ? SIGKILL : SIGTERM);
    l->next = device_clock() + l->options->grace;
}

static void wait_for_ranks(Launcher *l) {
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    while (l->running > 0) {
        const int number = sigtimedwait(&l->handled, NULL, &look);
        if (number > 0 && number != SIGCHLD) {
            l->received = number;
            signal_ranks(l, number);
        }
        reap(l);
        press(l);
    }
}

Status launch(const Launch *options, Identity *identity, int *code) {
    OWNED pid_t *processes = memory_array((size_t)options->ranks, sizeof *processes);
    Launcher l = {.options = options, .processes = processes};
    *identity = (Identity){.size = options->ranks, .host = HOST_LOCAL};
    TRY(identity_draw_token(identity));
    sigemptyset(&l.handled);
    sigaddset(&l.handled, SIGCHLD);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++) sigaddset(&l.handled, forwarded[i]);
    sigprocmask(SIG_BLOCK, &l.handled, &l.before);
    fflush(NULL); // otherwise every rank would write the buffered output
    Status status = fork_ranks(&l, identity);
    if (identity->starter) return OK;
    if (status) signal_ranks(&l, l.received = SIGKILL);
    wait_for_ranks(&l);
    sigprocmask(SIG_SETMASK, &l.before, NULL);
    *code = l.code;
    return status;
}

Status launch_count_gpus(int *count) {
    int status = 0;
    *count = 0;
    if (!gpu_count) return OK;
    fflush(NULL);
    pid_t process = fork();
    if (process < 0) return fail(ERROR_MEMORY, "no process can be started: %s", strerror(errno));
    if (process == 0) _exit(gpu_count()); // fits an exit code: a host has fewer than 256 GPUs
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status)) *count = WEXITSTATUS(status);
    return OK;
}
