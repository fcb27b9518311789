#include "tests/support/attention.h"

#include <math.h>

static int64_t q_width(const AttentionCase *c) {
    return c->heads * c->size;
}
static int64_t kv_width(const AttentionCase *c) {
    return c->kv_heads * c->size;
}
static int64_t packed_width(const AttentionCase *c) {
    return q_width(c) + 2 * kv_width(c) + c->gap;
}

int64_t attention_output_count(const AttentionCase *c, int output) {
    if (output == ATTENTION_LSE) return c->batch * c->heads * c->queries;
    if (output == ATTENTION_DK || output == ATTENTION_DV) return c->batch * c->keys * kv_width(c);
    return c->batch * c->queries * q_width(c);
}

void attention_documents(AttentionBatch *batch, int64_t n) {
    const AttentionCase *c = &batch->size;
    int32_t *starts = integers(c->batch * c->queries, (int32_t)(2 * n - 1));
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0, start = 0, end = 64; i < c->queries; i++) {
            int32_t *at = &starts[b * c->queries + i];
            if (i == end) start = i, end += 1 + *at;
            *at = (int32_t)start;
        }
    batch->starts = starts;
}

void attention_inputs(const AttentionCase *c, Dtype dtype, double spread, AttentionBatch *batch,
                      double **in) {
    int32_t *lengths = integers(c->batch, (int32_t)c->keys + 1);
    if (c->batch) lengths[0] = 0;
    *batch = (AttentionBatch){
        .size = *c, .key_lengths = c->lengths ? lengths : NULL, .scale = 1 / sqrt((double)c->size)};
    in[ATTENTION_Q] = normals(attention_output_count(c, ATTENTION_DQ), spread, dtype);
    in[ATTENTION_K] = normals(attention_output_count(c, ATTENTION_DK), spread, dtype);
    in[ATTENTION_V] = normals(attention_output_count(c, ATTENTION_DV), 1, dtype);
    in[ATTENTION_DY] = normals(attention_output_count(c, ATTENTION_Y), 1, dtype);
}

void attention_outputs(const AttentionCase *c, double **out) {
    for (int o = 0; o < ATTENTION_OUTPUTS; o++) out[o] = zeros(attention_output_count(c, o));
}

/* Creates q, k, v (or their gradients) as three tensors, or as columns of one. If `values` is NULL they stay
 * poisoned. */
static Tensor put_projections(Rig *rig, const AttentionCase *c, double *const *values, Tensor parts[3]) {
    const int64_t widths[3] = {q_width(c), kv_width(c), kv_width(c)};
    const Dtype dtype = rig->ctx.dtype;
    if (!c->packed) {
        for (int i = 0; i < 3; i++) {
            Shape shape = shape3(c->batch, i == 0 ? c->queries : c->keys, widths[i]);
            parts[i] = values ? rig_put(rig, "projection", dtype, shape, values[i])
                              : rig_blank(rig, "projection gradient", dtype, shape);
        }
        return (Tensor){0};
    }
    const int64_t rows = c->batch * c->queries, width = packed_width(c);
    const Shape shape = shape3(c->batch, c->queries, width);
    double *together = zeros(rows * width);
    for (int64_t i = 0; i < rows * width; i++) together[i] = NAN;
    for (int64_t row = 0; values && row < rows; row++)
        for (int64_t i = 0, column = 0; i < 3; column += widths[i++])
            for (int64_t k = 0; k < widths[i]; k++)
                together[row * width + column + k] = values[i][row * widths[i] + k];
    Tensor packed = rig_put(rig, values ? "qkv" : "dqkv", dtype, shape, together);
    for (int64_t i = 0, column = 0; i < 3; column += widths[i++])
        parts[i] = tensor_columns(packed, column, widths[i]);
    return packed;
}

static void expect_gap_untouched(Rig *rig, const AttentionCase *c, Tensor packed) {
    if (tensor_empty(packed) || rig->ctx.measuring) return;
    const int64_t width = packed_width(c);
    double *all = zeros(tensor_count(packed));
    rig_get(rig, packed, all);
    for (int64_t i = 0; i < tensor_count(packed); i++)
        if (i % width >= width - c->gap) assert_true(isnan(all[i]));
}

void attention_run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const AttentionBatch *batch = what;
    const AttentionCase *c = &batch->size;
    Ctx *ctx = &rig->ctx;
    const Shape y = shape3(c->batch, c->queries, q_width(c));
    Tensor qkv[3], gradients[3];
    ctx->training = !batch->inference;
    if (batch->invariant) ctx->fuses |= FUSE_INVARIANT;
    put_projections(rig, c, in, qkv);
    AttentionForward f = {.q = qkv[0],
                          .k = qkv[1],
                          .v = qkv[2],
                          .y = rig_blank(rig, "y", ctx->dtype, y),
                          .heads = c->heads,
                          .kv_heads = c->kv_heads,
                          .causal = c->causal,
                          .scale = batch->scale};
    const int32_t draw = 5;
    if (batch->dropout > 0)
        f.dropout = (Dropout){batch->dropout, 12345, 6, rig_put_ints(rig, "draw", shape1(1), &draw)};
    if (batch->key_lengths)
        f.key_lengths = rig_put_ints(rig, "key_lengths", shape1(c->batch), batch->key_lengths);
    if (batch->starts) f.starts = rig_put_ints(rig, "starts", shape2(c->batch, c->queries), batch->starts);
    if (batch->frequencies)
        f.frequencies = rig_put(rig, "frequencies", wide_dtype(ctx), shape1(c->size / 2), batch->frequencies);
    expect_ok(attention_forward(ctx, &f, ARENA_SAVED));
    rig_get(rig, f.y, out[ATTENTION_Y]);
    for (int i = 0; i < 2 && batch->frequencies; i++) rig_get(rig, qkv[i], out[ATTENTION_OUTPUTS + i]);
    if (batch->inference) {
        assert_true(tensor_empty(f.lse) && tensor_empty(f.probabilities));
        return;
    }
    Tensor packed = put_projections(rig, c, NULL, gradients);
    AttentionBackward b = {.forward = &f,
                           .dy = rig_put(rig, "dy", ctx->dtype, y, in[ATTENTION_DY]),
                           .dq = gradients[0],
                           .dk = gradients[1],
                           .dv = gradients[2]};
    expect_ok(attention_backward(ctx, &b));
    rig_get(rig, f.lse, out[ATTENTION_LSE]);
    for (int i = 0; i < 3; i++) rig_get(rig, gradients[i], out[ATTENTION_DQ + i]);
    expect_gap_untouched(rig, c, packed);
}

/* One query of one head, and the positions of its numbers. */
typedef struct {
    const AttentionBatch *batch;
    Units u;
    double *const *in;
    double **want, **bound;
    int64_t b, h, i;
    double *p, *error;  // (S): probabilities, and their error bounds
    double *dp, *sizes; // (S): dy.v, and the sum of its magnitudes
} Query;

static int64_t visible_keys(const Query *q) {
    const AttentionCase *c = &q->batch->size;
    int64_t seen = q->batch->key_lengths ? q->batch->key_lengths[q->b] : c->keys;
    int64_t causal = q->i + c->keys - c->queries + 1;
    if (c->causal && causal < seen) seen = causal;
    return seen < 0 ? 0 : seen;
}

static int64_t first_key(const Query *q) {
    return q->batch->starts ? q->batch->starts[q->b * q->batch->size.queries + q->i] : 0;
}

static int64_t query_at(const Query *q) {
    const AttentionCase *c = &q->batch->size;
    return ((q->b * c->queries + q->i) * c->heads + q->h) * c->size;
}

static int64_t key_at(const Query *q, int64_t j) {
    const AttentionCase *c = &q->batch->size;
    return ((q->b * c->keys + j) * c->kv_heads + q->h / (c->heads / c->kv_heads)) * c->size;
}

static double dot(const double *x, const double *y, int64_t count, double *size) {
    double sum = 0, magnitudes = 0;
    for (int64_t d = 0; d < count; d++) {
        const double product = x[d] * y[d];
        sum += product;
        magnitudes += fabs(product);
    }
    *size = magnitudes;
    return sum;
}

/* A score errs by the product's rounding, and by three stores (product, scaled, masked); p = exp(s - lse)
 * errs relatively by twice the largest error of a score, by the sum, by the rounding of s - max and of
 * exp, and by two stores; but never by more than 1. lse sums exponentials that may have been stored, once.
 * Returns the number of keys seen. */
static int64_t model_probabilities(const Query *q) {
    const AttentionCase *c = &q->batch->size;
    const int64_t first = first_key(q), seen = visible_keys(q),
                  lse = (q->b * c->heads + q->h) * c->queries + q->i;
    const double *query = q->in[ATTENTION_Q] + query_at(q);
    const double product = product_error(q->u, c->size) * q->batch->scale;
    double largest = -INFINITY, error = 0, magnitude = 0, sum = 0;
    for (int64_t j = 0; j < first; j++) q->p[j] = q->error[j] = 0;
    for (int64_t j = first; j < seen; j++) {
        double size;
        q->p[j] = q->batch->scale * dot(query, q->in[ATTENTION_K] + key_at(q, j), c->size, &size);
        largest = fmax(largest, q->p[j]);
        magnitude = fmax(magnitude, fabs(q->p[j]));
        error = fmax(error, product * size + (3 * q->u.storage + 2 * q->u.wide) * fabs(q->p[j]));
    }
    for (int64_t j = first; j < seen; j++) sum += exp(q->p[j] - largest);
    const double rounding = sum_error(q->u.wide, c->keys) + 8 * q->u.wide * (1 + magnitude);
    const double relative = expm1(fmin(2 * error + rounding, 700)) + 2 * q->u.storage;
    for (int64_t j = first; j < seen; j++) {
        q->p[j] = exp(q->p[j] - largest) / sum;
        q->error[j] = fmin(q->p[j] * relative, 1);
    }
    q->want[ATTENTION_LSE][lse] = largest + log(sum); // -inf + log 0 without visible keys
    q->bound[ATTENTION_LSE][lse] = error + rounding + q->u.storage;
    return seen;
}

static void model_output(const Query *q, int64_t seen) {
    const AttentionCase *c = &q->batch->size;
    double *restrict y = q->want[ATTENTION_Y] + query_at(q);
    double *restrict bound = q->bound[ATTENTION_Y] + query_at(q);
    const double rounding = product_error(q->u, c->keys);
    for (int64_t j = first_key(q); j < seen; j++) {
        const double *v = q->in[ATTENTION_V] + key_at(q, j);
        const double p = q->p[j], error = q->error[j] + rounding * p;
        for (int64_t d = 0; d < c->size; d++) {
            y[d] += p * v[d];
            bound[d] += error * fabs(v[d]);
        }
    }
    for (int64_t d = 0; d < c->size; d++) bound[d] += 2 * q->u.storage * fabs(y[d]);
}

/* ds = p (dp - delta), where dp = dy.v and delta = sum of p dp = dy.y. With A the sum of the magnitudes in dp
 * and a = sum of p A that in delta, ds errs by (error of p) (A + a), and by p times the errors of dp and
 * delta, which are the products' rounding of A and a, the error of p in delta, and a few stores. */
static void model_gradients(const Query *q, int64_t seen) {
    const AttentionCase *c = &q->batch->size;
    const Units u = q->u;
    const double *dy = q->in[ATTENTION_DY] + query_at(q), *query = q->in[ATTENTION_Q] + query_at(q);
    double delta = 0, delta_size = 0, delta_error = 0;
    for (int64_t j = first_key(q); j < seen; j++) {
        q->dp[j] = dot(dy, q->in[ATTENTION_V] + key_at(q, j), c->size, &q->sizes[j]);
        delta += q->p[j] * q->dp[j];
        delta_size += q->p[j] * q->sizes[j];
        delta_error += q->error[j] * q->sizes[j];
    }
    const double stores = 3 * u.storage + 4 * u.wide;
    delta_error += (product_error(u, c->size) + sum_error(u.wide, c->keys) + stores) * delta_size;
    const double group = (double)(c->heads / c->kv_heads);
    const double across_keys = product_error(u, c->keys) + stores;
    const double across_queries = product_error(u, c->queries * (int64_t)group) + stores;
    double *restrict dq = q->want[ATTENTION_DQ] + query_at(q);
    double *restrict dq_bound = q->bound[ATTENTION_DQ] + query_at(q);
    for (int64_t j = first_key(q); j < seen; j++) {
        const int64_t key = key_at(q, j);
        const double dp = q->dp[j], size = q->sizes[j], p = q->p[j];
        double ds = q->batch->scale * p * (dp - delta), ds_size = q->batch->scale * p * (size + delta_size);
        double error = q->batch->scale * (q->error[j] * (size + delta_size) +
                                          p * ((product_error(u, c->size) + stores) * size + delta_error));
        const double q_error = error + across_keys * ds_size, k_error = error + across_queries * ds_size;
        const double v_error = q->error[j] + across_queries * p;
        const double *k = q->in[ATTENTION_K] + key;
        double *restrict dk = q->want[ATTENTION_DK] + key, *restrict dk_bound = q->bound[ATTENTION_DK] + key;
        double *restrict dv = q->want[ATTENTION_DV] + key, *restrict dv_bound = q->bound[ATTENTION_DV] + key;
        for (int64_t d = 0; d < c->size; d++) {
            dq[d] += ds * k[d];
            dq_bound[d] += q_error * fabs(k[d]);
            dk[d] += ds * query[d];
            dk_bound[d] += k_error * fabs(query[d]);
            dv[d] += p * dy[d];
            dv_bound[d] += v_error * fabs(dy[d]);
        }
    }
}

void attention_model(const AttentionBatch *batch, Units u, double *const *in, double **want, double **bound) {
    const AttentionCase *c = &batch->size;
    attention_outputs(c, want);
    attention_outputs(c, bound);
    Query q = {batch,         u, in, want, bound, 0, 0, 0, zeros(c->keys), zeros(c->keys), zeros(c->keys),
               zeros(c->keys)};
    for (q.b = 0; q.b < c->batch; q.b++)
        for (q.h = 0; q.h < c->heads; q.h++)
            for (q.i = 0; q.i < c->queries; q.i++) {
                int64_t seen = model_probabilities(&q);
                model_output(&q, seen);
                model_gradients(&q, seen);
            }
}

static void differentiate(Rig *rig, const void *what, double *const *in, double *const *out, bool backward) {
    const AttentionBatch *batch = what;
    const AttentionCase *c = &batch->size;
    double *all_out[ATTENTION_OUTPUTS + 2];
    attention_outputs(c, all_out);
    for (int i = 0; i < 2; i++)
        all_out[ATTENTION_OUTPUTS + i] = zeros(attention_output_count(c, ATTENTION_DQ + i));
    double *all_in[ATTENTION_INPUTS] = {in[0], in[1], in[2],
                                        backward ? in[3] : zeros(attention_output_count(c, 0))};
    if (backward)
        for (int i = 0; i < 3; i++) all_out[ATTENTION_DQ + i] = out[i];
    else
        all_out[ATTENTION_Y] = out[0];
    attention_run(rig, batch, all_in, all_out);
}

static void differentiate_forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    differentiate(rig, what, in, out, false);
}

static void differentiate_backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    differentiate(rig, what, in, out, true);
}

void attention_expect_gradients(const AttentionCase *c, const double *frequencies, const char *name) {
    AttentionBatch batch;
    double *in[ATTENTION_INPUTS];
    attention_inputs(c, F64, 1, &batch, in);
    batch.frequencies = frequencies;
    Differentiable d = {
        3,
        1,
        {attention_output_count(c, 2), attention_output_count(c, 3), attention_output_count(c, 4)},
        {attention_output_count(c, 0)},
        differentiate_forward,
        differentiate_backward};
    expect_gradients(&d, &batch, in, name);
}
