/* peaks: what this machine can do at most, measured: the rate of a large matrix product, the bandwidth of a
 * large copy and, in a profile, that of large collectives between the ranks. Measured once, and again where
 * that is asked for; the best that was ever seen of a device, library and dtype is kept in
 * $XDG_CACHE_HOME/fusebox (or ~/.cache/fusebox), so that a busy moment does not lower the limits. Where
 * others had the CPU's cores meanwhile, they are measured again at the next start. */
#pragma once

#include "comm/comm.h"
#include "base/limits.h"
#include "kernels/op.h"

/* What the maker's data sheet promises of a device, by its name: dense rates of products and of memory; all 0
 * where the sheet is not known. */
Peaks datasheet_peaks(const char *device, Dtype dtype, bool tf32);

/* Takes under a second. Before the arenas are allocated: it needs up to 1.5 GiB on a GPU for a moment. A
 * file that cannot be read or written is no error. */
CHECKED Status peaks_measure(Ctx *ctx, Peaks *peaks);

/* The best that was seen before, unknown where nothing was: nothing is measured, nothing runs. False where it
 * is to be measured, for the first time or again. */
bool peaks_remember(const Ctx *ctx, Peaks *peaks);

/* Collective, after comm_open: sets the link's limit, with `measuring` by collectives of 256 MiB on GPUs and
 * 16 MiB on the CPU, else from what was seen before between as many ranks. Nothing with one rank. */
CHECKED Status peaks_link(Comm *comm, bool measuring, Peaks *peaks);
