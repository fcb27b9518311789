/* counters: the CPU's hardware counters for this process, where the system allows it (perf_event_open). */
#pragma once

typedef enum {
    COUNTER_CYCLES,
    COUNTER_INSTRUCTIONS,
    COUNTER_CACHE_MISSES,
    COUNTER_BRANCH_MISSES,
    COUNTER_COUNT
} CounterKind;

enum { COUNTED_THREADS = 64 };

/* Open descriptors for each thread, or -1 for a counter that is not available. All zero means closed. */
typedef struct {
    int descriptors[COUNTED_THREADS][COUNTER_COUNT];
    int threads;
    int error; // errno of the first counter that is not available; 0: all are
} Counters;

/* Starts counting the user-space work of the process's threads. Lack of permission is not an error. */
void counters_open(Counters *counters);

/* Sums over the threads, scaled up where events were multiplexed; -1: unknown. */
void counters_read(const Counters *counters, double counts[COUNTER_COUNT]);

/* Why some counters are unknown, for the user; "" if all are known. Also valid after counters_close. */
const char *counters_note(const Counters *counters);
void counters_close(Counters *counters);
