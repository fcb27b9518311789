#include "kernels/gemm/cpu_amx.h"

#ifdef __AMX_BF16__

#include "base/memory.h"
#include "kernels/device/amx.h"
#include "kernels/simd.h"

#include <immintrin.h>

enum { PARTS = 3, TILE = AMX_SIDE * AMX_DEPTH }; // elements of a tile
enum {
    PAIR = 2,
    BLOCK = PAIR * AMX_SIDE
};                                   // tiles per block of C in each direction; rows and columns
                                     // of a block
enum { STEP = PAIR * PARTS * TILE }; // elements of a block of an operand, one tile deep
enum {
    LINE = 64,
    AHEAD = 2
}; // bytes of a cache line; prefetch distance of packing, in
    // steps
enum {
    SLICES = 8,
    ROWS = PAIR * AMX_SIDE / SLICES
};                                        // slices in which a step is packed; rows of a tile per
                                          // slice
enum { SLOTS = PARTS * (PARTS + 1) / 2 }; // products of parts in a step
enum { DEPTH_MOST = 832 };      // depth of a part of a product: a packed panel, 156 KiB, stays in L2
enum { KEPT_MOST = 196 << 10 }; // elements of the other operand, 1.2 MB packed, that stay in L2 with it
enum { LEAST_ROWS = 24, LEAST = 1 << 20 }; // smaller products are not worth the packing

/* Divides `count` into equal parts of at most `most`; returns the size of a part. Both sizes are multiples of
 * `of`. */
static int64_t part_of(int64_t count, int64_t most, int64_t of) {
    const int64_t parts = pieces(count, most > of ? most / of * of : of);
    return pieces(pieces(count, parts), of) * of;
}

/* ---- operands ---- */

typedef struct {
    const float *from;
    int64_t side, depth; // rows of A or columns of B; depth: the dimension that is summed over
    int64_t stride;      // stride of `from`'s rows
    bool across;         // rows of `from` run along the side, not along the depth
    bool pairs;          // packs B, in pairs
} Operand;

static __mmask16 mask_of(int64_t count) {
    return (__mmask16)(count >= AMX_SIDE ? 0xFFFF : count > 0 ? (1u << count) - 1 : 0);
}

/* Rounds to bf16, in the upper half of each word. */
static inline __m512 rounded(__m512 x) {
    const __m512i upper = _mm512_set1_epi32((int)0xFFFF0000), half = _mm512_set1_epi32(0x8000);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), upper));
}

/* Splits 16 pairs of numbers into three parts each, a pair per word. The third part is the remainder, which
 * has at most 8 bits. */
static inline void split(__m512 low, __m512 high, __m512i parts[PARTS]) {
    const __mmask32 odd = 0xAAAAAAAA;
    for (int p = 0; p < PARTS; p++) {
        const __m512 x = p + 1 < PARTS ? rounded(low) : low, y = p + 1 < PARTS ? rounded(high) : high;
        parts[p] = _mm512_mask_blend_epi16(odd, _mm512_srli_epi32(_mm512_castps_si512(x), 16),
                                           _mm512_castps_si512(y));
        low = _mm512_sub_ps(low, x);
        high = _mm512_sub_ps(high, y);
    }
}

/* The memory of a block's step. */
static const float *start_of(const Operand *o, int64_t block, int64_t step) {
    const int64_t first = block * BLOCK, depth = step * AMX_DEPTH;
    return o->from + (o->across ? depth * o->stride + first : first * o->stride + depth);
}

/* Packs rows [row, row + ROWS) of a tile for each part, `part_stride` elements from one part to the next, in
 * memory order: a row is 32 numbers of one side, or two rows of 16 sides. The order along the depth is free:
 * the numbers of a pair are 16 apart. `ahead` is the prefetch distance. */
static void pack_rows(const Operand *o, int64_t side, int64_t depth, int64_t row, int64_t ahead, uint16_t *to,
                      int64_t part_stride) {
    const int64_t top = o->across ? depth : side, lines = (o->across ? o->depth : o->side) - top;
    const int64_t below = o->across ? AMX_SIDE : 0, other = o->across ? AMX_SIDE * o->stride : AMX_SIDE;
    const __mmask16 low = mask_of(o->across ? o->side - side : o->depth - depth);
    const __mmask16 high = o->across ? low : mask_of(o->depth - depth - AMX_SIDE);
    const float *x = o->from + (top + row) * o->stride + (o->across ? side : depth);
    for (int64_t i = row; i < row + ROWS; i++, x += o->stride) {
        __m512i parts[PARTS];
        _mm_prefetch(x + ahead, _MM_HINT_T0);
        _mm_prefetch(x + ahead + other, _MM_HINT_T0);
        split(_mm512_maskz_loadu_ps(i < lines ? low : 0, x),
              _mm512_maskz_loadu_ps(i + below < lines ? high : 0, x + other), parts);
        for (int p = 0; p < PARTS; p++) _mm512_storeu_si512(to + p * part_stride + i * AMX_DEPTH, parts[p]);
    }
}

/* Packs blocks of an operand slice by slice; a step is (part, half of the block) tiles. */
typedef struct {
    const Operand *o;
    uint16_t *to;        // start of the packed block
    int64_t block, next; // the current block and the next slice
    uint16_t turned[PARTS * TILE] __attribute__((aligned(LINE)));
} Packer;

/* Packs a slice in memory order, then transposes it if the other layout is needed; a pair is a word. */
static void pack_slice(Packer *packer) {
    const Operand *o = packer->o;
    const int64_t step = packer->next / SLICES, half = packer->next % SLICES / (SLICES / PAIR);
    const int64_t row = packer->next % (SLICES / PAIR) * ROWS;
    const int64_t side = packer->block * BLOCK + half * AMX_SIDE;
    const int64_t steps = pieces(o->depth, AMX_DEPTH), later = step + AHEAD;
    const int64_t ahead =
        start_of(o, packer->block + later / steps, later % steps) - start_of(o, packer->block, step);
    const bool turn = o->across != o->pairs;
    uint16_t *to = packer->to + step * STEP + half * TILE;
    pack_rows(o, side, step * AMX_DEPTH, row, ahead, turn ? packer->turned : to, turn ? TILE : PAIR * TILE);
    for (int p = 0; p < PARTS && turn && row + ROWS == AMX_SIDE; p++)
        amx_transpose(packer->turned + p * TILE, AMX_SIDE, to + p * PAIR * TILE, AMX_SIDE);
    packer->next++;
}

/* ---- vector work concurrent with the tiles ---- */

enum { WHOLE = 1 << 10 }; // fixed-point unit of a slice

#define FOR_EACH(value) _Pragma("omp simd") for (int64_t c = 0; c < count; c++) to[c] = (value)

/* Applies the epilogue to a row of sums. `count`, of columns, is a constant after inlining for a whole
 * block. */
static inline __attribute__((always_inline)) void finish_row(const Gemm *g, const GemmFinish *finish,
                                                             int64_t row, int64_t column, const float *sums,
                                                             const int64_t count) {
    const float *bias = finish->bias ? (const float *)finish->bias + column : NULL;
    const float *added = finish->added ? (const float *)finish->added + row * g->ldc + column : NULL;
    float *to = (float *)g->c + row * g->ldc + column, x[BLOCK];
    for (int64_t c = 0; c < count; c++) x[c] = sums[c];
    for (int64_t c = 0; c < count && bias; c++) x[c] += bias[c];
    for (int64_t c = 0; c < count && added; c++) x[c] += added[c];
    for (int64_t c = 0; c < count && g->beta != 0; c++) x[c] += to[c];
    switch (finish->finish) {
    case FINISH_PLAIN: FOR_EACH(x[c]); break;
    case FINISH_GELU_TANH: FOR_EACH(simd_gelu(x[c])); break;
    case FINISH_GELU: FOR_EACH(simd_gelu_erf(x[c])); break;
    case FINISH_RELU: FOR_EACH(x[c] > 0 ? x[c] : 0); break;
    case FINISH_TANH: FOR_EACH(simd_tanh(x[c])); break;
    }
}

/* Vector work that runs between tile multiplications: finishing the previous block, and packing the next
 * panel, slice by slice. */
typedef struct {
    const Gemm *g;
    const GemmFinish *finish;
    int64_t row, rows, column; // rows [row, rows) of C still have to be finished
    const float *sums;         // sums of the row `row`
    int64_t ahead;             // elements from the row to the block that the tiles compute
    Packer packer;
    int64_t slices, rate, credit; // slices that may be packed so far; slices per call, as a fraction, and the
                                  // accumulated fraction
} Beside;

static void finish_next_row(Beside *b) {
    const Gemm *g = b->g;
    const float *soon = (const float *)g->c + b->row * g->ldc + b->column + b->ahead;
    __builtin_prefetch(soon, 1);
    __builtin_prefetch(soon + AMX_SIDE, 1);
    if (b->column + BLOCK <= g->n)
        finish_row(g, b->finish, b->row, b->column, b->sums, BLOCK);
    else
        finish_row(g, b->finish, b->row, b->column, b->sums, g->n - b->column);
    b->sums += BLOCK;
    b->row++;
}

static __attribute__((noinline)) void vector_work(Beside *b) {
    if (b->row < b->rows) finish_next_row(b);
    for (b->credit += b->rate; b->credit >= WHOLE && b->packer.next < b->slices; b->credit -= WHOLE)
        pack_slice(&b->packer);
}

/* ---- a block of C ---- */

/* Tiles 0 to 3 hold sums, 4 and 5 a part of A, 6 and 7 a part of B. */
static inline void load_left(const uint16_t *step, int part) {
    _tile_loadd(4, step + part * PAIR * TILE, LINE);
    _tile_loadd(5, step + part * PAIR * TILE + TILE, LINE);
}

static inline void load_right(const uint16_t *step, int part) {
    _tile_loadd(6, step + part * PAIR * TILE, LINE);
    _tile_loadd(7, step + part * PAIR * TILE + TILE, LINE);
}

static inline void multiply_tiles(Beside *beside) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    vector_work(beside);
}

/* sums (BLOCK, BLOCK) = a block of A times a block of B. A tile multiplication sums its 32 products before it
 * adds them to the total: six roundings of the total, where a sequential sum has 32. The asm clobbers memory
 * because the compiler does not know that tiles read it. */
static void multiply(const uint16_t *a, const uint16_t *b, int64_t steps, float sums[BLOCK * BLOCK],
                     Beside *beside) {
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = 0; step < steps; step++, a += STEP, b += STEP) {
        load_left(a, 2);
        load_right(b, 0);
        multiply_tiles(beside);
        load_left(a, 1);
        multiply_tiles(beside);
        load_right(b, 1);
        multiply_tiles(beside);
        load_left(a, 0);
        multiply_tiles(beside);
        load_right(b, 2);
        multiply_tiles(beside);
        load_right(b, 0);
        multiply_tiles(beside);
    }
    _tile_stored(0, sums, 4 * BLOCK);
    _tile_stored(1, sums + AMX_SIDE, 4 * BLOCK);
    _tile_stored(2, sums + AMX_SIDE * BLOCK, 4 * BLOCK);
    _tile_stored(3, sums + AMX_SIDE * BLOCK + AMX_SIDE, 4 * BLOCK);
    __asm__ volatile("" ::: "memory");
}

/* ---- a product ---- */

/* A product whose operands both fit. The operand with the shorter side is packed completely, by all threads.
 * Each thread packs panels of the other operand for itself, multiplies a panel by all blocks of the first
 * operand, and meanwhile packs its next panel. */
typedef struct {
    const Gemm *g;
    const GemmFinish *finish;
    Operand kept, other;
    bool kept_left; // the completely packed operand is A
    int64_t steps;
    uint16_t *values; // values of the completely packed operand
} Product;

/* Returns the packed panel that begins at `at`, and starts to pack the next one of this thread's share. */
static const uint16_t *panel_of(const Product *p, int64_t at, int64_t last, uint16_t *panels, Beside *b) {
    const int64_t blocks = pieces(p->kept.side, BLOCK), panel = at / blocks, next = (panel + 1) * blocks;
    const int64_t slots = SLOTS * p->steps * (least(next, last) - at);
    while (b->packer.next < b->slices) pack_slice(&b->packer);
    b->packer.to = panels + (panel + 1) % 2 * p->steps * STEP;
    b->packer.block = panel + 1;
    b->packer.next = next < last ? 0 : b->slices;
    b->rate = pieces(WHOLE * b->slices, slots);
    b->credit = 0;
    return panels + panel % 2 * p->steps * STEP;
}

/* Computes blocks [first, last) of C, panel by panel. `panels` has memory for two. */
static void multiply_share(const Product *p, int64_t first, int64_t last, uint16_t *panels) {
    float sums[2][BLOCK * BLOCK] __attribute__((aligned(LINE)));
    const int64_t blocks = pieces(p->kept.side, BLOCK), panel = first / blocks;
    const uint16_t *packed = NULL;
    Beside b = {.g = p->g, .finish = p->finish, .slices = p->steps * SLICES};
    b.packer.o = &p->other;
    b.packer.to = panels + panel % 2 * p->steps * STEP;
    b.packer.block = panel;
    for (int64_t at = first; at < last; at++) {
        if (at == first || at % blocks == 0) packed = panel_of(p, at, last, panels, &b);
        const uint16_t *kept = p->values + at % blocks * p->steps * STEP;
        const int64_t row = BLOCK * (p->kept_left ? at % blocks : at / blocks);
        const int64_t column = BLOCK * (p->kept_left ? at / blocks : at % blocks);
        b.ahead = (row - b.row) * p->g->ldc + column - b.column;
        multiply(p->kept_left ? kept : packed, p->kept_left ? packed : kept, p->steps, sums[at % 2], &b);
        while (b.row < b.rows) finish_next_row(&b);
        b.row = row, b.rows = least(p->g->m, row + BLOCK), b.column = column, b.sums = sums[at % 2];
    }
    while (b.row < b.rows) finish_next_row(&b);
}

/* Packs a step of a block of the completely packed operand. */
static void pack_kept(const Product *p, int64_t block, int64_t step, Packer *packer) {
    packer->o = &p->kept;
    packer->to = p->values + block * p->steps * STEP;
    packer->block = block;
    for (packer->next = step * SLICES; packer->next < (step + 1) * SLICES;) pack_slice(packer);
}

static void run(const Ctx *ctx, const Gemm *g, const GemmFinish *finish, AmxPacked *packed) {
    const int64_t steps = pieces(g->k, AMX_DEPTH), panel = steps * STEP, threads = cpu_threads(ctx);
    const Operand a = {g->a, g->m, g->k, g->lda, g->transpose_a, false};
    const Operand b = {g->b, g->n, g->k, g->ldb, !g->transpose_b, true};
    Product p = {g, finish, a, b, true, steps, NULL};
    if (g->n < g->m) p.kept = b, p.other = a, p.kept_left = false;
    const int64_t blocks = pieces(p.kept.side, BLOCK), all = blocks * pieces(p.other.side, BLOCK);
    packed->values = memory_grow(packed->values, &packed->room, (blocks + 2 * threads) * panel + TILE,
                                 sizeof *packed->values);
    p.values = packed->values + (-(uintptr_t)packed->values % LINE) / sizeof *packed->values;
#pragma omp parallel num_threads(threads)
    {
        Packer packer;
        amx_begin();
#pragma omp for schedule(static)
        for (int64_t step = 0; step < blocks * steps; step++)
            pack_kept(&p, step / steps, step % steps, &packer);
#pragma omp for schedule(static)
        for (int64_t share = 0; share < threads; share++)
            multiply_share(&p, all * share / threads, all * (share + 1) / threads,
                           p.values + (blocks + 2 * share) * panel);
        _tile_release();
    }
}

bool gemm_amx_serves(const Gemm *g) {
    const bool plain = g->a_dtype == F32 && g->b_dtype == F32 && g->c_dtype == F32 && g->batch <= 1 &&
                       g->alpha == 1 && (g->beta == 0 || g->beta == 1);
    return plain && g->k > 0 && g->m >= LEAST_ROWS && (double)g->m * (double)g->n * (double)g->k >= LEAST &&
           amx_ready();
}

/* Divides the product so that packed data fits in a cache; C carries the sums from one part of the depth to
 * the next. */
void gemm_amx_run(Ctx *ctx, const Gemm *g, const GemmFinish *finish, AmxPacked *packed) {
    const bool keeps_b = g->n < g->m; // must match what run() decides for each part
    const int64_t depth = part_of(g->k, DEPTH_MOST, AMX_DEPTH), kept = least(g->m, g->n);
    const int64_t side = part_of(kept, KEPT_MOST / depth, BLOCK);
    for (int64_t first = 0; first < kept; first += side)
        for (int64_t from = 0; from < g->k; from += depth) {
            const int64_t row = keeps_b ? 0 : first, column = keeps_b ? first : 0;
            const GemmFinish none = {0};
            Gemm one = *g;
            GemmFinish rest = from + depth < g->k ? none : *finish;
            one.m = least(g->m - row, keeps_b ? g->m : side);
            one.n = least(g->n - column, keeps_b ? side : g->n);
            one.k = least(g->k - from, depth);
            one.a = (const float *)g->a + (g->transpose_a ? from * g->lda + row : row * g->lda + from);
            one.b = (const float *)g->b + (g->transpose_b ? column * g->ldb + from : from * g->ldb + column);
            one.c = (float *)g->c + row * g->ldc + column;
            if (from > 0) one.beta = 1;
            if (rest.bias) rest.bias = (const float *)rest.bias + column;
            if (rest.added) rest.added = (const float *)rest.added + row * g->ldc + column;
            run(ctx, &one, &rest, packed);
        }
}

#endif
