#include "kernels/gemm/cpu_amx.h"

#ifdef __AMX_BF16__

#include "base/memory.h"
#include "kernels/device/amx.h"
#include "kernels/simd.h"

#include <immintrin.h>

enum { PARTS = 3, TILE = AMX_SIDE * AMX_DEPTH }; // elements of a tile
enum { PAIR = 2, BLOCK = PAIR * AMX_SIDE };      // tiles of a block of C each way; rows and columns of it
enum { GROUP = 4, CHUNK = 8 };   // blocks of a task at most: their operands stay in the second cache
enum { PACKED_MOST = 12 << 20 }; // elements of the right operand that are packed at a time
enum { LEAST_ROWS = 24, LEAST = 1 << 20 }; // smaller products are not worth the packing

static int64_t pieces(int64_t count, int64_t of) {
    return (count + of - 1) / of;
}

static int64_t least(int64_t x, int64_t y) {
    return x < y ? x : y;
}

/* ---- operands ---- */

/* One that is packed: (side / 16, depth / 32) times three tiles, all rounded up. A row of a tile is one of
 * A's with 32 of its elements; or of B two, in pairs, of 16 columns. */
typedef struct {
    const float *from;
    int64_t side, depth; // rows of A or columns of B; what is summed over
    int64_t stride;      // of `from`'s rows
    bool across;         // which are runs of the side, not of the depth
    bool pairs;          // B
    uint16_t *to;
} Operand;

static uint16_t *tiles_of(const Operand *o, int64_t side, int64_t step) {
    return o->to + (side * pieces(o->depth, AMX_DEPTH) + step) * PARTS * TILE;
}

static __mmask16 mask_of(int64_t count) {
    return (__mmask16)(count >= AMX_SIDE ? 0xFFFF : count > 0 ? (1u << count) - 1 : 0);
}

static __m512 widened(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* The three parts of 16 numbers. */
static void split(__m512 x, __m256i parts[PARTS]) {
    for (int p = 0; p < PARTS; p++) {
        parts[p] = (__m256i)_mm512_cvtneps_pbh(x);
        x = _mm512_sub_ps(x, widened(parts[p]));
    }
}

/* 16 rows of 32 numbers as three tiles of rows. */
static void pack_rows(const Operand *o, int64_t first, int64_t depth, uint16_t *tiles) {
    const __mmask16 low = mask_of(o->depth - depth), high = mask_of(o->depth - depth - AMX_SIDE);
    for (int64_t i = 0; i < AMX_SIDE; i++) {
        const bool there = first + i < o->side;
        const float *x = o->from + (there ? first + i : 0) * o->stride + depth;
        __m256i parts[2][PARTS];
        split(_mm512_maskz_loadu_ps(there ? low : 0, x), parts[0]);
        split(_mm512_maskz_loadu_ps(there ? high : 0, x + AMX_SIDE), parts[1]);
        for (int p = 0; p < PARTS; p++)
            for (int half = 0; half < 2; half++)
                _mm256_storeu_si256((__m256i *)(tiles + p * TILE + i * AMX_DEPTH + half * AMX_SIDE),
                                    parts[half][p]);
    }
}

/* 32 rows of 16 numbers as three tiles of pairs. */
static void pack_pairs(const Operand *o, int64_t first, int64_t depth, uint16_t *tiles) {
    const __mmask16 mask = mask_of(o->side - first);
    for (int64_t i = 0; i < AMX_SIDE; i++) {
        __m256i parts[2][PARTS];
        for (int64_t half = 0; half < 2; half++) {
            const int64_t row = depth + 2 * i + half;
            const bool there = row < o->depth;
            split(_mm512_maskz_loadu_ps(there ? mask : 0, o->from + (there ? row : 0) * o->stride + first),
                  parts[half]);
        }
        for (int p = 0; p < PARTS; p++)
            _mm512_storeu_si512(tiles + p * TILE + i * AMX_DEPTH,
                                _mm512_or_si512(_mm512_cvtepu16_epi32(parts[0][p]),
                                                _mm512_slli_epi32(_mm512_cvtepu16_epi32(parts[1][p]), 16)));
    }
}

/* As its memory lies, and then turned where the other form is wanted: a pair is a word. */
static void pack(const Operand *o, int64_t side, int64_t step) {
    uint16_t *tiles = tiles_of(o, side, step), turned[PARTS * TILE] __attribute__((aligned(64)));
    const bool turn = o->across != o->pairs;
    (o->across ? pack_pairs : pack_rows)(o, side * AMX_SIDE, step * AMX_DEPTH, turn ? turned : tiles);
    for (int p = 0; p < PARTS && turn; p++)
        amx_transpose(turned + p * TILE, AMX_SIDE, tiles + p * TILE, AMX_SIDE);
}

/* ---- a block of C ---- */

/* Tiles 0 to 3 are sums, 4 and 5 a part of A, 6 and 7 one of B; `rest` is from one row of tiles to the
 * next. */
static inline void load_left(const uint16_t *tiles, int64_t rest) {
    _tile_loadd(4, tiles, 64);
    _tile_loadd(5, tiles + rest, 64);
}

static inline void load_right(const uint16_t *tiles, int64_t rest) {
    _tile_loadd(6, tiles, 64);
    _tile_loadd(7, tiles + rest, 64);
}

static inline void multiply_tiles(void) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* sums (BLOCK, BLOCK) = the product of two rows of tiles each. What is small is summed first, so that it
 * is not rounded at the large sums' last place. The compiler does not know that tiles read memory. */
static void multiply(const Operand *a, const Operand *b, int64_t i, int64_t j, float sums[BLOCK * BLOCK]) {
    const int64_t steps = pieces(a->depth, AMX_DEPTH), rest = steps * PARTS * TILE;
    const uint16_t *left = tiles_of(a, PAIR * i, 0), *right = tiles_of(b, PAIR * j, 0);
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = 0; step < steps; step++) {
        const uint16_t *x = left + step * PARTS * TILE, *y = right + step * PARTS * TILE;
        load_left(x, rest);
        load_right(y + 2 * TILE, rest);
        multiply_tiles();
        load_right(y + TILE, rest);
        multiply_tiles();
        load_left(x + TILE, rest);
        multiply_tiles();
        load_right(y, rest);
        multiply_tiles();
        load_left(x + 2 * TILE, rest);
        multiply_tiles();
    }
    for (int64_t step = 0; step < steps; step++) {
        load_left(left + step * PARTS * TILE, rest);
        load_right(right + step * PARTS * TILE, rest);
        multiply_tiles();
    }
    _tile_stored(0, sums, 4 * BLOCK);
    _tile_stored(1, sums + AMX_SIDE, 4 * BLOCK);
    _tile_stored(2, sums + AMX_SIDE * BLOCK, 4 * BLOCK);
    _tile_stored(3, sums + AMX_SIDE * BLOCK + AMX_SIDE, 4 * BLOCK);
    __asm__ volatile("" ::: "memory");
}

#define FOR_EACH(value) _Pragma("omp simd") for (int64_t c = 0; c < count; c++) to[c] = (value)

/* What follows the sums. `count`, of columns, is a constant where this is inlined for a whole block. */
static inline __attribute__((always_inline)) void finish_rows(const Gemm *g, const GemmFinish *finish,
                                                              int64_t row, int64_t column, const float *sums,
                                                              const int64_t count) {
    const float *bias = finish->bias ? (const float *)finish->bias + column : NULL;
    const float *added = finish->added ? (const float *)finish->added + row * g->ldc + column : NULL;
    float *to = (float *)g->c + row * g->ldc + column, x[BLOCK];
    const int64_t rows = least(g->m - row, BLOCK);
    for (int64_t r = 0; r < rows; r++, sums += BLOCK, to += g->ldc) {
        for (int64_t c = 0; c < count; c++) x[c] = sums[c];
        for (int64_t c = 0; c < count && bias; c++) x[c] += bias[c];
        for (int64_t c = 0; c < count && added; c++) x[c] += added[c + r * g->ldc];
        for (int64_t c = 0; c < count && g->beta != 0; c++) x[c] += to[c];
        switch (finish->finish) {
        case FINISH_PLAIN: FOR_EACH(x[c]); break;
        case FINISH_GELU_TANH: FOR_EACH(simd_gelu(x[c])); break;
        case FINISH_GELU: FOR_EACH(simd_gelu_erf(x[c])); break;
        case FINISH_RELU: FOR_EACH(x[c] > 0 ? x[c] : 0); break;
        case FINISH_TANH: FOR_EACH(simd_tanh(x[c])); break;
        }
    }
}

/* ---- a product ---- */

static void pack_all(const Ctx *ctx, const Operand *o) {
    const int64_t sides = PAIR * pieces(o->side, BLOCK), steps = pieces(o->depth, AMX_DEPTH);
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
    for (int64_t side = 0; side < sides; side++)
        for (int64_t step = 0; step < steps; step++) pack(o, side, step);
}

/* Blocks [first, last) of rows and of columns. */
static void multiply_blocks(const Gemm *g, const GemmFinish *finish, const Operand *a, const Operand *b,
                            const int64_t rows[2], const int64_t columns[2]) {
    float sums[BLOCK * BLOCK] __attribute__((aligned(64)));
    for (int64_t j = columns[0]; j < columns[1]; j++)
        for (int64_t i = rows[0]; i < rows[1]; i++) {
            multiply(a, b, i, j, sums);
            if (j * BLOCK + BLOCK <= g->n)
                finish_rows(g, finish, i * BLOCK, j * BLOCK, sums, BLOCK);
            else
                finish_rows(g, finish, i * BLOCK, j * BLOCK, sums, g->n - j * BLOCK);
        }
}

/* Both operands are packed, all threads together, and then blocks of C shared out. */
static void run(const Ctx *ctx, const Gemm *g, const GemmFinish *finish, AmxPacked *packed) {
    const int64_t steps = pieces(g->k, AMX_DEPTH), tile = steps * PARTS * TILE;
    const int64_t height = pieces(g->m, BLOCK), width = pieces(g->n, BLOCK);
    packed->values = memory_grow(packed->values, &packed->room, PAIR * (height + width) * tile + TILE,
                                 sizeof *packed->values);
    uint16_t *values = packed->values + (-(uintptr_t)packed->values % 64) / sizeof *values;
    const Operand a = {g->a, g->m, g->k, g->lda, g->transpose_a, false, values};
    const Operand b = {g->b, g->n, g->k, g->ldb, !g->transpose_b, true, values + PAIR * height * tile};
    pack_all(ctx, &a);
    pack_all(ctx, &b);
    int64_t group = GROUP, chunk = CHUNK;
    const int64_t enough = 4 * cpu_threads(ctx);
    while (group > 1 && pieces(height, group) * pieces(width, chunk) < enough) group /= 2;
    while (chunk > 1 && pieces(height, group) * pieces(width, chunk) < enough) chunk /= 2;
    const int64_t across = pieces(width, chunk), tasks = pieces(height, group) * across;
#pragma omp parallel num_threads(cpu_threads(ctx))
    {
        amx_begin();
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++) {
            const int64_t i = task / across * group, j = task % across * chunk;
            multiply_blocks(g, finish, &a, &b, (int64_t[]){i, least(i + group, height)},
                            (int64_t[]){j, least(j + chunk, width)});
        }
    }
}

bool gemm_amx_serves(const Gemm *g) {
    const bool plain = g->a_dtype == F32 && g->b_dtype == F32 && g->c_dtype == F32 && g->batch <= 1 &&
                       g->alpha == 1 && (g->beta == 0 || g->beta == 1);
    return plain && g->k > 0 && g->m >= LEAST_ROWS && (double)g->m * (double)g->n * (double)g->k >= LEAST &&
           amx_ready();
}

/* Of a part of both operands at a time, so that they fit into a cache. */
void gemm_amx_run(Ctx *ctx, const Gemm *g, const GemmFinish *finish, AmxPacked *packed) {
    const int64_t most = least(PACKED_MOST / (PARTS * pieces(g->k, AMX_DEPTH) * AMX_DEPTH) / BLOCK, 1 << 20);
    const int64_t part = (most > 0 ? most : 1) * BLOCK;
    for (int64_t column = 0; column < g->n; column += part)
        for (int64_t row = 0; row < g->m; row += part) {
            Gemm one = *g;
            GemmFinish rest = *finish;
            one.m = least(g->m - row, part);
            one.n = least(g->n - column, part);
            one.a = (const float *)g->a + (g->transpose_a ? row : row * g->lda);
            one.b = (const float *)g->b + (g->transpose_b ? column * g->ldb : column);
            one.c = (float *)g->c + row * g->ldc + column;
            if (rest.bias) rest.bias = (const float *)rest.bias + column;
            if (rest.added) rest.added = (const float *)rest.added + row * g->ldc + column;
            run(ctx, &one, &rest, packed);
        }
}

#endif
