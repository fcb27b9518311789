/* limits: the measured peak rates of a machine, and the share of them that some work reaches. */
#pragma once

#include "base/terms.h"

#include <stdbool.h>

typedef struct {
    double flops;     // FLOP/s of a product in the dtype of the Ctx
    double bandwidth; // bytes/s of a copy, read and written bytes both counted
    double link;      // bytes/s sent by a rank in a collective: NCCL's "bus bandwidth"
} Peaks;              // zero: unknown

static inline bool peaks_known(const Peaks *peaks) {
    return peaks->flops > 0 && peaks->bandwidth > 0;
}

/* limit_share: the least possible time of the work over its measured time; 0 if the limits are unknown.
 * limit_name: which resource sets the least time, "arithmetic", "memory", "link", or "" if unknown. */
double limit_share(const Peaks *peaks, Work work, double ns);
bool limit_is_arithmetic(const Peaks *peaks, Work work);
const char *limit_name(const Peaks *peaks, Work work);
