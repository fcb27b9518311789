/* What collect.c is made of: CUPTI, the CPU's counters, names and occupancy of kernels. */
#ifndef PROFILE_COLLECT_INTERNAL_H
#define PROFILE_COLLECT_INTERNAL_H

#include "profile/category.h"
#include "profile/counters.h"
#include "profile/cupti.h"
#include "profile/kernel_name.h"
#include "profile/record.h"

struct Collector {
    Device *device;
    TraceSource source;
    char note[256]; // why not a better source
    Cupti *cupti;   // NULL: another source
    Recorder *recorder;
    bool outside; // profilers outside record along
    Counters counters;
    double counts[COUNTER_COUNT];
    const Record *records;
    int64_t count, dropped;
    Activities activities;
};

#endif
