#include "kernels/linear/cpu_amx.h"

#ifdef __AMX_BF16__

#include "kernels/simd.h"

#include <immintrin.h>
#include <string.h>

enum {
    SIDE = AMX_SIDE,
    BLOCK = 2 * SIDE, // outputs, and rows, of a block
    CACHED = 1 << 20, // bytes of pairs that stay in L2 while a thread goes on to its next outputs
};

bool linear_amx_serves(Tensor x, Tensor weight) {
    return x.dtype == BF16 && weight.dtype == BF16 && tensor_width(weight) % AMX_DEPTH == 0 &&
           tensor_rows(weight) >= BLOCK && x.stride % 2 == 0 && amx_ready();
}

static int64_t padded(int64_t rows) {
    return pieces(rows, SIDE) * SIDE;
}

int64_t linear_amx_pairs(int64_t rows, int64_t width) {
    const int64_t packed = padded(rows) * width / 2, few = linear_amx_few_words(width);
    return packed > few ? packed : few;
}

/* Packs rows [top, top + SIDE) of x, zeros beyond its end, as columns of pairs (I / 2, stride). */
static void pack_rows(Tensor x, int64_t top, AmxPair *pairs, int64_t stride) {
    const int64_t words = tensor_width(x) / 2, apart = x.stride / 2, rows = least(tensor_rows(x) - top, SIDE);
    const AmxPair *from = (const AmxPair *)x.data + top * apart;
    for (int64_t word = 0; word < words; word += SIDE, from += SIDE, pairs += SIDE * stride) {
        AmxPair some[SIDE * SIDE] = {0};
        if (rows == SIDE) {
            amx_transpose(from, apart, pairs, stride);
            continue;
        }
        for (int64_t i = 0; i < rows; i++) memcpy(some + i * SIDE, from + i * apart, sizeof some / SIDE);
        amx_transpose(some, SIDE, pairs, stride);
    }
}

/* The packed rows from `top` on, a multiple of BLOCK. */
typedef struct {
    AmxPair *pairs; // (I / 2, width)
    int64_t width;
} Packed;

static Packed packed_at(const LinearForward *l, AmxPair *pairs, int64_t top) {
    return (Packed){pairs + top * tensor_width(l->x) / 2, least(padded(tensor_rows(l->x)) - top, BLOCK)};
}

/* Computes a block's outputs from `first` on, for rows from `top` on. The block begins at `begin`, so that it
 * is whole. Outputs are the rows of the product, because weights can be read as they are: W x^T. */
static void multiply_block(const LinearForward *l, AmxPair *pairs, int64_t begin, int64_t first, int64_t top,
                           LinearFinish *finish) {
    const Tensor w = l->weight;
    const Packed x = packed_at(l, pairs, top);
    float sums[BLOCK * BLOCK] __attribute__((aligned(64))), of_rows[SIDE * BLOCK];
    amx_product(BLOCK, x.width, tensor_width(w), (const bf16 *)w.data + begin * w.stride, w.stride, x.pairs,
                x.width, sums, BLOCK, false);
    for (int64_t row = 0; row < x.width; row += SIDE) {
        const int64_t rows = least(tensor_rows(l->x) - top - row, SIDE);
        amx_transpose(sums + row, BLOCK, of_rows, BLOCK);
        amx_transpose(sums + SIDE * BLOCK + row, BLOCK, of_rows + SIDE, BLOCK);
        for (int64_t n = 0; n < rows; n++)
            finish(l, top + row + n, first, begin + BLOCK - first, of_rows + n * BLOCK + first - begin);
    }
}

void linear_amx_rows(Ctx *ctx, const LinearForward *l, AmxPair *pairs, LinearFinish *finish) {
    if (linear_amx_few_serves(l)) return linear_amx_few(ctx, l, pairs, finish);
    const int64_t rows = tensor_rows(l->x), out = tensor_rows(l->weight), in = tensor_width(l->weight);
    const int64_t each = pieces(CACHED / (2 * in), BLOCK) * BLOCK;
#pragma omp parallel num_threads(cpu_threads(ctx))
    {
        amx_begin();
#pragma omp for schedule(static)
        for (int64_t top = 0; top < rows; top += SIDE) {
            const Packed to = packed_at(l, pairs, top / BLOCK * BLOCK);
            pack_rows(l->x, top, to.pairs + top % BLOCK, to.width);
        }
        for (int64_t start = 0; start < rows; start += each) {
#pragma omp for schedule(static) nowait
            for (int64_t first = 0; first < out; first += BLOCK)
                for (int64_t top = start; top < least(start + each, rows); top += BLOCK)
                    multiply_block(l, pairs, least(first, out - BLOCK), first, top, finish);
        }
        _tile_release();
    }
}

#endif
