/* peaks: what this machine can do at most, measured: the rate of a large matrix product and the bandwidth of
 * a large copy. Measured once for a device, library and dtype, and kept in $XDG_CACHE_HOME/fusebox (or
 * ~/.cache/fusebox). */
#ifndef PROFILE_PEAKS_H
#define PROFILE_PEAKS_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double flops;     // FLOP/s of a product in the dtype of the Ctx
    double bandwidth; // bytes/s of a copy, read and written bytes both counted
    bool cached;      // from the file, not measured now
} Peaks;

/* Takes under a second when measuring. Before the arenas are allocated: it needs up to 1.5 GiB on a GPU for a
 * moment. A cache that cannot be read or written is no error. */
CHECKED Status peaks_measure(Ctx *ctx, Peaks *peaks);

#ifdef __cplusplus
}
#endif
#endif
