#include "profile/counters.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The layout of a read (PERF_FORMAT_...): if there are more events than registers, events are multiplexed. */
typedef struct {
    uint64_t value, enabled, running;
} Reading;

static int open_counter(uint64_t config, pid_t thread) {
    struct perf_event_attr attributes = {.type = PERF_TYPE_HARDWARE,
                                         .size = sizeof attributes,
                                         .config = config,
                                         .read_format =
                                             PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
                                         .inherit = 1, // also count threads that are started later
                                         .exclude_kernel = 1,
                                         .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void counters_open(Counters *counters) {
    static const uint64_t configs[COUNTER_COUNT] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
                                                    PERF_COUNT_HW_CACHE_MISSES, PERF_COUNT_HW_BRANCH_MISSES};
    counters_close(counters);
    counters->error = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        pid_t thread = (pid_t)atoi(entry->d_name); // "." and ".." give 0
        if (thread <= 0 || counters->threads == COUNTED_THREADS) continue;
        for (int i = 0; i < COUNTER_COUNT; i++) {
            int descriptor = open_counter(configs[i], thread);
            counters->descriptors[counters->threads][i] = descriptor;
            if (descriptor < 0 && !counters->error) counters->error = errno;
        }
        counters->threads++;
    }
    if (threads) closedir(threads);
}

static double read_counter(int descriptor) {
    Reading r;
    if (descriptor < 0 || read(descriptor, &r, sizeof r) != sizeof r) return -1;
    if (r.running == 0) return r.enabled == 0 ? 0 : -1; // the thread slept, or the event never got a register
    return (double)r.value * ((double)r.enabled / (double)r.running);
}

void counters_read(const Counters *counters, double counts[COUNTER_COUNT]) {
    for (int i = 0; i < COUNTER_COUNT; i++) {
        counts[i] = counters->threads ? 0 : -1;
        for (int k = 0; k < counters->threads && counts[i] >= 0; k++) {
            double count = read_counter(counters->descriptors[k][i]);
            counts[i] = count >= 0 ? counts[i] + count : -1;
        }
    }
}

const char *counters_note(const Counters *counters) {
    switch (counters->error) {
    case 0: return "";
    case EACCES:
    case EPERM: return "the system does not allow it: see /proc/sys/kernel/perf_event_paranoid";
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP: return "this machine exposes none, as is common for virtual machines";
    case ENOSYS: return "the system has no perf events";
    case EMFILE: return "too many files are open: see ulimit -n";
    default: return "perf_event_open failed";
    }
}

void counters_close(Counters *counters) {
    for (int k = 0; k < counters->threads; k++)
        for (int i = 0; i < COUNTER_COUNT; i++)
            if (counters->descriptors[k][i] >= 0) close(counters->descriptors[k][i]);
    counters->threads = 0;
}
