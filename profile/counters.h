/* counters: the CPU's own counts of what this process did, where the system allows it (perf_event_open). */
#pragma once

typedef enum {
    COUNTER_CYCLES,
    COUNTER_INSTRUCTIONS,
    COUNTER_CACHE_MISSES,
    COUNTER_BRANCH_MISSES,
    COUNTER_COUNT
} CounterKind;

enum { COUNTED_THREADS = 64 };

/* Of each thread open descriptors, or -1 for a counter that cannot be had. All zero is closed. */
typedef struct {
    int descriptors[COUNTED_THREADS][COUNTER_COUNT];
    int threads;
    int error; // errno of the first that could not be had; 0: all could
} Counters;

/* Starts counting what the process's threads do outside the kernel. Not being allowed is no error. */
void counters_open(Counters *counters);

/* Sums over the threads, scaled up where events took turns; -1: not known. */
void counters_read(const Counters *counters, double counts[COUNTER_COUNT]);

/* Why not all are known, for people; "" where nothing is amiss. Holds also after counters_close. */
const char *counters_note(const Counters *counters);
void counters_close(Counters *counters);
