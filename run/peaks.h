/* peaks: the machine's limits, measured: the rate of a large matrix product; the rates at which all threads
 * read, write and copy data in L2, L3 and memory, or on a GPU the rate of a large copy; and in a profile the
 * rate of large collectives between the ranks. They are measured once, and again on request. The best rates
 * of a device, library and dtype are cached in $XDG_CACHE_HOME/fusebox (or ~/.cache/fusebox). Rates that are
 * not repeatable, or were measured while others used the CPU's cores, are not cached. */
#pragma once

#include "comm/comm.h"
#include "base/limits.h"
#include "kernels/op.h"

/* The rates in the maker's data sheet for a device name: dense products and memory; all 0 if the sheet is
 * unknown. */
Peaks datasheet_peaks(const char *device, Dtype dtype, bool tf32);

/* Takes a second or two, and up to two more for a rate that is not repeatable: then the peaks come from the
 * cache or are unknown, and a note says why. Call before the arenas are allocated: it temporarily needs up to
 * 1.5 GiB on a GPU, and four times the last-level cache on a CPU. A file that cannot be read or written is
 * not an error. */
CHECKED Status peaks_measure(Ctx *ctx, Peaks *peaks);

/* The best rates seen earlier, unknown if there are none; false if a rate that this Ctx needs is missing. Nothing
 * is measured. */
bool peaks_remember(const Ctx *ctx, Peaks *peaks);

/* Collective, after comm_open: sets the link's limit. With `measuring` it runs collectives of 256 MiB on GPUs
 * and 16 MiB on the CPU; else it uses the rate measured earlier between the same number of ranks. Does
 * nothing with one rank. */
CHECKED Status peaks_link(Comm *comm, bool measuring, Peaks *peaks);
