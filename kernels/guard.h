/* guard: what --check and --hash-trace do after an operation. The door calls it; nobody else does. */
#pragma once

#include "kernels/ctx.h"

/* Writes the canary behind a tensor that has just been taken from the arena. */
CHECKED Status guard_plant(Ctx *ctx, const Arena *arena, const ArenaEntry *entry);

/* ERROR_NONFINITE where an output holds a NaN or an infinity.
 * ERROR_INTERNAL where the canary behind any tensor is broken. */
CHECKED Status guard_check(Ctx *ctx, const Call *call);

/* --hash-trace: an observer (Ctx.observe) that writes one line for each output to the FILE in Ctx.observer:
 *     step, layer, call, operation, pass, name of the output, hash        separated by tabs
 * Two runs diverge at the first line that differs. */
CHECKED Status guard_hash(Ctx *ctx, const Call *call);

/* A dense copy of a tensor in host memory, to be freed with memory_free. Waits. */
CHECKED Status guard_download(Ctx *ctx, Tensor t, void **bytes);
