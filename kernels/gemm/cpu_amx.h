/* cpu_amx: products of fp32 on tiles that multiply bf16. A number of 24 bits is the sum of three of 8:
 *     x = x1 + x2 + x3,   x1 = bf16(x),  x2 = bf16(x - x1),  x3 = bf16(x - x1 - x2)
 *     a b = a1 b1 + (a1 b2 + a2 b1) + (a1 b3 + a2 b2 + a3 b1) + what is below 2^-23 of it
 * so that six products of parts, summed in fp32, have the error of one of fp32 (Henry, Tang, Heinecke
 * 2019), and the tiles do sixteen while the processor's vectors do one. Numbers below 2^-102 lose bits,
 * since their parts would be denormal; where a number is infinite the product is NaN. */
#pragma once

#include "kernels/gemm/cpu_finish.h"
#include "kernels/gemm/gemm.h"

__BEGIN_DECLS

/* Whether they serve this product, with whatever is to follow. Weak symbols: NULL in a build for other
 * processors. */
__attribute__((weak)) bool gemm_amx_serves(const Gemm *g);

/* Operands of products on AMX tiles, in parts. */
typedef struct {
    uint16_t *values;
    int64_t room;
} AmxPacked;

/* As gemm_cpu_finish. `packed` grows to what its operands take; its values are to be freed by memory_free.
 * Bits do not depend on the number of threads. */
__attribute__((weak)) void gemm_amx_run(Ctx *ctx, const Gemm *g, const GemmFinish *finish, AmxPacked *packed);

__END_DECLS
