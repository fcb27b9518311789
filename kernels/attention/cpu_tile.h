/* cpu_tile: the small products inside the fused CPU attention, on operands that fit L1 and L2. */
#pragma once

#include "kernels/simd.h"

/* Rows, and columns in vectors, of the block of sums that one pass keeps in registers; the last block may
 * have fewer columns. The columns of a product are a multiple of TILE_UNIT, its rows any number. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { TILE_ROWS = 4, TILE_VECTORS = 4 }; // 16 of 32 registers: enough to hide a multiply-add's latency
#else
enum { TILE_ROWS = 4, TILE_VECTORS = 2 }; // 8 of 16
#endif
enum { TILE_WIDTH = TILE_VECTORS * LANES, TILE_UNIT = 32 };

/* A strided matrix with element (i, p) = data[i * row + p * column]: rows of a tensor, or its transpose. */
typedef struct {
    const float *data;
    int64_t row, column;
} TileView;

/* C (m, n) = A (m, k) B (k, n), or += with `accumulate`. B and C are row-major with rows ldb and ldc apart; n
 * is a multiple of TILE_UNIT. Sums over k run in order. */
void tile_product(int64_t m, int64_t n, int64_t k, TileView a, const float *b, int64_t ldb, float *c,
                  int64_t ldc, bool accumulate);
