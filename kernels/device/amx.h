/* amx: Intel's AMX tiles: eight registers of 16 rows of 64 bytes, and bf16 products summed in fp32. All
 * symbols are weak: NULL in a build for other processors. */
#pragma once

#include "base/bfloat16.h"
#include "base/checked.h"

#include <stdbool.h>
#include <stdint.h>

#include <sys/cdefs.h>

__BEGIN_DECLS

enum { AMX_SIDE = 16, AMX_DEPTH = 32 }; // rows of a tile, and words of a row; elements of bf16 in a row

/* Whether the kernel permits AMX in this process. */
__attribute__((weak)) bool amx_ready(void);

/* Configures eight full tiles for this thread, because a library may have changed the configuration. */
__attribute__((weak)) void amx_begin(void);

/* The right operand of a product consists of pairs: two elements of a column, one below the other. */
typedef uint32_t AmxPair;

/* C (m, n) = A (m, k) B (k, n), or += with `accumulate`. A is row-major, B is in pairs (k / 2, n); strides
 * count elements of each. m and k are multiples of 32, n of 16. Each sum adds its terms in the order of k, 32
 * at a time, whatever m and n. */
__attribute__((weak)) void amx_product(int64_t m, int64_t n, int64_t k, const bf16 *a, int64_t a_stride,
                                       const AmxPair *b, int64_t b_stride, float *c, int64_t c_stride,
                                       bool accumulate);

/* to (16, 16) = from (16, 16)^T, 32-bit words (pairs of bf16, or fp32), strides in words. */
__attribute__((weak)) void amx_transpose(const void *from, int64_t from_stride, void *to, int64_t to_stride);

__END_DECLS
