#include "kernels/decode/decode.h"

#include "kernels/check.h"

static const char *const OPERATION_NAME = "decode";

static bool rms(const Decode *d) {
    return d->norm_kind == NORM_RMS;
}

static Status check_norm(const Decode *d, const char *name, const DecodeAffine *a, int64_t width) {
    Dtype type = d->token.dtype;
    TRY(check_dense(OPERATION_NAME, name, a->weight, type, 1, width));
    if (rms(d)) return check_that(OPERATION_NAME, tensor_empty(a->bias), "RMS norms have no bias");
    return check_dense(OPERATION_NAME, name, a->bias, type, 1, width);
}

/* Checks a weight, which has the tokens' dtype or is quantized by groups. */
static Status check_matrix(const Decode *d, const char *name, Tensor weight, int64_t out, int64_t in) {
    TRY(check_present(OPERATION_NAME, name, weight));
    Dtype type = dtype_grouped(weight.dtype) ? weight.dtype : d->token.dtype;
    return check_dense(OPERATION_NAME, name, weight, type, out, in);
}

static Status check_linear(const Decode *d, const char *name, const DecodeAffine *a, int64_t out,
                           int64_t in) {
    Dtype type = d->token.dtype;
    TRY(check_matrix(d, name, a->weight, out, in));
    if (rms(d) && tensor_empty(a->bias)) return OK;
    return check_dense(OPERATION_NAME, name, a->bias, type, 1, out);
}

static Status check_cross(const Decode *d, const DecodeLayer *l) {
    const DecodeLayer *first = &d->layers[0];
    bool all = tensor_empty(l->memory) == tensor_empty(first->memory);
    TRY(check_that(OPERATION_NAME, all, "all layers have a memory, or none"));
    if (tensor_empty(l->memory)) return OK;
    Dtype type = d->token.dtype;
    int64_t C = tensor_width(d->token), queries = tensor_width(first->projection.weight);
    int64_t kv = queries / d->heads * d->kv_heads;
    TRY(check_norm(d, "cross_norm", &l->cross_norm, C));
    TRY(check_linear(d, "query", &l->query, queries, C));
    TRY(check_linear(d, "cross_projection", &l->cross_projection, C, queries));
    return check_dense(OPERATION_NAME, "memory", l->memory, type, tensor_rows(first->memory), 2 * kv);
}

static Status check_layer(const Decode *d, const DecodeLayer *l) {
    const DecodeLayer *first = &d->layers[0];
    Dtype type = d->token.dtype;
    int64_t C = tensor_width(d->token), queries = tensor_width(first->projection.weight);
    int64_t hidden = tensor_width(first->contract.weight), capacity = tensor_rows(first->cache_k);
    int64_t D = queries / d->heads, kv = D * d->kv_heads;
    TRY(check_norm(d, "norm1", &l->norm1, C));
    TRY(check_linear(d, "qkv", &l->qkv, queries + 2 * kv, C));
    TRY(check_linear(d, "projection", &l->projection, C, queries));
    TRY(check_norm(d, "norm2", &l->norm2, C));
    TRY(check_linear(d, "expand", &l->expand, (rms(d) ? 2 : 1) * hidden, C));
    TRY(check_linear(d, "contract", &l->contract, C, hidden));
    bool head_norms = !tensor_empty(first->query_norm.weight);
    TRY(check_that(OPERATION_NAME, rms(d) || !head_norms, "heads are normed by RMS"));
    if (head_norms) TRY(check_norm(d, "query_norm", &l->query_norm, D));
    if (head_norms) TRY(check_norm(d, "key_norm", &l->key_norm, D));
    TRY(check_dense(OPERATION_NAME, "cache_k", l->cache_k, type, capacity, kv));
    TRY(check_dense(OPERATION_NAME, "cache_v", l->cache_v, type, capacity, kv));
    return check_cross(d, l);
}

/* Every layer must have the sizes of the first. */
static Status check_layers(const Decode *d) {
    TRY(check_that(OPERATION_NAME, d->layer_count > 0, "there is a layer"));
    const DecodeLayer *first = &d->layers[0];
    TRY(check_present(OPERATION_NAME, "projection", first->projection.weight));
    TRY(check_present(OPERATION_NAME, "contract", first->contract.weight));
    TRY(check_present(OPERATION_NAME, "cache_k", first->cache_k));
    TRY(check_that(OPERATION_NAME, tensor_width(first->projection.weight) % d->heads == 0,
                   "the projection's width is a multiple of heads"));
    TRY(check_that(OPERATION_NAME, d->past >= 0 && d->past < tensor_rows(first->cache_k),
                   "past is less than the cache's capacity"));
    for (int64_t i = 0; i < d->layer_count; i++) TRY(check_layer(d, &d->layers[i]));
    return OK;
}

/* Positions come from a table or are rotary. */
static Status check_positions(const Decode *d) {
    int64_t C = tensor_width(d->token), positions = tensor_rows(d->position);
    TRY(check_that(OPERATION_NAME, tensor_empty(d->position) == rms(d), "RMS norms go without a table"));
    TRY(check_that(OPERATION_NAME, tensor_empty(d->frequencies) != rms(d), "and with rotary positions"));
    if (rms(d)) {
        int64_t D = tensor_width(d->layers[0].projection.weight) / d->heads;
        return check_dense(OPERATION_NAME, "frequencies", d->frequencies, dtype_wide(d->token.dtype), 1,
                           D / 2);
    }
    TRY(check_dense(OPERATION_NAME, "position", d->position, d->token.dtype, positions, C));
    return check_that(OPERATION_NAME, d->past < positions, "past is less than the number of positions");
}

static Status check(const Ctx *ctx, const Decode *d) {
    TRY(check_that(OPERATION_NAME, !ctx->training, "decoding is for inference only"));
    TRY(check_present(OPERATION_NAME, "token", d->token));
    TRY(check_present(OPERATION_NAME, "head", d->head));
    Dtype type = d->token.dtype;
    int64_t C = tensor_width(d->token), vocab = tensor_rows(d->head);
    TRY(check_dense(OPERATION_NAME, "token_id", d->token_id, I32, 1, 1));
    TRY(check_dense(OPERATION_NAME, "token", d->token, type, tensor_rows(d->token), C));
    TRY(check_that(OPERATION_NAME, d->heads > 0 && d->kv_heads > 0 && d->heads % d->kv_heads == 0,
                   "heads is a multiple of kv_heads"));
    TRY(check_that(OPERATION_NAME, d->activation >= 0 && d->activation < ACTIVATION_COUNT,
                   "the activation is a known one"));
    TRY(check_that(OPERATION_NAME, activation_gated(d->activation) == rms(d),
                   "RMS norms go with a gated activation"));
    TRY(check_that(OPERATION_NAME, !rms(d) || (!d->norm_after && d->token_scale == 1),
                   "RMS norms go before branches, with tokens as they are"));
    TRY(check_layers(d));
    TRY(check_positions(d));
    if (!d->norm_after || !tensor_empty(d->final_norm.weight))
        TRY(check_norm(d, "final norm", &d->final_norm, C));
    TRY(check_matrix(d, "head", d->head, vocab, C));
    TRY(check_that(OPERATION_NAME, d->asked >= 0 && d->asked <= vocab, "the head has what is asked"));
    if (!tensor_empty(d->past_on_device))
        TRY(check_dense(OPERATION_NAME, "past_on_device", d->past_on_device, I32, 1, 1));
    if (!tensor_empty(d->memory_length))
        TRY(check_dense(OPERATION_NAME, "memory_length", d->memory_length, I32, 1, 1));
    return check_dense(OPERATION_NAME, "logits", d->logits, dtype_wide(type), 1, vocab);
}

static void count_matrix(Tensor weight, double outputs, Work *w) {
    double share = outputs / (double)tensor_rows(weight);
    w->flops += 2 * share * (double)tensor_count(weight);
    w->bytes += share * (double)tensor_bytes(weight);
}

static void count_linear(const DecodeAffine *a, Work *w) {
    count_matrix(a->weight, (double)tensor_rows(a->weight), w);
    w->flops += (double)tensor_count(a->bias);
    w->bytes += (double)tensor_bytes(a->bias);
}

/* FLOPs per element, as norm.c counts them. */
static void count_norm(const Decode *d, const DecodeAffine *a, double elements, Work *w) {
    w->flops += elements * (rms(d) ? 4 : 8);
    w->bytes += (double)(tensor_bytes(a->weight) + tensor_bytes(a->bias));
}

/* Includes the branch's addition to the residual stream. */
static void count_attention(const Decode *d, const DecodeLayer *l, double rows, Work *w) {
    double queries = (double)tensor_width(l->projection.weight), C = (double)tensor_width(d->token);
    double elements = 2 * rows * queries / (double)d->heads * (double)d->kv_heads;
    w->flops += 4 * rows * queries + C;
    w->bytes += elements * (double)dtype_size(d->token.dtype);
}

/* Norms of heads and rotary positions. */
static void count_heads(const Decode *d, const DecodeLayer *l, Work *w) {
    double queries = (double)tensor_width(l->projection.weight), kv = (double)tensor_width(l->cache_k);
    if (!tensor_empty(l->query_norm.weight)) count_norm(d, &l->query_norm, queries, w);
    if (!tensor_empty(l->key_norm.weight)) count_norm(d, &l->key_norm, kv, w);
    if (!tensor_empty(d->frequencies)) w->flops += 3 * (queries + kv);
}

static void count_layer(const Decode *d, const DecodeLayer *l, Work *w) {
    double C = (double)tensor_width(d->token), hidden = (double)tensor_width(l->contract.weight);
    count_norm(d, &l->norm1, C, w);
    count_linear(&l->qkv, w);
    count_heads(d, l, w);
    count_attention(d, l, (double)d->past + 1, w);
    count_linear(&l->projection, w);
    if (!tensor_empty(l->memory)) {
        count_norm(d, &l->cross_norm, C, w);
        count_linear(&l->query, w);
        count_attention(d, l, (double)tensor_rows(l->memory), w);
        count_linear(&l->cross_projection, w);
    }
    count_norm(d, &l->norm2, C, w);
    count_linear(&l->expand, w);
    count_linear(&l->contract, w);
    w->flops += activation_flops(d->activation, PASS_FORWARD) * hidden + C;
}

Work decode_work(const Decode *d) {
    double C = (double)tensor_width(d->token), size = (double)dtype_size(d->token.dtype);
    double positioned = tensor_empty(d->position) ? 0 : 1;
    double asked = (double)(d->asked ? d->asked : tensor_rows(d->head));
    Work w = {.flops = C * (positioned + (d->token_scale != 1)),
              .bytes = size * C * (1 + positioned) + (double)tensor_bytes(d->frequencies) +
                       asked * (double)dtype_size(d->logits.dtype)};
    for (int64_t i = 0; i < d->layer_count; i++) count_layer(d, &d->layers[i], &w);
    if (!tensor_empty(d->final_norm.weight)) count_norm(d, &d->final_norm, C, &w);
    count_matrix(d->head, asked, &w);
    return w;
}

/* Whether it has kernels for all weights: floats or, with RMS norms but without FUSE_INVARIANT, also I8. */
static bool reads_weights(const Ctx *ctx, const Decode *d) {
    const DecodeLayer *l = &d->layers[0];
    const Dtype dtypes[] = {l->qkv.weight.dtype, l->projection.weight.dtype, l->expand.weight.dtype,
                            l->contract.weight.dtype, d->head.dtype};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtype_grouped(dtypes[i]) && (dtypes[i] != I8 || !rms(d) || ctx->fuses & FUSE_INVARIANT))
            return false;
    return true;
}

/* Whether the fused form runs: every operation that it replaces must be fused, and it must have kernels for
 * the decoder. Without FUSE_INVARIANT its sums may have another order than those of several rows; with it there
 * is no cross attention. */
static bool fused(const Ctx *ctx, const Decode *d) {
    static const Operation all[] = {OP_EMBED, OP_NORM, OP_LINEAR, OP_ATTENTION, OP_DECODE};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (op_form(ctx, all[i], ctx->dtype) != FORM_FUSED) return false;
    const DecodeLayer *l = &d->layers[0];
    const DecodeSizes sizes = {tensor_width(d->token), tensor_width(l->projection.weight) / d->heads,
                               tensor_width(l->contract.weight), !tensor_empty(l->memory)};
    if (ctx->fuses & FUSE_INVARIANT && !tensor_empty(l->memory)) return false;
    if (d->norm_after && !tensor_empty(d->final_norm.weight)) return false;
    if (!reads_weights(ctx, d)) return false;
    return decode_cuda_serves && decode_cuda_serves(ctx, &sizes);
}

Status decode_forward(Ctx *ctx, const Decode *d) {
    TRY(check(ctx, d));
    if (!fused(ctx, d)) return decode_naive(ctx, d);
    Call call = {.operation = OP_DECODE,
                 .pass = PASS_FORWARD,
                 .dtype = d->token.dtype,
                 .contract = d,
                 .work = decode_work(d),
                 .outputs = {{"logits", d->logits}}};
    return op_run(ctx, &call);
}
