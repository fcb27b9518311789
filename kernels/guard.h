/* guard: what --check and --hash-trace do after an operation. The door calls it; nobody else does. */
#ifndef KERNELS_GUARD_H
#define KERNELS_GUARD_H

#include "kernels/ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the canaries behind the tensors that lie in the arenas now, or those taken later as they are taken.
 */
CHECKED Status guard_plant(Ctx *ctx, const Arena *arena, const ArenaEntry *entry);

/* ERROR_NONFINITE if an output holds a NaN or infinity; ERROR_INTERNAL if a canary behind any tensor is
 * broken. */
CHECKED Status guard_check(Ctx *ctx, const Call *call);

/* --hash-trace, an observer (Ctx.observe) whose Ctx.observer is a FILE: writes one line an output, with step,
 * layer, place, operation, pass, name and hash. Two runs part at the first line that differs. */
CHECKED Status guard_hash(Ctx *ctx, const Call *call);

/* A dense copy of a tensor in host memory, to be freed with memory_free. Waits. */
CHECKED Status guard_download(Ctx *ctx, Tensor t, void **bytes);

#ifdef __cplusplus
}
#endif
#endif
