/* limits: what a machine can do at most, and the least time that some work takes there. */
#pragma once

#include "base/terms.h"

#include <stdbool.h>

/* The roof of one level of memory: bytes/s of all threads together. */
typedef struct {
    double bytes;       // that the level holds; 0: there is none, or its size is not known
    double most;        // in the best mix of reading and writing
    double read, write; // alone; 0: not known
} Roof;

enum { CACHE_L2, CACHE_L3, CACHE_COUNT };

typedef struct {
    double flops;             // FLOP/s of a product in the dtype of the Ctx
    double bandwidth;         // bytes/s of memory in the best mix of reading and writing, both counted
    double link;              // bytes/s that leave a rank in a collective: NCCL's "bus bandwidth"
    double read, write;       // bytes/s of memory, alone; 0: not known
    Roof caches[CACHE_COUNT]; // L2 and L3
    double dense;             // FLOP/s of dense products by the maker's data sheet; 0: it is not known
    const char *note;         // why they are unknown, or not measured anew, for people; or NULL
} Peaks;                      // zeros: unknown

static inline bool peaks_known(const Peaks *peaks) {
    return peaks->flops > 0 && peaks->bandwidth > 0;
}

/* The least ns that so many calls of one size take, which do this work together: the longest of their
 * arithmetic, their bytes and what they send. A call's bytes come from the caches as far as those hold them,
 * and the rest from memory; within a level no faster than it reads, writes, or moves both. 0 where the limits
 * are unknown. */
double limit_ns(const Peaks *peaks, Work work, double calls);

/* limit_ns over the time that it took; 0 where the limits are unknown. */
double limit_share(const Peaks *peaks, Work work, double calls, double ns);

/* Which limit that is: "arithmetic", "link", the outermost level that a call's bytes reach ("L2", "L3",
 * "memory"), or "" where the limits are unknown. */
bool limit_is_arithmetic(const Peaks *peaks, Work work, double calls);
const char *limit_name(const Peaks *peaks, Work work, double calls);

/* "0.45 TFLOP/s products; memory 40.3 GB/s (reads 40.3, writes 22.1), L3 of 32 MiB 118 GB/s (...)"; "unknown" with
 * the reason where they are. */
typedef struct {
    char text[320];
} LimitsText;

LimitsText limits_text(const Peaks *peaks);

/* Model FLOPs utilization (Chowdhery et al. 2022, PaLM, appendix B): the FLOPs that the model needs in a second,
 * over the dense rate of the data sheet, or where that is 0 over the measured one. Not a number where neither is
 * known, or others had the cores (cores.h). */
typedef struct {
    double share;
    const char *of; // "data sheet", "measured rate"
} Mfu;

Mfu mfu_of(double needed_per_s, double dense, double measured, double cores_waited);
