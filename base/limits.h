/* limits: what a machine can do at most, and the share of it that some work reaches. */
#pragma once

#include "base/terms.h"

#include <stdbool.h>

typedef struct {
    double flops;     // FLOP/s of a product in the dtype of the Ctx
    double bandwidth; // bytes/s of a copy, read and written bytes both counted
    double link;      // bytes/s that leave a rank in a collective: NCCL's "bus bandwidth"
} Peaks;              // zeros: unknown

static inline bool peaks_known(const Peaks *peaks) {
    return peaks->flops > 0 && peaks->bandwidth > 0;
}

/* The share of these limits that work of `ns` reaches: the least time that it can take over its time; 0
 * where they are unknown. Whether arithmetic sets that least time, or memory or the link; "arithmetic",
 * "memory", "link", or "" where they are unknown. */
double limit_share(const Peaks *peaks, Work work, double ns);
bool limit_is_arithmetic(const Peaks *peaks, Work work);
const char *limit_name(const Peaks *peaks, Work work);
