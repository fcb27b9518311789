#include "kernels/attention/attention.h"
#include "kernels/decode/decode.h"
#include "kernels/embed/embed.h"
#include "kernels/norm/norm.h"

/* What a token's way through the stack is written to: each (1, 1, width). */
typedef struct {
    Form form;
    Tensor embedding, first, second, branch; // C: r is in the first three in turn; what is added to it
    Tensor normal, qkv, merged, hidden;
    Tensor mean, rstd; // (1)
} Row;

static Status take_row(Ctx *ctx, const char *name, int64_t width, Tensor *t) {
    return take(ctx, ARENA_SCRATCH, name, ctx->dtype, shape3(1, 1, width), t);
}

static Status take_rows(Ctx *ctx, const Decode *d, Row *row) {
    const DecodeLayer *l = &d->layers[0]; // as all are
    int64_t C = tensor_width(d->token);
    TRY(take_row(ctx, "decode.embedding", C, &row->embedding));
    TRY(take_row(ctx, "decode.first", C, &row->first));
    TRY(take_row(ctx, "decode.second", C, &row->second));
    TRY(take_row(ctx, "decode.branch", C, &row->branch));
    TRY(take_row(ctx, "decode.normal", C, &row->normal));
    TRY(take_row(ctx, "decode.qkv", tensor_rows(l->qkv.weight), &row->qkv));
    TRY(take_row(ctx, "decode.merged", tensor_width(l->projection.weight), &row->merged));
    TRY(take_row(ctx, "decode.hidden", tensor_rows(l->expand.weight), &row->hidden));
    TRY(take(ctx, ARENA_SCRATCH, "decode.mean", wide_dtype(ctx), shape1(1), &row->mean));
    return take(ctx, ARENA_SCRATCH, "decode.rstd", wide_dtype(ctx), shape1(1), &row->rstd);
}

static Status run(Ctx *ctx, Form form, Operation operation, const void *contract) {
    Operation whole = ctx->operation;
    OpFunction function = op_function(ctx->device->backend, ctx->dtype, operation, PASS_FORWARD, form);
    if (!function)
        return fail(ERROR_INTERNAL, "decode: %s has no %s form for %s on this device",
                    operation_name(operation), form_name(form), dtype_name(ctx->dtype));
    ctx->operation = operation; // whose primitives a profile sees
    Status status = function(ctx, contract);
    ctx->operation = whole;
    return status;
}

/* r = x + skip, where there is a skip; row->normal = norm(r). */
static Status norm(Ctx *ctx, const Decode *d, const Row *row, const DecodeAffine *a, Tensor x, Tensor skip,
                   Tensor r) {
    NormForward n = {.x = x,
                     .skip = skip,
                     .weight = a->weight,
                     .bias = a->bias,
                     .r = tensor_empty(skip) ? (Tensor){0} : r,
                     .y = row->normal,
                     .mean = row->mean,
                     .rstd = row->rstd,
                     .eps = d->eps};
    return run(ctx, row->form, OP_NORM, &n);
}

static Status linear(Ctx *ctx, const Row *row, const DecodeAffine *a, Tensor x, Activation activation,
                     Tensor y) {
    LinearForward l = {.x = x, .weight = a->weight, .bias = a->bias, .y = y, .activation = activation};
    return run(ctx, row->form, OP_LINEAR, &l);
}

static Status attention(Ctx *ctx, const Decode *d, const Row *row, const DecodeLayer *l) {
    int64_t queries = tensor_width(l->projection.weight), kv = tensor_width(l->cache_k);
    Shape cache = shape3(1, tensor_rows(l->cache_k), kv);
    AttentionForward a = {.q = tensor_columns(row->qkv, 0, queries),
                          .k = tensor_columns(row->qkv, queries, kv),
                          .v = tensor_columns(row->qkv, queries + kv, kv),
                          .y = row->merged,
                          .heads = d->heads,
                          .kv_heads = d->kv_heads,
                          .causal = true,
                          .scale = d->scale,
                          .cache_k = tensor_reshape(l->cache_k, cache),
                          .cache_v = tensor_reshape(l->cache_v, cache),
                          .past = d->past,
                          .past_on_device = d->past_on_device};
    return run(ctx, row->form, OP_ATTENTION, &a);
}

Status decode_compose(Ctx *ctx, const Decode *d, Form form) {
    Row row = {.form = form};
    TRY(take_rows(ctx, d, &row));
    EmbedForward e = {.tokens = tensor_reshape(d->token_id, shape2(1, 1)),
                      .token = d->token,
                      .position = d->position,
                      .scale = 1,
                      .y = row.embedding,
                      .past = d->past,
                      .past_on_device = d->past_on_device};
    TRY(run(ctx, form, OP_EMBED, &e));
    Tensor x = row.embedding, skip = {0};
    for (int64_t i = 0; i < d->layer_count; i++) {
        const DecodeLayer *l = &d->layers[i];
        TRY(norm(ctx, d, &row, &l->norm1, x, skip, row.first));
        if (!tensor_empty(skip)) x = row.first;
        TRY(linear(ctx, &row, &l->qkv, row.normal, ACTIVATION_NONE, row.qkv));
        TRY(attention(ctx, d, &row, l));
        TRY(linear(ctx, &row, &l->projection, row.merged, ACTIVATION_NONE, row.branch));
        TRY(norm(ctx, d, &row, &l->norm2, x, row.branch, row.second));
        TRY(linear(ctx, &row, &l->expand, row.normal, d->activation, row.hidden));
        TRY(linear(ctx, &row, &l->contract, row.hidden, ACTIVATION_NONE, row.branch));
        x = row.second;
        skip = row.branch;
    }
    TRY(norm(ctx, d, &row, &d->final_norm, x, skip, row.first));
    const DecodeAffine head = {.weight = d->head};
    return linear(ctx, &row, &head, row.normal, ACTIVATION_NONE, d->logits);
}
