#include "kernels/gemm/cpu_amx.h"

#ifdef __AMX_BF16__

#include "base/memory.h"
#include "kernels/device/amx.h"
#include "kernels/simd.h"

#include <immintrin.h>
#include <omp.h>

enum { PARTS = 3, TILE = AMX_SIDE * AMX_DEPTH }; // elements of a tile
enum { PAIR = 2, BLOCK = PAIR * AMX_SIDE };      // tiles of a block of C each way; rows and columns of it
enum { STEP = PAIR * PARTS * TILE };             // elements of a block of an operand, one tile deep
enum { LINE = 64, AHEAD = 4 };                   // bytes of a cache line; steps that packing asks ahead
#ifndef DEPTH_MOST
enum { DEPTH_MOST = 832 };      // of a part of a product: a packed panel, 156 KiB, stays in the second cache
enum { KEPT_MOST = 196 << 10 }; // elements of the packed operand, 1.2 MB, that stay there with it
#endif
enum { LEAST_ROWS = 24, LEAST = 1 << 20 }; // smaller products are not worth the packing

static int64_t pieces(int64_t count, int64_t of) {
    return (count + of - 1) / of;
}

static int64_t least(int64_t x, int64_t y) {
    return x < y ? x : y;
}

/* The size of equal parts of at most `most`, both whole multiples of `of`. */
static int64_t part_of(int64_t count, int64_t most, int64_t of) {
    const int64_t parts = pieces(count, most > of ? most / of * of : of);
    return pieces(pieces(count, parts), of) * of;
}

/* ---- memory that is needed soon ---- */

/* Rows of a matrix, of which a few lines are asked for at a time, while other work is done. */
typedef struct {
    const char *row;
    int64_t rows, stride, width, at; // bytes; of which `at` were asked for
} Ahead;

static inline void ask(Ahead *ahead, int64_t lines) {
    for (; lines > 0 && ahead->rows > 0; lines--) {
        _mm_prefetch(ahead->row + ahead->at, _MM_HINT_T1);
        ahead->at += LINE;
        if (ahead->at < ahead->width) continue;
        ahead->at = 0;
        ahead->row += ahead->stride;
        ahead->rows--;
    }
}

/* ---- operands ---- */

typedef struct {
    const float *from;
    int64_t side, depth; // rows of A or columns of B; what is summed over
    int64_t stride;      // of `from`'s rows
    bool across;         // which are runs of the side, not of the depth
    bool pairs;          // B
} Operand;

static __mmask16 mask_of(int64_t count) {
    return (__mmask16)(count >= AMX_SIDE ? 0xFFFF : count > 0 ? (1u << count) - 1 : 0);
}

static __m512 widened(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* The three parts of 32 numbers. */
static inline void split(__m512 low, __m512 high, __m512i parts[PARTS]) {
    for (int p = 0; p < PARTS; p++) {
        parts[p] = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        low = _mm512_sub_ps(low, widened(_mm512_castsi512_si256(parts[p])));
        high = _mm512_sub_ps(high, widened(_mm512_extracti64x4_epi64(parts[p], 1)));
    }
}

/* 16 rows of 32 numbers as a tile of rows for each part; tiles of one half of a block lie PAIR apart. */
static void pack_rows(const Operand *o, int64_t first, int64_t depth, uint16_t *tiles, int64_t apart) {
    const __mmask16 low = mask_of(o->depth - depth), high = mask_of(o->depth - depth - AMX_SIDE);
    for (int64_t i = 0; i < AMX_SIDE; i++) {
        const bool there = first + i < o->side;
        const float *x = o->from + (there ? first + i : 0) * o->stride + depth;
        __m512i parts[PARTS];
        _mm_prefetch(x + AHEAD * AMX_DEPTH, _MM_HINT_T0);
        _mm_prefetch(x + AHEAD * AMX_DEPTH + AMX_SIDE, _MM_HINT_T0);
        split(_mm512_maskz_loadu_ps(there ? low : 0, x),
              _mm512_maskz_loadu_ps(there ? high : 0, x + AMX_SIDE), parts);
        for (int p = 0; p < PARTS; p++) _mm512_storeu_si512(tiles + p * apart + i * AMX_DEPTH, parts[p]);
    }
}

/* 32 rows of 16 numbers as a tile of pairs for each part. */
static void pack_pairs(const Operand *o, int64_t first, int64_t depth, uint16_t *tiles, int64_t apart) {
    const __mmask16 mask = mask_of(o->side - first);
    uint16_t order[AMX_DEPTH]; // a pair: a number of the first row and the one below it
    for (int c = 0; c < AMX_DEPTH; c++) order[c] = (uint16_t)(c / 2 + c % 2 * AMX_SIDE);
    const __m512i pairs = _mm512_loadu_si512(order);
    for (int64_t i = 0; i < AMX_SIDE; i++) {
        const int64_t row = depth + 2 * i;
        const float *x = o->from + (row < o->depth ? row : 0) * o->stride + first;
        const float *y = row + 1 < o->depth ? x + o->stride : x;
        __m512i parts[PARTS];
        _mm_prefetch(x + AHEAD * AMX_DEPTH * o->stride, _MM_HINT_T0);
        _mm_prefetch(y + AHEAD * AMX_DEPTH * o->stride, _MM_HINT_T0);
        split(_mm512_maskz_loadu_ps(row < o->depth ? mask : 0, x),
              _mm512_maskz_loadu_ps(row + 1 < o->depth ? mask : 0, y), parts);
        for (int p = 0; p < PARTS; p++)
            _mm512_storeu_si512(tiles + p * apart + i * AMX_DEPTH, _mm512_permutexvar_epi16(pairs, parts[p]));
    }
}

/* A step of a block, as (part, half of the block) tiles: as its memory lies, and then turned where the other
 * form is wanted: a pair is a word. */
static void pack_step(const Operand *o, int64_t block, int64_t step, uint16_t *to) {
    uint16_t turned[PARTS * TILE] __attribute__((aligned(LINE)));
    const bool turn = o->across != o->pairs;
    for (int64_t half = 0; half < PAIR; half++, to += TILE) {
        (o->across ? pack_pairs : pack_rows)(o, block * BLOCK + half * AMX_SIDE, step * AMX_DEPTH,
                                             turn ? turned : to, turn ? TILE : PAIR * TILE);
        for (int p = 0; p < PARTS && turn; p++)
            amx_transpose(turned + p * TILE, AMX_SIDE, to + p * PAIR * TILE, AMX_SIDE);
    }
}

/* What packing a block will read. */
static Ahead ahead_of(const Operand *o, int64_t block) {
    const int64_t first = block * BLOCK, side = least(o->side - first, BLOCK), bytes = sizeof *o->from;
    if (side <= 0) return (Ahead){0};
    return o->across ? (Ahead){(const char *)(o->from + first), o->depth, o->stride * bytes, side * bytes, 0}
                     : (Ahead){(const char *)(o->from + first * o->stride), side, o->stride * bytes,
                               o->depth * bytes, 0};
}

/* ---- a block of C ---- */

/* Tiles 0 to 3 are sums, 4 and 5 a part of A, 6 and 7 one of B. */
static inline void load_left(const uint16_t *step, int part) {
    _tile_loadd(4, step + part * PAIR * TILE, LINE);
    _tile_loadd(5, step + part * PAIR * TILE + TILE, LINE);
}

static inline void load_right(const uint16_t *step, int part) {
    _tile_loadd(6, step + part * PAIR * TILE, LINE);
    _tile_loadd(7, step + part * PAIR * TILE + TILE, LINE);
}

static inline void multiply_tiles(void) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* sums (BLOCK, BLOCK) = the product of a block of A and one of B; a few lines are asked for in each step. A
 * multiplication sums its 32 products before it adds them: six roundings at the place of the whole sum,
 * where a plain sum has 32. The compiler does not know that tiles read memory. */
static void multiply(const uint16_t *a, const uint16_t *b, int64_t steps, Ahead ahead[2],
                     const int64_t lines[2], float sums[BLOCK * BLOCK]) {
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = 0; step < steps; step++, a += STEP, b += STEP) {
        load_left(a, 2);
        load_right(b, 0);
        multiply_tiles();
        load_left(a, 1);
        multiply_tiles();
        load_right(b, 1);
        multiply_tiles();
        ask(&ahead[0], lines[0]);
        load_left(a, 0);
        multiply_tiles();
        load_right(b, 2);
        multiply_tiles();
        ask(&ahead[1], lines[1]);
        load_right(b, 0);
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

/* One whose operands both fit. The one with the shorter side is packed whole, by all threads; of the other
 * one a thread packs a panel for itself, multiplies all blocks of the first with it, and meanwhile asks for
 * the next panel's memory. */
typedef struct {
    const Gemm *g;
    const GemmFinish *finish;
    Operand kept, other;
    bool kept_left; // the kept one is A
    int64_t steps;
    uint16_t *values; // of the kept one
} Product;

static void finish_block(const Product *p, int64_t i, int64_t j, const float *sums) {
    if (j * BLOCK + BLOCK <= p->g->n)
        finish_rows(p->g, p->finish, i * BLOCK, j * BLOCK, sums, BLOCK);
    else
        finish_rows(p->g, p->finish, i * BLOCK, j * BLOCK, sums, p->g->n - j * BLOCK);
}

/* Blocks [first, last) of the kept operand with a panel of the other one. */
static void multiply_panel(const Product *p, int64_t panel, const uint16_t *packed, const int64_t blocks[2],
                           Ahead next) {
    float sums[BLOCK * BLOCK] __attribute__((aligned(LINE)));
    enum { LINES = BLOCK * BLOCK * sizeof(float) / LINE };
    const int64_t each = pieces(next.rows * pieces(next.width, LINE), (blocks[1] - blocks[0]) * p->steps);
    const int64_t lines[2] = {each, pieces(LINES, p->steps)};
    Ahead ahead[2] = {next};
    for (int64_t block = blocks[0]; block < blocks[1]; block++) {
        const int64_t i = p->kept_left ? block : panel, j = p->kept_left ? panel : block;
        const uint16_t *kept = p->values + block * p->steps * STEP;
        ahead[1] = (Ahead){(char *)((float *)p->g->c + i * BLOCK * p->g->ldc + j * BLOCK),
                           least(p->g->m - i * BLOCK, BLOCK), p->g->ldc * (int64_t)sizeof(float),
                           BLOCK * sizeof(float), 0};
        multiply(p->kept_left ? kept : packed, p->kept_left ? packed : kept, p->steps, ahead, lines, sums);
        finish_block(p, i, j, sums);
    }
}

/* A thread's share of the blocks of C, panel by panel. */
static void multiply_share(const Product *p, int64_t first, int64_t last, uint16_t *packed) {
    const int64_t blocks = pieces(p->kept.side, BLOCK);
    while (first < last) {
        const int64_t panel = first / blocks, from = first % blocks, to = least(blocks, from + last - first);
        first += to - from;
        for (int64_t step = 0; step < p->steps; step++)
            pack_step(&p->other, panel, step, packed + step * STEP);
        multiply_panel(p, panel, packed, (int64_t[]){from, to},
                       first < last ? ahead_of(&p->other, panel + 1) : (Ahead){0});
    }
}

static void run(const Ctx *ctx, const Gemm *g, const GemmFinish *finish, AmxPacked *packed) {
    const int64_t steps = pieces(g->k, AMX_DEPTH), panel = steps * STEP, threads = cpu_threads(ctx);
    const Operand a = {g->a, g->m, g->k, g->lda, g->transpose_a, false};
    const Operand b = {g->b, g->n, g->k, g->ldb, !g->transpose_b, true};
    Product p = {g, finish, a, b, true, steps, NULL};
    if (g->n < g->m) p.kept = b, p.other = a, p.kept_left = false;
    const int64_t blocks = pieces(p.kept.side, BLOCK), all = blocks * pieces(p.other.side, BLOCK);
    packed->values =
        memory_grow(packed->values, &packed->room, (blocks + threads) * panel + TILE, sizeof *packed->values);
    p.values = packed->values + (-(uintptr_t)packed->values % LINE) / sizeof *packed->values;
#pragma omp parallel num_threads(threads)
    {
        const int64_t thread = omp_get_thread_num(), first = all * thread / threads;
        Ahead mine = ahead_of(&p.other, first / blocks);
        const int64_t lines = pieces(mine.rows * pieces(mine.width, LINE), pieces(blocks * steps, threads));
        amx_begin();
#pragma omp for schedule(static)
        for (int64_t step = 0; step < blocks * steps; step++) {
            pack_step(&p.kept, step / steps, step % steps, p.values + step * STEP);
            ask(&mine, lines);
        }
        multiply_share(&p, first, all * (thread + 1) / threads, p.values + (blocks + thread) * panel);
        _tile_release();
    }
}

bool gemm_amx_serves(const Gemm *g) {
    const bool plain = g->a_dtype == F32 && g->b_dtype == F32 && g->c_dtype == F32 && g->batch <= 1 &&
                       g->alpha == 1 && (g->beta == 0 || g->beta == 1);
    return plain && g->k > 0 && g->m >= LEAST_ROWS && (double)g->m * (double)g->n * (double)g->k >= LEAST &&
           amx_ready();
}

/* In parts, so that what is packed fits into a cache; C carries the sums from one depth to the next. */
void gemm_amx_run(Ctx *ctx, const Gemm *g, const GemmFinish *finish, AmxPacked *packed) {
    const int64_t depth = part_of(g->k, DEPTH_MOST, AMX_DEPTH), kept = least(g->m, g->n);
    const int64_t side = part_of(kept, KEPT_MOST / depth, BLOCK);
    for (int64_t first = 0; first < kept; first += side)
        for (int64_t from = 0; from < g->k; from += depth) {
            const int64_t row = g->n < g->m ? 0 : first, column = g->n < g->m ? first : 0;
            const GemmFinish none = {0};
            Gemm one = *g;
            GemmFinish rest = from + depth < g->k ? none : *finish;
            one.m = g->n < g->m ? g->m : least(g->m - row, side);
            one.n = g->n < g->m ? least(g->n - column, side) : g->n;
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
