#include "kernels/attention/attention.h"
#include "kernels/dropout/mask.h"
#include "kernels/gemm/gemm.h"
#include "kernels/real.h"

#include <string.h>
#include <tgmath.h>

typedef struct {
    int64_t batch, queries, keys, heads, kv_heads, size; // B, T, S, heads, kv_heads, D
} Sizes;

static Sizes sizes_of(const AttentionForward *a) {
    int64_t past = tensor_empty(a->cache_k) ? 0 : a->past;
    return (Sizes){a->q.shape.d[0], a->q.shape.d[1], past + a->k.shape.d[1],
                   a->heads,        a->kv_heads,     a->q.shape.d[2] / a->heads};
}

/* The first position of the document that contains row t of batch row b. */
static int64_t start_of(const AttentionForward *a, int64_t b, int64_t t) {
    return tensor_empty(a->starts) ? 0 : ((const int32_t *)a->starts.data)[b * a->q.shape.d[1] + t];
}

/* Rotates the pairs of every head of x (B, T, heads*D). The angles are those of position past + t, or of t
 * within its document; `back` negates them. */
static void rotate(const Ctx *ctx, const AttentionForward *a, Tensor x, bool back) {
    int64_t half = tensor_width(a->frequencies), rows = x.shape.d[1];
    const real *frequency = a->frequencies.data;
    EACH (ctx, row, tensor_rows(x), tensor_width(x))
        for (int64_t first = 0; first < tensor_width(x); first += 2 * half)
            for (int64_t d = 0; d < half; d++) {
                stored *at = stored_row(x, row) + first + d;
                real low = load(at[0]), high = load(at[half]);
                int64_t b = row / rows, t = row % rows;
                int64_t position = attention_past(a, b) + t - start_of(a, b, t);
                real angle = (real)position * frequency[d];
                real cosine = cos(angle), sine = back ? -sin(angle) : sin(angle);
                at[0] = store(low * cosine - high * sine);
                at[half] = store(high * cosine + low * sine);
            }
}

static void append(const Ctx *ctx, const AttentionForward *a, Tensor x, Tensor cache) {
    int64_t batch = x.shape.d[0], rows = x.shape.d[1], width = x.shape.d[2], capacity = cache.shape.d[1];
    EACH (ctx, row, batch * rows, width) {
        int64_t b = row / rows;
        memcpy((stored *)cache.data + (b * capacity + attention_past(a, b) + row % rows) * width,
               stored_row(x, row), (size_t)width * sizeof(stored));
    }
}

/* (B, rows of x, heads*D) -> (B, heads, rows of split, D); a cache may have more rows than split. */
static void split_heads(const Ctx *ctx, Tensor x, Tensor split) {
    int64_t heads = split.shape.d[1], rows = split.shape.d[2], size = split.shape.d[3];
    EACH (ctx, head, split.shape.d[0] * heads, rows * size) {
        stored *out = (stored *)split.data + head * rows * size;
        for (int64_t t = 0; t < rows; t++, out += size)
            memcpy(out, stored_row(x, head / heads * x.shape.d[1] + t) + head % heads * size,
                   (size_t)size * sizeof(stored));
    }
}

/* Sets values that no query of their batch row sees to zero: the cache may hold anything there, and the
 * product multiplies it by 0. */
static void blank(const Ctx *ctx, const AttentionForward *a, const Sizes *s, Tensor v) {
    EACH (ctx, head, s->batch * s->kv_heads, s->keys * s->size) {
        int64_t seen = attention_past(a, head / s->kv_heads) + s->queries;
        memset((stored *)v.data + (head * s->keys + seen) * s->size, 0,
               (size_t)((s->keys - seen) * s->size) * sizeof(stored));
    }
}

static void merge_heads(const Ctx *ctx, Tensor split, Tensor y) {
    int64_t heads = split.shape.d[1], rows = split.shape.d[2], size = split.shape.d[3];
    EACH (ctx, head, split.shape.d[0] * heads, rows * size) {
        const stored *in = (const stored *)split.data + head * rows * size;
        for (int64_t t = 0; t < rows; t++, in += size)
            memcpy(stored_row(y, head / heads * rows + t) + head % heads * size, in,
                   (size_t)size * sizeof(stored));
    }
}

static Status take_heads(Ctx *ctx, const char *name, Dtype dtype, int64_t batch, int64_t heads, int64_t rows,
                         int64_t size, Tensor *split) {
    return take(ctx, ARENA_SCRATCH, name, dtype, shape4(batch, heads, rows, size), split);
}

/* The query heads that share a key head are adjacent, so their rows form one taller matrix: every product has
 * kv_heads * B batches, of (group * T, D), (S, D) and (group * T, S) matrices. */
static Gemm batched(Gemm g, const Sizes *s) {
    g.batch = s->batch * s->kv_heads;
    g.a_step = g.m * g.k;
    g.b_step = g.k * g.n;
    g.c_step = g.m * g.n;
    return g;
}

static Tensor rows_of(Tensor t, int64_t rows) {
    return tensor_view(t.data, t.dtype, shape2(rows, tensor_width(t)));
}

/* c (T, S) = a (T, D) b (S, D)^T */
static Status scores_product(Ctx *ctx, const Sizes *s, Tensor a, Tensor b, Tensor c) {
    int64_t rows = s->heads / s->kv_heads * s->queries;
    Gemm g = batched(gemm_forward(rows_of(a, rows), rows_of(b, s->keys), rows_of(c, rows), 0), s);
    return gemm(ctx, &g);
}

/* c (T, D) = p (T, S) b (S, D) */
static Status values_product(Ctx *ctx, const Sizes *s, Tensor p, Tensor b, Tensor c) {
    int64_t rows = s->heads / s->kv_heads * s->queries;
    Gemm g = batched(gemm_dinput(rows_of(p, rows), rows_of(b, s->keys), rows_of(c, rows), 0), s);
    return gemm(ctx, &g);
}

/* c (S, D) = p (T, S)^T a (T, D) */
static Status transposed_product(Ctx *ctx, const Sizes *s, Tensor p, Tensor a, Tensor c) {
    int64_t rows = s->heads / s->kv_heads * s->queries;
    Gemm g = batched(gemm_dweight(rows_of(p, rows), rows_of(a, rows), rows_of(c, s->keys), 0), s);
    return gemm(ctx, &g);
}

static void scale(const Ctx *ctx, real factor, int64_t count, stored *x) {
    EACH_ELEMENT (ctx, i, count) x[i] = store(factor * load(x[i]));
}

static void mask(const Ctx *ctx, const AttentionForward *a, const Sizes *s, stored *p) {
    const int32_t *key_lengths = tensor_empty(a->key_lengths) ? NULL : a->key_lengths.data;
    EACH (ctx, row, s->batch * s->heads * s->queries, s->keys) {
        int64_t b = row / (s->heads * s->queries), i = row % s->queries, first = start_of(a, b, i);
        stored *scores = p + row * s->keys;
        for (int64_t j = 0; j < s->keys; j++)
            if (j < first || (a->causal && j > i + attention_past(a, b)) ||
                (key_lengths && j >= key_lengths[b]))
                scores[j] = store(-(real)INFINITY);
    }
}

static void row_max(const Ctx *ctx, const stored *scores, int64_t rows, int64_t width, real *max) {
    EACH (ctx, i, rows, width) {
        real most = -(real)INFINITY;
#pragma omp simd reduction(max : most)
        for (int64_t j = i * width; j < (i + 1) * width; j++)
            most = load(scores[j]) > most ? load(scores[j]) : most;
        max[i] = most;
    }
}

/* A row that sees no key has the maximum -inf and gets zeros. */
static void exponentials(const Ctx *ctx, const real *max, int64_t rows, int64_t width, stored *scores) {
    EACH (ctx, i, rows, width)
#pragma omp simd
        for (int64_t j = i * width; j < (i + 1) * width; j++)
            scores[j] = store(max[i] == -(real)INFINITY ? 0 : real_exp(load(scores[j]) - max[i]));
}

static void row_sum(const Ctx *ctx, const stored *p, int64_t rows, int64_t width, real *sum) {
    EACH (ctx, i, rows, width) {
        real all = 0;
#pragma omp simd reduction(+ : all)
        for (int64_t j = i * width; j < (i + 1) * width; j++) all += load(p[j]);
        sum[i] = all;
    }
}

static void divide(const Ctx *ctx, const real *sum, int64_t rows, int64_t width, stored *p) {
    EACH (ctx, i, rows, width)
        for (int64_t j = i * width; j < (i + 1) * width; j++)
            p[j] = store(sum[i] > 0 ? load(p[j]) / sum[i] : 0);
}

static void log_sum(const real *max, const real *sum, int64_t rows, real *lse) {
    for (int64_t i = 0; i < rows; i++)
        lse[i] = max[i] + log(sum[i]); /* -inf + log 0 for rows that see no
                                                                       * key */
}

static Status softmax(Ctx *ctx, const AttentionForward *a, const Sizes *s, stored *p) {
    int64_t rows = s->batch * s->heads * s->queries;
    Tensor max, sum; // (B, heads, T)
    TRY(take(ctx, ARENA_SCRATCH, "attention.max", dtype_wide(a->q.dtype), shape1(rows), &max));
    TRY(take(ctx, ARENA_SCRATCH, "attention.sum", dtype_wide(a->q.dtype), shape1(rows), &sum));
    PRIMITIVE_OF (ctx, ctx->pass, "softmax max", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax"), &max)
        row_max(ctx, p, rows, s->keys, max.data);
    PRIMITIVE_OF (ctx, ctx->pass, "softmax exp", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax"))
        exponentials(ctx, max.data, rows, s->keys, p);
    PRIMITIVE_OF (ctx, ctx->pass, "softmax sum", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax"), &sum)
        row_sum(ctx, p, rows, s->keys, sum.data);
    PRIMITIVE_OF (ctx, ctx->pass, "softmax divide", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax"))
        divide(ctx, sum.data, rows, s->keys, p);
    if (!tensor_empty(a->lse))
        PRIMITIVE_OF (ctx, ctx->pass, "log-sum-exp", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                      torch_call("aten::logsumexp"), &a->lse)
            log_sum(max.data, sum.data, rows, a->lse.data);
    return OK;
}

/* With dropout, *p becomes a new tensor: the probabilities before dropout stay for the backward pass. */
static Status drop_probabilities(Ctx *ctx, const AttentionForward *a, Tensor *p) {
    if (!dropout_on(&a->dropout)) return OK;
    Tensor whole = *p;
    TRY(take(ctx, ARENA_SCRATCH, "attention.dropped", whole.dtype, whole.shape, p));
    PRIMITIVE (ctx, "dropout", ELEMENTWISE, torch_call("aten::native_dropout"))
        TYPED(dropout_apply)(ctx, &a->dropout, whole.data, tensor_rows(whole), tensor_width(whole), p->data);
    return OK;
}

static Status attention_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const AttentionForward *a = contract;
    const Sizes s = sizes_of(a);
    const Dtype dtype = a->q.dtype;
    bool cached = !tensor_empty(a->cache_k);
    Tensor p = a->probabilities; // (B, heads, T, S)
    Tensor q, y, k, v;           // (B, heads, T, D) and (B, kv_heads, S, D)
    TRY(take_heads(ctx, "attention.q", dtype, s.batch, s.heads, s.queries, s.size, &q));
    TRY(take_heads(ctx, "attention.k", dtype, s.batch, s.kv_heads, s.keys, s.size, &k));
    TRY(take_heads(ctx, "attention.v", dtype, s.batch, s.kv_heads, s.keys, s.size, &v));
    if (!tensor_empty(a->frequencies))
        PRIMITIVE (ctx, "rotary positions", ELEMENTWISE) {
            rotate(ctx, a, a->q, false);
            rotate(ctx, a, a->k, false);
        }
    if (cached)
        PRIMITIVE (ctx, "cache append", MEMORY, torch_call("aten::copy_")) {
            append(ctx, a, a->k, a->cache_k);
            append(ctx, a, a->v, a->cache_v);
        }
    PRIMITIVE (ctx, "split heads", MEMORY, torch_call("aten::copy_")) {
        split_heads(ctx, a->q, q);
        split_heads(ctx, cached ? a->cache_k : a->k, k);
        split_heads(ctx, cached ? a->cache_v : a->v, v);
        if (!tensor_empty(a->pasts)) blank(ctx, a, &s, v);
    }
    if (tensor_empty(p))
        TRY(take(ctx, ARENA_SCRATCH, "attention.probabilities", dtype,
                 shape4(s.batch, s.heads, s.queries, s.keys), &p));
    PRIMITIVE (ctx, "score product", MATRIX, torch_call("aten::bmm")) TRY(scores_product(ctx, &s, q, k, p));
    PRIMITIVE (ctx, "scale", ATTENTION, torch_call("aten::mul"))
        scale(ctx, (real)a->scale, tensor_count(p), p.data);
    PRIMITIVE (ctx, "mask", ATTENTION, torch_call("aten::masked_fill_")) mask(ctx, a, &s, p.data);
    TRY(softmax(ctx, a, &s, p.data));
    TRY(drop_probabilities(ctx, a, &p));
    TRY(take_heads(ctx, "attention.y", dtype, s.batch, s.heads, s.queries, s.size, &y));
    PRIMITIVE (ctx, "value product", MATRIX, torch_call("aten::bmm")) TRY(values_product(ctx, &s, p, v, y));
    PRIMITIVE (ctx, "merge heads", MEMORY, torch_call("aten::copy_"), &a->y) merge_heads(ctx, y, a->y);
    return OK;
}
SLOT(ATTENTION, FORWARD, CPU, NAIVE, STORED_DTYPE, attention_forward_cpu_naive);

static void row_dot(const Ctx *ctx, const stored *x, const stored *y, int64_t rows, int64_t width,
                    real *dot) {
    EACH (ctx, i, rows, width) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = i * width; j < (i + 1) * width; j++) sum += load(x[j]) * load(y[j]);
        dot[i] = sum;
    }
}

/* ds = p * (dp - delta), in place of dp. */
static void softmax_gradient(const Ctx *ctx, const stored *p, const real *delta, int64_t rows, int64_t width,
                             stored *dp) {
    EACH (ctx, i, rows, width)
        for (int64_t j = i * width; j < (i + 1) * width; j++)
            dp[j] = store(load(p[j]) * (load(dp[j]) - delta[i]));
}

static Status attention_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const AttentionBackward *b = contract;
    const AttentionForward *a = b->forward;
    const Sizes s = sizes_of(a);
    const Dtype dtype = a->q.dtype;
    const int64_t rows = s.batch * s.heads * s.queries;
    Tensor p = a->probabilities, ds, delta; // (B, heads, T, S), (B, heads, T, S), (B, heads, T)
    Tensor q, dy, dq;                       // (B, heads, T, D)
    Tensor k, v, dk, dv;                    // (B, kv_heads, S, D)
    TRY(take_heads(ctx, "attention.q", dtype, s.batch, s.heads, s.queries, s.size, &q));
    TRY(take_heads(ctx, "attention.dy", dtype, s.batch, s.heads, s.queries, s.size, &dy));
    TRY(take_heads(ctx, "attention.k", dtype, s.batch, s.kv_heads, s.keys, s.size, &k));
    TRY(take_heads(ctx, "attention.v", dtype, s.batch, s.kv_heads, s.keys, s.size, &v));
    PRIMITIVE (ctx, "split heads", MEMORY, torch_call("aten::copy_")) {
        split_heads(ctx, a->q, q);
        split_heads(ctx, a->k, k);
        split_heads(ctx, a->v, v);
        split_heads(ctx, b->dy, dy);
    }
    Tensor dropped = p;
    TRY(drop_probabilities(ctx, a, &dropped));
    TRY(take_heads(ctx, "attention.dv", dtype, s.batch, s.kv_heads, s.keys, s.size, &dv));
    PRIMITIVE (ctx, "value gradient", MATRIX, torch_call("aten::bmm"))
        TRY(transposed_product(ctx, &s, dropped, dy, dv));
    TRY(take(ctx, ARENA_SCRATCH, "attention.ds", dtype, p.shape, &ds));
    PRIMITIVE (ctx, "probability gradient", MATRIX, torch_call("aten::bmm"))
        TRY(scores_product(ctx, &s, dy, v, ds));
    if (dropout_on(&a->dropout))
        PRIMITIVE (ctx, "dropout gradient", ELEMENTWISE, torch_call("aten::native_dropout_backward"))
            TYPED(dropout_apply)(ctx, &a->dropout, ds.data, rows, s.keys, ds.data);
    TRY(take(ctx, ARENA_SCRATCH, "attention.delta", dtype_wide(dtype), shape1(rows), &delta));
    PRIMITIVE_OF (ctx, ctx->pass, "softmax delta", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax_backward_data"))
        row_dot(ctx, p.data, ds.data, rows, s.keys, delta.data);
    PRIMITIVE_OF (ctx, ctx->pass, "softmax gradient", CATEGORY_ATTENTION, ARITHMETIC_SOFTMAX,
                  torch_part("aten::_softmax_backward_data"))
        softmax_gradient(ctx, p.data, delta.data, rows, s.keys, ds.data);
    PRIMITIVE (ctx, "scale", ATTENTION, torch_call("aten::mul"))
        scale(ctx, (real)a->scale, tensor_count(ds), ds.data);
    TRY(take_heads(ctx, "attention.dq", dtype, s.batch, s.heads, s.queries, s.size, &dq));
    PRIMITIVE (ctx, "query gradient", MATRIX, torch_call("aten::bmm"))
        TRY(values_product(ctx, &s, ds, k, dq));
    TRY(take_heads(ctx, "attention.dk", dtype, s.batch, s.kv_heads, s.keys, s.size, &dk));
    PRIMITIVE (ctx, "key gradient", MATRIX, torch_call("aten::bmm"))
        TRY(transposed_product(ctx, &s, ds, q, dk));
    PRIMITIVE (ctx, "merge heads", MEMORY, torch_call("aten::cat"), &b->dq, &b->dk, &b->dv) {
        merge_heads(ctx, dq, b->dq);
        merge_heads(ctx, dk, b->dk);
        merge_heads(ctx, dv, b->dv);
    }
    if (!tensor_empty(a->frequencies))
        PRIMITIVE (ctx, "rotary gradient", ELEMENTWISE) {
            rotate(ctx, a, b->dq, true);
            rotate(ctx, a, b->dk, true);
        }
    return OK;
}
SLOT(ATTENTION, BACKWARD, CPU, NAIVE, STORED_DTYPE, attention_backward_cpu_naive);
