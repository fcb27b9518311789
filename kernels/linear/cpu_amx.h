/* cpu_amx: rows of bf16 times a bf16 matrix, on Intel's AMX tiles. A tile multiplies 16 rows in the time of
 * one, so few rows take little longer than reading the matrix. Each output adds its terms in one order,
 * whatever the number of rows. */
#pragma once

#include "kernels/device/amx.h"
#include "kernels/linear/linear.h"

__BEGIN_DECLS

/* Whether tiles can multiply x (..., I) by weight (O, I). Weak symbols: NULL in a build for other
 * processors. */
__attribute__((weak)) bool linear_amx_serves(Tensor x, Tensor weight);

/* The number of pairs into which linear_amx_rows packs this many rows. */
__attribute__((weak)) int64_t linear_amx_pairs(int64_t rows, int64_t width);

/* Receives sums of row n for `count` outputs from `first` on, which it may change. */
typedef void LinearFinish(const LinearForward *l, int64_t n, int64_t first, int64_t count, float *sums);

/* Calls `finish` for each row's outputs, at most 32 at a time, from several threads. `pairs` has memory for
 * linear_amx_pairs(). */
__attribute__((weak)) void linear_amx_rows(Ctx *ctx, const LinearForward *l, AmxPair *pairs,
                                           LinearFinish *finish);

/* Up to three rows times dense weights, without tiles but with their bits (cpu_amx_few.c). `words` has memory
 * for linear_amx_few_words(). */
bool linear_amx_few_serves(const LinearForward *l);
int64_t linear_amx_few_words(int64_t width);
void linear_amx_few(Ctx *ctx, const LinearForward *l, uint32_t *words, LinearFinish *finish);

__END_DECLS
