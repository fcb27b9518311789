/* cpu_amx: fp32 products on bf16 tiles. A number with 24 bits of mantissa is the sum of three with 8:
 *
 *     x = x1 + x2 + x3,   x1 = bf16(x),  x2 = bf16(x - x1),  x3 = bf16(x - x1 - x2)
 *     a b = a1 b1 + (a1 b2 + a2 b1) + (a1 b3 + a2 b2 + a3 b1) + terms below 2^-23 of a b
 *
 * So six bf16 products, summed in fp32, have the error of one fp32 product (Henry, Tang, Heinecke 2019). The
 * tiles compute sixteen products in the time of one fp32 product on vectors. Numbers below 2^-102 lose bits,
 * because their parts would be denormal. If a number is infinite, the product is NaN. */
#pragma once

#include "kernels/device/onednn.h"
#include "kernels/gemm/gemm.h"

__BEGIN_DECLS

/* The epilogue of a product P: C = finish(P + bias + added). */
typedef struct {
    const void *bias;  // (n) of A's dtype; NULL: none
    const void *added; // a matrix with C's dtype and layout, in other memory; NULL: none
    Finish finish;
} GemmFinish;

/* Whether AMX tiles support this product, with any epilogue. Weak symbols: NULL in a build for other
 * processors. */
__attribute__((weak)) bool gemm_amx_serves(const Gemm *g);

/* Packed operands of products on AMX tiles, in parts. */
typedef struct {
    uint16_t *values;
    int64_t room;
} AmxPacked;

/* Like gemm_cpu_finish. `packed` grows to hold the operands; free its values with memory_free. Results do not
 * depend on the number of threads. */
__attribute__((weak)) void gemm_amx_run(Ctx *ctx, const Gemm *g, const GemmFinish *finish, AmxPacked *packed);

__END_DECLS
