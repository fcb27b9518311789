#define _GNU_SOURCE
#include "tests/support/ranks.h"

#include "comm/wire.h"
#include "kernels/device/device.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void run_rank(int rank, RankBody body, void *user, RankEnd *end) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    Status status = body(rank, user);
    snprintf(end->message, sizeof end->message, "%s", status_message(status));
    int code = (int)status_code(status);
    status_free(status);
    _exit(code);
}

/* Waits for the remaining ranks. */
static void wait_for(pid_t *processes, int count, double start, double patience, RankEnd *ends) {
    for (int left = count; left > 0;) {
        const struct timespec pause = {.tv_nsec = 2000000};
        (void)nanosleep(&pause, NULL);
        const bool late = device_clock() - start > patience;
        for (int rank = 0; rank < count; rank++) {
            int status;
            if (!processes[rank]) continue;
            if (late) (void)kill(processes[rank], SIGKILL);
            if (waitpid(processes[rank], &status, late ? 0 : WNOHANG) != processes[rank]) continue;
            ends[rank].code = late ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            ends[rank].seconds = device_clock() - start;
            processes[rank] = 0;
            left--;
        }
    }
}

const RankEnd *ranks_run(int count, RankBody body, void *user, double patience) {
    static RankEnd kept[RANKS_MOST];
    pid_t processes[RANKS_MOST] = {0};
    assert_true(count <= RANKS_MOST);
    RankEnd *ends = mmap(NULL, sizeof kept, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(ends != MAP_FAILED);
    const double start = device_clock();
    fflush(NULL);
    for (int rank = 0; rank < count; rank++) {
        processes[rank] = fork();
        assert_true(processes[rank] >= 0);
        if (processes[rank] == 0) run_rank(rank, body, user, &ends[rank]);
    }
    wait_for(processes, count, start, patience, ends);
    memcpy(kept, ends, sizeof kept);
    munmap(ends, sizeof kept);
    for (int rank = 0; rank < count; rank++)
        if (kept[rank].code == RANK_SKIPS) skip();
    return kept;
}

void rank_skip(void) {
    _exit(RANK_SKIPS);
}

void expect_rank(const RankEnd *ends, int rank, int code, const char *part) {
    const RankEnd *end = &ends[rank];
    if (end->code != code) fail_msg("rank %d ended with %d, not %d: %s", rank, end->code, code, end->message);
    if (code && !strstr(end->message, part))
        fail_msg("rank %d: \"%s\" is not in: %s", rank, part, end->message);
}

Identity identity_of(int rank, int size, int port) {
    return (Identity){.starter = "a test",
                      .rank = rank,
                      .size = size,
                      .local_rank = rank,
                      .host = "127.0.0.1",
                      .port = port,
                      .token = 0x5eed};
}

int free_port(void) {
    static int next;
    if (!next) next = 20000 + getpid() % 1500 * 8;
    for (int tries = 0; tries < 1000; tries++, next += RENDEZVOUS_PORTS) {
        int free_ones = 0, opened;
        while (free_ones < RENDEZVOUS_PORTS) {
            Status status = wire_listen("127.0.0.1", next + free_ones, &opened);
            if (status) {
                status_free(status);
                break;
            }
            close(opened);
            free_ones++;
        }
        if (free_ones == RENDEZVOUS_PORTS) return (next += RENDEZVOUS_PORTS) - RENDEZVOUS_PORTS;
    }
    fail_msg("no ports are free");
    return 0;
}
