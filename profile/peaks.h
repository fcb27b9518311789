/* peaks: what this machine can do at most, measured: the rate of a large matrix product and the bandwidth
 * of a large copy. Measured at every start; the best that was ever seen of a device, library and dtype is
 * kept in $XDG_CACHE_HOME/fusebox (or ~/.cache/fusebox), so that a busy moment does not lower the limits. */
#ifndef PROFILE_PEAKS_H
#define PROFILE_PEAKS_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double flops;     // FLOP/s of a product in the dtype of the Ctx
    double bandwidth; // bytes/s of a copy, read and written bytes both counted
} Peaks;              // zeros: unknown

static inline bool peaks_known(const Peaks *peaks) {
    return peaks->flops > 0 && peaks->bandwidth > 0;
}

/* Takes under a second. Before the arenas are allocated: it needs up to 1.5 GiB on a GPU for a moment. A
 * file that cannot be read or written is no error. */
CHECKED Status peaks_measure(Ctx *ctx, Peaks *peaks);

/* The best that was seen before, unknown where nothing was: nothing is measured, nothing runs. */
void peaks_remember(const Ctx *ctx, Peaks *peaks);

#ifdef __cplusplus
}
#endif
#endif
