/* guard: the checks of --check and --hash-trace after each operation, called by op_run only. */
#pragma once

#include "kernels/ctx.h"

/* Writes the canary after a newly taken tensor. */
CHECKED Status guard_plant(Ctx *ctx, const Arena *arena, const ArenaEntry *entry);

/* ERROR_NONFINITE if an output holds a NaN or an infinity, ERROR_INTERNAL if any tensor's canary was
 * overwritten. */
CHECKED Status guard_check(Ctx *ctx, const Call *call);

/* --hash-trace: an observer (Ctx.observe) that writes one line per output to the FILE in Ctx.observer:
 *     step, layer, call, operation, pass, name of the output, hash        separated by tabs
 * Two runs diverge at the first line that differs. */
CHECKED Status guard_hash(Ctx *ctx, const Call *call);

/* Copies a tensor densely to host memory; the caller frees it with memory_free. Synchronizes. */
CHECKED Status guard_download(Ctx *ctx, Tensor t, void **bytes);
