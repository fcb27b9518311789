/* What the parts of collect share: what was recorded, and a trace that is being made of it. */
#ifndef PROFILE_COLLECT_INTERNAL_H
#define PROFILE_COLLECT_INTERNAL_H

#include "profile/category.h"
#include "profile/collect.h"
#include "profile/counters.h"
#include "profile/cupti.h"
#include "profile/kernel_name.h"
#include "kernels/record.h"

struct Collector {
    Device *device;
    TraceSource source;
    char note[256]; // why not a better source, or how it is used
    Cupti *cupti;   // NULL: another source
    bool apart;     // the device rests before each primitive
    bool graphs;    // it tells what is launched as a whole apart
    Recorder *recorder;
    bool outside; // profilers outside record along
    Counters counters;
    double counts[COUNTER_COUNT];
    const Record *records;
    int64_t count, dropped;
    Activities activities;
};

/* While a trace is made. */
typedef struct {
    const Collector *collector;
    Trace *trace;
    int64_t origin; // ns of the monotonic clock
    int64_t *event; // (records) of each the event that stands for it, or for what it lies in; -1: none
} Making;

/* The memory's timeline, and the tensors at its peak. */
CHECKED Status collect_memory(Making *making, const Arena arenas[ARENA_COUNT]);

static inline int64_t collect_ns(double seconds) {
    return (int64_t)(seconds * 1e9 + 0.5);
}

#endif
