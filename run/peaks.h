/* peaks: what this machine can do at most, measured: the rate of a large matrix product; the rates at which
 * all threads read, write and copy what L2, L3 and memory hold, or on a GPU the rate of a large copy; and in a
 * profile that of large collectives between the ranks. Measured once, and again where that is asked for; the
 * best that was ever seen of a device, library and dtype is kept in $XDG_CACHE_HOME/fusebox (or
 * ~/.cache/fusebox). What does not repeat, or was measured while others had the CPU's cores, is not kept. */
#pragma once

#include "comm/comm.h"
#include "base/limits.h"
#include "kernels/op.h"

/* What the maker's data sheet promises of a device, by its name: dense rates of products and of memory; all 0
 * where the sheet is not known. */
Peaks datasheet_peaks(const char *device, Dtype dtype, bool tf32);

/* Takes a second or two, and up to two for a figure that does not repeat: then the peaks are those that were
 * kept, or unknown, and a note says why. Before the arenas are allocated: for a moment it needs up to 1.5 GiB on
 * a GPU, and four times the last cache on a CPU. A file that cannot be read or written is no error. */
CHECKED Status peaks_measure(Ctx *ctx, Peaks *peaks);

/* The best that was seen before; false where nothing was: then they are unknown. Nothing is measured, nothing
 * runs. */
bool peaks_remember(const Ctx *ctx, Peaks *peaks);

/* Collective, after comm_open: sets the link's limit, with `measuring` by collectives of 256 MiB on GPUs and
 * 16 MiB on the CPU, else from what was seen before between as many ranks. Nothing with one rank. */
CHECKED Status peaks_link(Comm *comm, bool measuring, Peaks *peaks);
