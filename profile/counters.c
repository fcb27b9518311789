#include "profile/counters.h"

#include <dirent.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_counter(uint64_t config, pid_t thread) {
    struct perf_event_attr attributes = {.type = PERF_TYPE_HARDWARE,
                                         .size = sizeof attributes,
                                         .config = config,
                                         .exclude_kernel = 1,
                                         .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void counters_open(Counters *counters) {
    static const uint64_t configs[COUNTER_COUNT] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
                                                    PERF_COUNT_HW_CACHE_MISSES, PERF_COUNT_HW_BRANCH_MISSES};
    counters_close(counters);
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        pid_t thread = (pid_t)atoi(entry->d_name); // "." and ".." are 0
        if (thread <= 0 || counters->threads == COUNTED_THREADS) continue;
        for (int i = 0; i < COUNTER_COUNT; i++)
            counters->descriptors[counters->threads][i] = open_counter(configs[i], thread);
        counters->threads++;
    }
    if (threads) closedir(threads);
}

void counters_read(const Counters *counters, double counts[COUNTER_COUNT]) {
    for (int i = 0; i < COUNTER_COUNT; i++) {
        counts[i] = counters->threads ? 0 : -1;
        for (int k = 0; k < counters->threads && counts[i] >= 0; k++) {
            uint64_t count;
            int descriptor = counters->descriptors[k][i];
            bool known = descriptor >= 0 && read(descriptor, &count, sizeof count) == sizeof count;
            counts[i] = known ? counts[i] + (double)count : -1;
        }
    }
}

void counters_close(Counters *counters) {
    for (int k = 0; k < counters->threads; k++)
        for (int i = 0; i < COUNTER_COUNT; i++)
            if (counters->descriptors[k][i] >= 0) close(counters->descriptors[k][i]);
    counters->threads = 0;
}
