#include "kernels/attention/attention.h"

#include "base/checked.h"
#include "kernels/check.h"

#include <assert.h>

static int64_t batch_of(const AttentionForward *a) {
    return a->q.shape.d[0];
}
static int64_t queries_of(const AttentionForward *a) {
    return a->q.shape.d[1];
}
/* The number of keys: of the cache, including the new ones, or of k. */
static int64_t keys_of(const AttentionForward *a) {
    return (tensor_empty(a->cache_k) ? 0 : a->past) + a->k.shape.d[1];
}

static Status check_heads(const AttentionForward *a) {
    TRY(check_present("attention", "q", a->q));
    TRY(check_present("attention", "k", a->k));
    TRY(check_present("attention", "v", a->v));
    TRY(check_that("attention", a->q.shape.rank == 3 && a->k.shape.rank == 3 && a->v.shape.rank == 3,
                   "q is (B, T, heads*D), and k and v are (B, S, kv_heads*D)"));
    TRY(check_that("attention", a->heads > 0 && a->kv_heads > 0 && a->heads % a->kv_heads == 0,
                   "heads is a multiple of kv_heads"));
    return check_that("attention", tensor_width(a->q) % a->heads == 0,
                      "the width of q is a multiple of heads");
}

/* (B, heads, T, S). On a GPU the row stride is a multiple of 16 bytes, as vector accesses and fast cuBLAS
 * kernels require. */
static Status take_probabilities(Ctx *ctx, AttentionForward *a, ArenaKind saved) {
    int64_t keys = keys_of(a), pitch = keys, step = 16 / (int64_t)dtype_size(a->q.dtype);
    if (ctx->device->backend == BACKEND_CUDA) pitch = pieces(keys, step) * step;
    TRY(take(ctx, saved, "attention.probabilities", a->q.dtype,
             shape4(batch_of(a), a->heads, queries_of(a), pitch), &a->probabilities));
    a->probabilities = tensor_columns(a->probabilities, 0, keys);
    return OK;
}

static Status take_outputs(Ctx *ctx, AttentionForward *a, ArenaKind saved) {
    TRY(check_heads(a));
    Dtype type = a->q.dtype;
    int64_t batch = batch_of(a), queries = queries_of(a);
    a->lse = a->probabilities = (Tensor){0};
    TRY(take_missing(ctx, saved, ctx->call, type, a->q.shape, &a->y));
    if (!ctx->training) return OK;
    TRY(take(ctx, saved, "attention.lse", dtype_wide(type), shape3(batch, a->heads, queries), &a->lse));
    if (op_form(ctx, OP_ATTENTION, a->q.dtype) == FORM_FUSED) return OK;
    return take_probabilities(ctx, a, saved);
}

static bool rotary(const AttentionForward *a) {
    return !tensor_empty(a->frequencies);
}

static Status check_rotary(const AttentionForward *a) {
    if (!rotary(a)) return OK;
    int64_t size = tensor_width(a->q) / a->heads;
    TRY(check_that("attention", size % 2 == 0, "rotary positions turn pairs of a head's columns"));
    TRY(check_that("attention", queries_of(a) == a->k.shape.d[1],
                   "rotary positions are of queries and keys of one sequence"));
    return check_dense("attention", "frequencies", a->frequencies, dtype_wide(a->q.dtype), 1, size / 2);
}

static Status check_cache(const Ctx *ctx, const AttentionForward *a, int64_t kv_width) {
    TRY(check_that("attention", tensor_empty(a->cache_k) == tensor_empty(a->cache_v),
                   "cache_k and cache_v come together"));
    if (tensor_empty(a->cache_k))
        return check_that("attention", a->past == 0 && tensor_empty(a->pasts), "past is 0 without a cache");
    TRY(check_that("attention", !ctx->training, "a cache is for inference only"));
    TRY(check_that("attention", a->cache_k.shape.rank == 3 && a->cache_k.shape.d[0] == batch_of(a),
                   "the cache is (B, capacity, kv_heads*D)"));
    if (!tensor_empty(a->past_on_device))
        TRY(check_dense("attention", "past_on_device", a->past_on_device, I32, 1, 1));
    if (!tensor_empty(a->pasts)) {
        TRY(check_dense("attention", "pasts", a->pasts, I32, 1, batch_of(a)));
        TRY(check_that("attention", a->causal, "pasts are for causal attention"));
    }
    int64_t capacity = a->cache_k.shape.d[1];
    TRY(check_that("attention", a->past >= 0 && keys_of(a) <= capacity,
                   "past + T is at most the capacity of the cache"));
    TRY(check_dense("attention", "cache_k", a->cache_k, a->q.dtype, batch_of(a) * capacity, kv_width));
    return check_dense("attention", "cache_v", a->cache_v, a->q.dtype, batch_of(a) * capacity, kv_width);
}

static Status check_forward(const Ctx *ctx, const AttentionForward *a) {
    TRY(check_heads(a));
    int64_t q_width = tensor_width(a->q), kv_width = q_width / a->heads * a->kv_heads;
    int64_t q_rows = batch_of(a) * queries_of(a), kv_rows = batch_of(a) * a->k.shape.d[1];
    TRY(check_view("attention", "q", a->q, a->q.dtype, q_rows, q_width));
    TRY(check_view("attention", "k", a->k, a->q.dtype, kv_rows, kv_width));
    TRY(check_view("attention", "v", a->v, a->q.dtype, kv_rows, kv_width));
    TRY(check_dense("attention", "y", a->y, a->q.dtype, q_rows, q_width));
    if (!tensor_empty(a->key_lengths))
        TRY(check_dense("attention", "key_lengths", a->key_lengths, I32, 1, batch_of(a)));
    if (!tensor_empty(a->starts)) {
        TRY(check_dense("attention", "starts", a->starts, I32, batch_of(a), queries_of(a)));
        TRY(check_that("attention",
                       a->causal && queries_of(a) == a->k.shape.d[1] && tensor_empty(a->key_lengths) &&
                           tensor_empty(a->cache_k),
                       "documents are for causal attention of a row to itself, without lengths or a cache"));
    }
    TRY(check_rotary(a));
    TRY(dropout_check("attention", &a->dropout));
    TRY(check_that("attention", ctx->training || !dropout_on(&a->dropout), "only training drops"));
    return check_cache(ctx, a, kv_width);
}

/* The number of visible query-key pairs for one head of one batch row. Key lengths are in device memory, so
 * they are ignored here. */
static double visible_pairs(const AttentionForward *a) {
    double queries = (double)queries_of(a), keys = (double)keys_of(a), offset = keys - queries;
    if (!a->causal) return queries * keys;
    /* Query i sees i + offset + 1 keys: an arithmetic series from the first query that sees any. */
    double first = offset >= 0 ? 0 : -offset;
    return first >= queries ? 0 : (queries - first) * (first + offset + 1 + keys) / 2;
}

/* FLOPs of one (T, S) product over all heads. */
static double product_flops(const AttentionForward *a) {
    return 2 * (double)batch_of(a) * (double)tensor_width(a->q) * visible_pairs(a);
}

/* Rotating a pair takes 6 operations; its angle is computed once for all heads. */
static double rotary_flops(const AttentionForward *a) {
    return rotary(a) ? 3 * (double)(tensor_count(a->q) + tensor_count(a->k)) : 0;
}

/* The fused CUDA form reads pasts for heads of up to ATTENTION_WIDTH columns; the naive form runs wider
 * ones. */
static Status run(Ctx *ctx, const AttentionForward *a, const Call *call) {
    const uint32_t fuses = ctx->fuses;
    if (!tensor_empty(a->pasts) && ctx->device->backend == BACKEND_CUDA &&
        tensor_width(a->q) / a->heads > ATTENTION_WIDTH)
        ctx->fuses &= ~(1u << OP_ATTENTION);
    Status status = op_run(ctx, call);
    ctx->fuses = fuses;
    return status;
}

Status attention_forward(Ctx *ctx, AttentionForward *a, ArenaKind saved) {
    TRY(take_outputs(ctx, a, saved));
    TRY(check_forward(ctx, a));
    int64_t batch = batch_of(a);
    if (batch * queries_of(a) == 0) return OK;
    size_t bytes = tensor_bytes(a->q) + tensor_bytes(a->y) + tensor_bytes(a->lse);
    if (tensor_empty(a->cache_k))
        bytes += tensor_bytes(a->k) + tensor_bytes(a->v);
    else /* new rows are read and written; cached rows are read */
        bytes += 4 * tensor_bytes(a->k) +
                 2 * (size_t)(batch * a->past * tensor_width(a->k)) * dtype_size(a->q.dtype);
    if (rotary(a)) bytes += tensor_bytes(a->q) + tensor_bytes(a->k) + tensor_bytes(a->frequencies);
    Call call = {.operation = OP_ATTENTION,
                 .pass = PASS_FORWARD,
                 .dtype = a->q.dtype,
                 .contract = a,
                 .inputs = {a->q, a->k, a->v},
                 .work = {.flops = 2 * product_flops(a) + rotary_flops(a), .bytes = (double)bytes},
                 .outputs = {{"y", a->y}}};
    if (rotary(a)) {
        call.outputs[1] = (Output){"q", a->q};
        call.outputs[2] = (Output){"k", a->k};
    }
    return run(ctx, a, &call);
}

Status attention_backward(Ctx *ctx, const AttentionBackward *b) {
    const AttentionForward *a = b->forward;
    TRY(check_forward(ctx, a));
    Dtype type = a->q.dtype;
    int64_t batch = batch_of(a), queries = queries_of(a), keys = keys_of(a);
    int64_t q_rows = batch * queries, q_width = tensor_width(a->q);
    int64_t kv_rows = batch * keys, kv_width = tensor_width(a->k);
    TRY(check_that("attention", tensor_empty(a->cache_k), "there is no backward pass through a cache"));
    TRY(check_dense("attention", "lse", a->lse, dtype_wide(type), batch * a->heads, queries));
    if (op_form(ctx, OP_ATTENTION, a->q.dtype) == FORM_NAIVE)
        TRY(check_view("attention", "probabilities", a->probabilities, type, batch * a->heads * queries,
                       keys));
    TRY(check_dense("attention", "dy", b->dy, type, q_rows, q_width));
    TRY(check_view("attention", "dq", b->dq, type, q_rows, q_width));
    TRY(check_view("attention", "dk", b->dk, type, kv_rows, kv_width));
    TRY(check_view("attention", "dv", b->dv, type, kv_rows, kv_width));
    if (batch == 0) return OK;
    size_t bytes = 4 * tensor_bytes(a->q) + 4 * tensor_bytes(a->k) + tensor_bytes(a->lse);
    /* Four products: dP, dV, dQ, dK. The fused form also recomputes the scores, which the naive form has
     * saved. */
    const double needed = 4 * product_flops(a) + rotary_flops(a);
    const bool again = op_form(ctx, OP_ATTENTION, a->q.dtype) == FORM_FUSED;
    Call call = {
        .operation = OP_ATTENTION,
        .pass = PASS_BACKWARD,
        .dtype = a->q.dtype,
        .contract = b,
        .inputs = {b->dy, a->q, a->k, a->v},
        .work = {.flops = needed + (again ? product_flops(a) : 0), .bytes = (double)bytes, .needed = needed},
        .outputs = {{"dq", b->dq}, {"dk", b->dk}, {"dv", b->dv}}};
    return op_run(ctx, &call);
}

Status attention_map(Ctx *ctx, const AttentionForward *a, Tensor map) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    const uint32_t fuses = ctx->fuses;
    AttentionForward first = {
        .q = a->q, .k = a->k, .v = a->v, .heads = a->heads, .kv_heads = a->kv_heads, .scale = a->scale};
    assert(!ctx->training && tensor_empty(a->cache_k));
    first.q.stride *= a->q.shape.d[1];
    first.q.shape.d[1] = 1;
    ctx->fuses = 0;
    ctx->training = true; // the naive form keeps probabilities only in training
    ctx->call = "attention map";
    Status status = attention_forward(ctx, &first, ARENA_SCRATCH);
    ctx->training = false;
    ctx->fuses = fuses;
    TRY(status);
    const Tensor p = first.probabilities; // (B, heads, 1, S)
    const Shape row = shape1(tensor_width(p));
    for (int64_t i = 0; i < tensor_rows(p) && !ctx->measuring; i++) // a view's rows may have gaps
        TRY(ctx->device->copy(ctx->device, tensor_elements(map, i * row.d[0], row).data,
                              tensor_elements(p, i * p.stride, row).data,
                              (size_t)row.d[0] * dtype_size(p.dtype)));
    arena_release(scratch, mark);
    return OK;
}
