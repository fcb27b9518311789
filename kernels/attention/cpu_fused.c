/* attention in blocks of queries and keys, with an online softmax. */
#include "kernels/attention/cpu_amx.h"
#include "kernels/attention/cpu_blocks.h"
#include "kernels/device/amx.h"
#include "kernels/real.h"

#include <omp.h>

/* Dao et al. 2022, algorithms 1 and 4: nothing of size T x S is stored. Scores are stored transposed, (keys,
 * queries), so that a block's softmax runs along vectors of queries and needs no horizontal sums. One thread
 * computes a whole block of queries, or in the backward pass a whole key/value head, so the result does not
 * depend on the number of threads. Tiles are fp32 for every dtype, except with AMX (cpu_amx.h). */

/* A block of at most this many queries would be mostly empty, so each query runs over its keys alone. */
enum { FEW_QUERIES = 4 };

/* Row i of batch row b of a (B, T, heads*D) tensor, at the first column of head h. */
static stored *query_row(const AttentionProblem *p, Tensor t, int64_t b, int64_t h, int64_t i) {
    return stored_row(t, b * p->queries + i) + h * p->size;
}

static stored *key_row(const AttentionProblem *p, Tensor t, int64_t b, int64_t kv_head, int64_t j) {
    return stored_row(t, b * p->key_rows + j) + kv_head * p->size;
}

/* to (width, QUERY_BLOCK) = scale * from (rows, width)^T; columns from `rows` on become zero. */
static void transpose(const stored *from, int64_t stride, int64_t rows, int64_t width, float scale,
                      float *to) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < width; d++) to[d * QUERY_BLOCK + i] = scale * load(from[i * stride + d]);
    if (rows == QUERY_BLOCK) return;
    for (int64_t d = 0; d < width; d++)
        memset(to + d * QUERY_BLOCK + rows, 0, (size_t)(QUERY_BLOCK - rows) * sizeof *to);
}

/* to (rows, padded) = from (rows, width); columns from `width` on become zero. */
static void pack(const stored *from, int64_t stride, int64_t rows, int64_t width, float *to, int64_t padded) {
    for (int64_t i = 0; i < rows; i++) {
#pragma omp simd
        for (int64_t d = 0; d < width; d++) to[i * padded + d] = load(from[i * stride + d]);
        memset(to + i * padded + width, 0, (size_t)(padded - width) * sizeof *to);
    }
}

/* A view of fp32 rows. */
typedef struct {
    const float *data;
    int64_t stride;
} Rows;

/* Rows of fp32 in whole tiles are used in place; others are copied to `packed`. */
static Rows rows_of(const AttentionProblem *p, const stored *from, int64_t stride, int64_t rows,
                    float *packed) {
    if (STORED_DTYPE == F32 && p->size == p->padded) return (Rows){(const void *)from, stride};
    pack(from, stride, rows, p->size, packed, p->padded);
    return (Rows){packed, p->padded};
}

static void write_row(const float *from, int64_t width, stored *to) {
#pragma omp simd
    for (int64_t d = 0; d < width; d++) to[d] = store(from[d]);
}

/* Query i of head h in batch row b, from its weighted values and the sum of its weights. */
static void write_outputs(const AttentionProblem *p, int64_t b, int64_t h, int64_t i, const float *values,
                          float maximum, float sum) {
    const AttentionForward *a = p->a;
    stored *y = query_row(p, a->y, b, h, i);
    const float inverse = sum == 0 ? 0 : 1 / sum;
#pragma omp simd
    for (int64_t d = 0; d < p->size; d++) y[d] = store(values[d] * inverse);
    if (!tensor_empty(a->lse)) float_row(a->lse, b * p->heads + h)[i] = maximum + logf(sum);
}

static int64_t forward_floats(const AttentionProblem *p) {
    return QUERY_BLOCK * (p->size + KEY_BLOCK + 2 * p->padded);
}

/* Computes queries [first, first + QUERY_BLOCK) of head h in batch row b. */
static void forward_block(const AttentionProblem *p, int64_t b, int64_t h, int64_t first, float *scratch) {
    const AttentionForward *a = p->a;
    int64_t count = p->queries - first < QUERY_BLOCK ? p->queries - first : QUERY_BLOCK, kv = h / p->group;
    float *queries = carve(&scratch, p->size * QUERY_BLOCK);  // (D, queries), scaled
    float *scores = carve(&scratch, KEY_BLOCK * QUERY_BLOCK); // (keys, queries)
    float *block = carve(&scratch, KEY_BLOCK * p->padded);    // (keys, D): keys, then values
    float *sums = carve(&scratch, QUERY_BLOCK * p->padded);   // (queries, D)
    RunningSoftmax running;
    softmax_begin(&running);
    memset(sums, 0, (size_t)(QUERY_BLOCK * p->padded) * sizeof *sums);
    transpose(query_row(p, a->q, b, h, first), a->q.stride, count, p->size, (float)a->scale, queries);
    for (int64_t j = attention_first_block(p, b, first), end = attention_visible(p, b, first + count - 1);
         j < end; j += KEY_BLOCK) {
        int64_t keys = end - j < KEY_BLOCK ? end - j : KEY_BLOCK;
        const Rows k = rows_of(p, key_row(p, p->k, b, kv, j), p->k.stride, keys, block);
        score_product(keys, p->size, (TileView){k.data, k.stride, 1}, queries, scores);
        attention_mask(p, b, first, j, keys, scores);
        softmax_step(&running, keys, scores);
        attention_drop(p, b, h, first, j, count, keys, scores);
        for (int64_t i = 0; i < count; i++)
#pragma omp simd
            for (int64_t d = 0; d < p->padded; d++) sums[i * p->padded + d] *= running.correction[i];
        const Rows v = rows_of(p, key_row(p, p->v, b, kv, j), p->v.stride, keys, block);
        tile_product(count, p->padded, keys, (TileView){scores, 1, QUERY_BLOCK}, v.data, v.stride, sums,
                     p->padded, true);
    }
    for (int64_t i = 0; i < count; i++)
        write_outputs(p, b, h, first + i, sums + i * p->padded, running.maximum[i], running.sum[i]);
}

static float dot(const stored *x, const stored *y, int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < count; d++) sum += load(x[d]) * load(y[d]);
    return sum;
}

static int64_t query_floats(const AttentionProblem *p) {
    return KEY_BLOCK * (1 + LANES) + p->padded * (2 + KEY_BLOCK);
}

/* A view of a head's rows of one block, in whole tiles: in place, or else copied. A single query reads each
 * of them once, so widening them to fp32 in memory first would take as long as the products. */
typedef struct {
    const stored *data;
    int64_t stride;
} StoredRows;

static StoredRows stored_rows(const AttentionProblem *p, const stored *from, int64_t stride, int64_t rows,
                              stored *packed) {
    if (p->size == p->padded) return (StoredRows){from, stride};
    memset(packed, 0, (size_t)(rows * p->padded) * sizeof *packed);
    for (int64_t i = 0; i < rows; i++)
        memcpy(packed + i * p->padded, from + i * stride, (size_t)p->size * sizeof *packed);
    return (StoredRows){packed, p->padded};
}

static void prefetch_row(const stored *row, int64_t width) {
    enum { LINE = 64 };
    for (int64_t d = 0; d < width; d += LINE / (int64_t)sizeof *row) __builtin_prefetch(row + d);
}

/* The scores of one query, in the order of score_product. Meanwhile later keys, and the block's values from
 * `v` on, come to the caches: rows of a head are too far apart for the hardware to prefetch them. */
static void query_scores(const AttentionProblem *p, const float *query, StoredRows k, const stored *v,
                         int64_t keys, float *parts, float *scores) {
    enum { AHEAD = 8 };
    for (int64_t j = 0; j < keys; j++) {
        Lanes part = {0};
        prefetch_row(k.data + (j + AHEAD) * k.stride, p->size);
        prefetch_row(v + j * p->v.stride, p->size);
        for (int64_t d = 0; d < p->padded; d += LANES)
            part += load_lanes(k.data + j * k.stride + d) * *(const LanesView *)(query + d);
        *(LanesView *)(parts + j * LANES) = part;
    }
    for (int64_t j = 0; j < keys; j++) {
        float sum = 0;
        for (int l = 0; l < LANES; l++) sum += parts[j * LANES + l];
        scores[j] = sum;
    }
}

/* sums += the weighted values of one query, in the order of tile_product. `vectors` is a constant after
 * inlining. */
static inline __attribute__((always_inline)) void value_columns(const int vectors, const float *weights,
                                                                StoredRows v, int64_t keys, float *sums) {
    Lanes sum[TILE_VECTORS];
    for (int l = 0; l < vectors; l++) sum[l] = *(const LanesView *)(sums + l * LANES);
    for (int64_t j = 0; j < keys; j++)
        for (int l = 0; l < vectors; l++)
            sum[l] += weights[j] * load_lanes(v.data + j * v.stride + l * LANES);
    for (int l = 0; l < vectors; l++) *(LanesView *)(sums + l * LANES) = sum[l];
}

static void query_values(const AttentionProblem *p, const float *weights, StoredRows v, int64_t keys,
                         float *sums) {
    int64_t d = 0;
    for (; d + TILE_WIDTH <= p->padded; d += TILE_WIDTH)
        value_columns(TILE_VECTORS, weights, (StoredRows){v.data + d, v.stride}, keys, sums + d);
    for (; d < p->padded; d += LANES)
        value_columns(1, weights, (StoredRows){v.data + d, v.stride}, keys, sums + d);
}

/* forward_block for one query, as in decoding, with the same bits, because most queries of a block would be
 * absent. */
static void forward_query(const AttentionProblem *p, int64_t b, int64_t h, int64_t i, float *scratch) {
    const AttentionForward *a = p->a;
    float *scores = carve(&scratch, KEY_BLOCK), *parts = carve(&scratch, KEY_BLOCK * LANES);
    float *query = carve(&scratch, p->padded), *sums = carve(&scratch, p->padded);
    stored *block = (stored *)carve(&scratch, KEY_BLOCK * p->padded);
    const stored *q = query_row(p, a->q, b, h, i);
    int64_t start = attention_first_key(a, b, i), end = attention_visible(p, b, i), kv = h / p->group;
    float maximum = -INFINITY, sum = 0;
    memset(query, 0, (size_t)p->padded * sizeof *query);
    memset(sums, 0, (size_t)p->padded * sizeof *sums);
    for (int64_t d = 0; d < p->size; d++) query[d] = (float)a->scale * load(q[d]);
    for (int64_t j = attention_first_block(p, b, i); j < end; j += KEY_BLOCK) {
        int64_t keys = end - j < KEY_BLOCK ? end - j : KEY_BLOCK;
        query_scores(p, query, stored_rows(p, key_row(p, p->k, b, kv, j), p->k.stride, keys, block),
                     key_row(p, p->v, b, kv, j), keys, parts, scores);
        for (int64_t key = 0; key < start - j && key < keys; key++) scores[key] = -INFINITY;
        const float correction = softmax_query(keys, scores, &maximum, &sum);
#pragma omp simd
        for (int64_t d = 0; d < p->padded; d++) sums[d] *= correction;
        query_values(p, scores, stored_rows(p, key_row(p, p->v, b, kv, j), p->v.stride, keys, block), keys,
                     sums);
    }
    write_outputs(p, b, h, i, sums, maximum, sum);
}

/* Rotates every head of one row of x by the angles whose cosines and sines are given. */
static void rotate_row(stored *x, int64_t width, const float *cosines, const float *sines, int64_t half) {
    for (int64_t first = 0; first < width; first += 2 * half) {
        stored *low = x + first, *high = low + half;
#pragma omp simd
        for (int64_t d = 0; d < half; d++) {
            float left = load(low[d]), right = load(high[d]);
            low[d] = store(left * cosines[d] - right * sines[d]);
            high[d] = store(right * cosines[d] + left * sines[d]);
        }
    }
}

/* All heads of a row share its cosines and sines: turns (D). */
static void rotate_token(const AttentionForward *a, Tensor q, Tensor k, float sign, int64_t row,
                         float *turns) {
    const int64_t half = tensor_width(a->frequencies), b = row / q.shape.d[1], t = row % q.shape.d[1];
    const float *frequencies = a->frequencies.data;
    float *cosines = turns, *sines = turns + half;
    float position = (float)(attention_past(a, b) + t - attention_first_key(a, b, t));
    for (int64_t d = 0; d < half; d++) {
        float angle = position * frequencies[d];
        cosines[d] = cosf(angle);
        sines[d] = sign * sinf(angle);
    }
    rotate_row(stored_row(q, row), tensor_width(q), cosines, sines, half);
    rotate_row(stored_row(k, row), tensor_width(k), cosines, sines, half);
}

/* Rotates q and k in place, or rotates their gradients back, so that keys are not rotated again for every
 * block of queries. */
static Status rotate(Ctx *ctx, const AttentionForward *a, Tensor q, Tensor k, float sign) {
    if (tensor_empty(a->frequencies)) return OK;
    const int64_t half = tensor_width(a->frequencies), rows = tensor_rows(q);
    Tensor turns; // (threads, D): cosines, sines
    TRY(take(ctx, ARENA_SCRATCH, "attention.turns", F32, shape2(cpu_threads(ctx), 2 * half), &turns));
    PRIMITIVE (ctx, sign > 0 ? "rotary positions" : "rotary gradient", ELEMENTWISE)
        SIMD_EACH_ROW(i, rows, rotate_token(a, q, k, sign, i, float_row(turns, omp_get_thread_num())));
    return OK;
}

static void append(const AttentionProblem *p, Tensor from, Tensor cache) {
    size_t bytes = (size_t)tensor_width(from) * sizeof(stored);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t t = 0; t < p->queries; t++)
            memcpy(stored_row(cache, b * p->key_rows + attention_past(p->a, b) + t),
                   stored_row(from, b * p->queries + t), bytes);
}

static bool on_tiles(void) {
    return STORED_DTYPE == BF16 && amx_ready && amx_ready();
}

static Status attention_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const AttentionForward *a = contract;
    const AttentionProblem p = attention_problem(ctx, a);
    const bool few = p.queries <= FEW_QUERIES && !p.drops, tiles = on_tiles();
    const bool same = tiles && ctx->fuses & FUSE_INVARIANT; // a few queries have the bits of a block
    int64_t blocks = few ? p.queries : pieces(p.queries, QUERY_BLOCK);
    int64_t pairs = p.batch * p.heads;
    int64_t floats = tiles ? amx_forward_floats(&p) : forward_floats(&p);
    if (few) floats = same ? amx_query_floats(&p) : query_floats(&p);
    Tensor scratch; // (threads, floats)
    TRY(take(ctx, ARENA_SCRATCH, "attention.scratch", F32, shape2(cpu_threads(ctx), floats), &scratch));
    TRY(rotate(ctx, a, a->q, a->k, 1));
    if (!tensor_empty(a->cache_k)) {
        PRIMITIVE (ctx, "cache", MEMORY) {
            append(&p, a->k, a->cache_k);
            append(&p, a->v, a->cache_v);
        }
    }
    PRIMITIVE (ctx, "flash attention", ATTENTION, torch_none(), &a->lse) {
        /* The last blocks see the most keys. They run first, so that no thread is left with a long block at
         * the end. */
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(dynamic)
        for (int64_t item = 0; item < pairs * blocks; item++) {
            int64_t block = blocks - 1 - item / pairs, b = item % pairs / p.heads, h = item % p.heads;
            float *own = float_row(scratch, omp_get_thread_num());
            if (few)
                (same ? amx_forward_query : forward_query)(&p, b, h, block, own);
            else
                (tiles ? amx_forward_block : forward_block)(&p, b, h, block * QUERY_BLOCK, own);
        }
    }
    return OK;
}
SLOT(ATTENTION, FORWARD, CPU, FUSED, STORED_DTYPE, attention_forward_cpu_fused);

/* Scratch of one thread in the backward pass. */
typedef struct {
    float *queries, *queries_across; // (queries, D) and (D, queries), the latter scaled
    float *dy, *dy_across;           // the same shapes, unscaled
    float *weights, *dscores;        // (keys, queries)
    float *keys, *values, *dq;       // (keys, D), (keys, D), (queries, D)
    float *dk, *dv;                  // (S, D), sums over all queries of the group
    float *lse, *delta;              // (queries)
} Backward;

static int64_t backward_floats(const AttentionProblem *p) {
    return QUERY_BLOCK * (2 * p->size + 2 * KEY_BLOCK + 5 * p->padded + 2) + 2 * p->keys * p->padded;
}

static Backward backward_scratch(const AttentionProblem *p, float *scratch) {
    int64_t tile = QUERY_BLOCK * p->padded, across = p->size * QUERY_BLOCK, square = KEY_BLOCK * QUERY_BLOCK;
    return (Backward){.queries = carve(&scratch, tile),
                      .queries_across = carve(&scratch, across),
                      .dy = carve(&scratch, tile),
                      .dy_across = carve(&scratch, across),
                      .weights = carve(&scratch, square),
                      .dscores = carve(&scratch, square),
                      .keys = carve(&scratch, tile),
                      .values = carve(&scratch, tile),
                      .dq = carve(&scratch, tile),
                      .lse = carve(&scratch, QUERY_BLOCK),
                      .delta = carve(&scratch, QUERY_BLOCK),
                      .dk = carve(&scratch, p->keys * p->padded),
                      .dv = carve(&scratch, p->keys * p->padded)};
}

/* Processes a block of queries of head h: writes its dq and adds to dk and dv. */
static void backward_block(const AttentionProblem *p, const AttentionBackward *g, int64_t b, int64_t h,
                           int64_t first, const Backward *s) {
    const AttentionForward *a = p->a;
    int64_t count = p->queries - first < QUERY_BLOCK ? p->queries - first : QUERY_BLOCK, kv = h / p->group;
    const stored *q = query_row(p, a->q, b, h, first), *dy = query_row(p, g->dy, b, h, first);
    const Rows queries = rows_of(p, q, a->q.stride, count, s->queries);
    transpose(q, a->q.stride, count, p->size, (float)a->scale, s->queries_across);
    const Rows gradients = rows_of(p, dy, g->dy.stride, count, s->dy);
    transpose(dy, g->dy.stride, count, p->size, 1, s->dy_across);
    const float *lse = float_row(a->lse, b * p->heads + h) + first;
    for (int64_t i = 0; i < QUERY_BLOCK; i++) {
        /* For a query that sees no key, and for padding, exp(score - inf) = 0 makes every weight 0. */
        s->lse[i] = i < count && lse[i] != -INFINITY ? lse[i] : INFINITY;
        s->delta[i] = i < count ? dot(query_row(p, g->dy, b, h, first + i),
                                      query_row(p, a->y, b, h, first + i), p->size)
                                : 0;
    }
    memset(s->dq, 0, (size_t)(QUERY_BLOCK * p->padded) * sizeof *s->dq);
    for (int64_t j = attention_first_block(p, b, first), end = attention_visible(p, b, first + count - 1);
         j < end; j += KEY_BLOCK) {
        int64_t keys = end - j < KEY_BLOCK ? end - j : KEY_BLOCK, width = p->padded;
        const Rows k = rows_of(p, key_row(p, p->k, b, kv, j), p->k.stride, keys, s->keys);
        const Rows v = rows_of(p, key_row(p, p->v, b, kv, j), p->v.stride, keys, s->values);
        tile_product(keys, QUERY_BLOCK, p->size, (TileView){k.data, k.stride, 1}, s->queries_across,
                     QUERY_BLOCK, s->weights, QUERY_BLOCK, false);
        attention_mask(p, b, first, j, keys, s->weights);
        tile_product(keys, QUERY_BLOCK, p->size, (TileView){v.data, v.stride, 1}, s->dy_across, QUERY_BLOCK,
                     s->dscores, QUERY_BLOCK, false);
        attention_drop(p, b, h, first, j, count, keys, s->dscores);
        softmax_gradient(keys, (float)a->scale, s->lse, s->delta, s->weights, s->dscores);
        attention_drop(p, b, h, first, j, count, keys, s->weights);
        tile_product(keys, width, count, (TileView){s->weights, QUERY_BLOCK, 1}, gradients.data,
                     gradients.stride, s->dv + j * width, width, true);
        tile_product(keys, width, count, (TileView){s->dscores, QUERY_BLOCK, 1}, queries.data, queries.stride,
                     s->dk + j * width, width, true);
        tile_product(count, width, keys, (TileView){s->dscores, 1, QUERY_BLOCK}, k.data, k.stride, s->dq,
                     width, true);
    }
    for (int64_t i = 0; i < count; i++)
        write_row(s->dq + i * p->padded, p->size, query_row(p, g->dq, b, h, first + i));
}

/* Computes all gradients of one key/value head. */
static void backward_head(const AttentionProblem *p, const AttentionBackward *g, int64_t b, int64_t kv,
                          float *scratch) {
    const Backward s = backward_scratch(p, scratch);
    memset(s.dk, 0, (size_t)(p->keys * p->padded) * sizeof *s.dk);
    memset(s.dv, 0, (size_t)(p->keys * p->padded) * sizeof *s.dv);
    for (int64_t h = kv * p->group; h < (kv + 1) * p->group; h++)
        for (int64_t first = 0; first < p->queries; first += QUERY_BLOCK)
            backward_block(p, g, b, h, first, &s);
    for (int64_t j = 0; j < p->keys; j++) {
        write_row(s.dk + j * p->padded, p->size, key_row(p, g->dk, b, kv, j));
        write_row(s.dv + j * p->padded, p->size, key_row(p, g->dv, b, kv, j));
    }
}

static Status attention_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const AttentionBackward *g = contract;
    const AttentionProblem p = attention_problem(ctx, g->forward);
    const bool tiles = on_tiles();
    int64_t kv_heads = p.heads / p.group, floats = tiles ? amx_backward_floats(&p) : backward_floats(&p);
    Tensor scratch; // (threads, floats)
    TRY(take(ctx, ARENA_SCRATCH, "attention.scratch", F32, shape2(cpu_threads(ctx), floats), &scratch));
    PRIMITIVE (ctx, "flash attention", ATTENTION) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(dynamic)
        for (int64_t item = 0; item < p.batch * kv_heads; item++)
            (tiles ? amx_backward_head : backward_head)(&p, g, item / kv_heads, item % kv_heads,
                                                        float_row(scratch, omp_get_thread_num()));
    }
    return rotate(ctx, g->forward, g->dq, g->dk, -1);
}
SLOT(ATTENTION, BACKWARD, CPU, FUSED, STORED_DTYPE, attention_backward_cpu_fused);
