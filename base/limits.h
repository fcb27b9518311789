/* limits: a machine's peak rates, and the least time that given work takes at these rates. */
#pragma once

#include "base/terms.h"

#include <stdbool.h>

/* The peak rates of one memory level: bytes/s of all threads together. */
typedef struct {
    double bytes;       // capacity; 0: no such level, or its size is unknown
    double most;        // bytes/s in the best mix of reading and writing
    double read, write; // reading only, and writing only; 0: unknown
} Roof;

enum { CACHE_L2, CACHE_L3, CACHE_COUNT };

typedef struct {
    double flops;             // FLOP/s of a product in the dtype of the Ctx
    double flops8;            // FLOP/s of a product of 8-bit numbers; 0: unknown
    double bandwidth;         // bytes/s of memory in the best mix of reading and writing, both counted
    double link;              // bytes/s that leave a rank in a collective: NCCL's "bus bandwidth"
    double read, write;       // bytes/s of memory, reading only and writing only; 0: unknown
    Roof caches[CACHE_COUNT]; // L2 and L3
    double dense;             // FLOP/s of dense products in the data sheet; 0: unknown
    const char *note;         // why rates are unknown or were not measured again, for the user; or NULL
} Peaks;                      // all zero: unknown

static inline bool peaks_known(const Peaks *peaks) {
    return peaks->flops > 0 && peaks->bandwidth > 0;
}

/* The least ns for `calls` calls of equal size that together do `work`: the longest of the times for their
 * arithmetic, their bytes and the bytes that they send. A call's bytes come from the caches as far as they
 * fit there, and the rest from memory; each level is limited by its rates of reading, of writing, and of
 * both. 0 if the limits are unknown. */
double limit_ns(const Peaks *peaks, Work work, double calls);

/* limit_ns divided by the measured time; 0 if the limits are unknown. */
double limit_share(const Peaks *peaks, Work work, double calls, double ns);

/* The name of that limit: "arithmetic", "link", the outermost level that a call's bytes reach ("L2", "L3",
 * "memory"), or "" if the limits are unknown. */
bool limit_is_arithmetic(const Peaks *peaks, Work work, double calls);
const char *limit_name(const Peaks *peaks, Work work, double calls);

/* "0.45 TFLOP/s products; memory 40.3 GB/s (reads 40.3, writes 22.1), L3 of 32 MiB 118 GB/s (...)"; "unknown"
 * with the reason if they are unknown. */
typedef struct {
    char text[320];
} LimitsText;

LimitsText limits_text(const Peaks *peaks);

/* Model FLOPs utilization (Chowdhery et al. 2022, PaLM, appendix B): the FLOPs that the model needs in a
 * second, divided by the data sheet's dense rate or, if that is 0, by the measured rate. NaN if neither is
 * known, or if other processes used the cores (cores.h). */
typedef struct {
    double share;
    const char *of; // "data sheet", "measured rate"
} Mfu;

Mfu mfu_of(double needed_per_s, double dense, double measured, double cores_waited);
