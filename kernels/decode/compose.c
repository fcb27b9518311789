#include "kernels/attention/attention.h"
#include "kernels/decode/decode.h"
#include "kernels/embed/embed.h"
#include "kernels/norm/norm.h"

/* What a token's way through the stack is written to: each (1, 1, width). */
typedef struct {
    Form form;
    Tensor x, skip;            // C: the stream, and what is still to be added to it, or empty
    Tensor streams[2], branch; // C: x is in the first two in turn, and skip in the third
    Tensor normal, qkv, query, merged, hidden;
    Tensor mean, rstd; // (1)
} Row;

static Status take_row(Ctx *ctx, const char *name, int64_t width, Tensor *t) {
    return take(ctx, ARENA_SCRATCH, name, ctx->dtype, shape3(1, 1, width), t);
}

static Status take_rows(Ctx *ctx, const Decode *d, Row *row) {
    const DecodeLayer *l = &d->layers[0]; // as all are
    int64_t C = tensor_width(d->token);
    TRY(take_row(ctx, "decode.first", C, &row->streams[0]));
    TRY(take_row(ctx, "decode.second", C, &row->streams[1]));
    TRY(take_row(ctx, "decode.branch", C, &row->branch));
    TRY(take_row(ctx, "decode.normal", C, &row->normal));
    TRY(take_row(ctx, "decode.qkv", tensor_rows(l->qkv.weight), &row->qkv));
    TRY(take_row(ctx, "decode.query", tensor_width(l->projection.weight), &row->query));
    TRY(take_row(ctx, "decode.merged", tensor_width(l->projection.weight), &row->merged));
    TRY(take_row(ctx, "decode.hidden", tensor_rows(l->expand.weight), &row->hidden));
    TRY(take(ctx, ARENA_SCRATCH, "decode.mean", wide_dtype(ctx), shape1(1), &row->mean));
    return take(ctx, ARENA_SCRATCH, "decode.rstd", wide_dtype(ctx), shape1(1), &row->rstd);
}

static Status run(Ctx *ctx, Form form, Operation operation, const void *contract) {
    Operation whole = ctx->operation;
    OpFunction function = slot_function(ctx->device->backend, ctx->dtype, operation, PASS_FORWARD, form);
    if (!function)
        return fail(ERROR_INTERNAL, "decode: %s has no %s form for %s on this device",
                    operation_name(operation), form_name(form), dtype_name(ctx->dtype));
    ctx->operation = operation; // whose primitives a profile sees
    Status status = function(ctx, contract);
    ctx->operation = whole;
    return status;
}

/* r = x + skip, or x where there is no skip; y = norm(r). Without a skip nothing is written to r. */
static Status norm(Ctx *ctx, const Decode *d, const Row *row, const DecodeAffine *a, Tensor r, Tensor y) {
    NormForward n = {.x = row->x,
                     .skip = row->skip,
                     .weight = a->weight,
                     .bias = a->bias,
                     .r = tensor_empty(row->skip) ? (Tensor){0} : r,
                     .y = y,
                     .mean = row->mean,
                     .rstd = row->rstd,
                     .eps = d->eps};
    return run(ctx, row->form, OP_NORM, &n);
}

static Tensor next_stream(const Row *row) {
    return row->streams[row->x.data == row->streams[0].data];
}

/* Opens a branch: `u` is what it computes from. */
static Status enter(Ctx *ctx, const Decode *d, Row *row, const DecodeAffine *a, Tensor *u) {
    *u = row->x;
    if (d->norm_after) return OK;
    Tensor r = tensor_empty(row->skip) ? row->x : next_stream(row);
    TRY(norm(ctx, d, row, a, r, row->normal));
    row->x = r;
    row->skip = (Tensor){0};
    *u = row->normal;
    return OK;
}

/* Closes it: row->branch goes into the stream. */
static Status leave(Ctx *ctx, const Decode *d, Row *row, const DecodeAffine *a) {
    row->skip = row->branch;
    if (!d->norm_after) return OK;
    Tensor y = next_stream(row);
    TRY(norm(ctx, d, row, a, row->normal, y));
    row->x = y;
    row->skip = (Tensor){0};
    return OK;
}

static Status linear(Ctx *ctx, const Row *row, const DecodeAffine *a, Tensor x, Activation activation,
                     Tensor y) {
    LinearForward l = {.x = x, .weight = a->weight, .bias = a->bias, .y = y, .activation = activation};
    return run(ctx, row->form, OP_LINEAR, &l);
}

/* From keys and values, side by side in each row. */
static AttentionForward attention_of(const Decode *d, const Row *row, Tensor q, Tensor rows) {
    int64_t kv = tensor_width(rows) / 2;
    return (AttentionForward){.q = q,
                              .k = tensor_columns(rows, 0, kv),
                              .v = tensor_columns(rows, kv, kv),
                              .y = row->merged,
                              .heads = d->heads,
                              .kv_heads = d->kv_heads,
                              .scale = d->scale};
}

static Status attention(Ctx *ctx, const Decode *d, Row *row, const DecodeLayer *l) {
    int64_t queries = tensor_width(l->projection.weight), kv = tensor_width(l->cache_k);
    Shape cache = shape3(1, tensor_rows(l->cache_k), kv);
    Tensor u;
    TRY(enter(ctx, d, row, &l->norm1, &u));
    TRY(linear(ctx, row, &l->qkv, u, ACTIVATION_NONE, row->qkv));
    AttentionForward a =
        attention_of(d, row, tensor_columns(row->qkv, 0, queries), tensor_columns(row->qkv, queries, 2 * kv));
    a.causal = true;
    a.cache_k = tensor_reshape(l->cache_k, cache);
    a.cache_v = tensor_reshape(l->cache_v, cache);
    a.past = d->past;
    a.past_on_device = d->past_on_device;
    TRY(run(ctx, row->form, OP_ATTENTION, &a));
    TRY(linear(ctx, row, &l->projection, row->merged, ACTIVATION_NONE, row->branch));
    return leave(ctx, d, row, &l->norm1);
}

static Status cross_attention(Ctx *ctx, const Decode *d, Row *row, const DecodeLayer *l) {
    Shape memory = shape3(1, tensor_rows(l->memory), tensor_width(l->memory));
    Tensor u;
    TRY(enter(ctx, d, row, &l->cross_norm, &u));
    TRY(linear(ctx, row, &l->query, u, ACTIVATION_NONE, row->query));
    AttentionForward a = attention_of(d, row, row->query, tensor_reshape(l->memory, memory));
    a.key_lengths = d->memory_length;
    TRY(run(ctx, row->form, OP_ATTENTION, &a));
    TRY(linear(ctx, row, &l->cross_projection, row->merged, ACTIVATION_NONE, row->branch));
    return leave(ctx, d, row, &l->cross_norm);
}

static Status feed_forward(Ctx *ctx, const Decode *d, Row *row, const DecodeLayer *l) {
    Tensor u;
    TRY(enter(ctx, d, row, &l->norm2, &u));
    TRY(linear(ctx, row, &l->expand, u, d->activation, row->hidden));
    TRY(linear(ctx, row, &l->contract, row->hidden, ACTIVATION_NONE, row->branch));
    return leave(ctx, d, row, &l->norm2);
}

Status decode_compose(Ctx *ctx, const Decode *d, Form form) {
    Row row = {.form = form};
    TRY(take_rows(ctx, d, &row));
    row.x = row.streams[0];
    EmbedForward e = {.tokens = tensor_reshape(d->token_id, shape2(1, 1)),
                      .token = d->token,
                      .position = d->position,
                      .scale = d->token_scale,
                      .y = row.x,
                      .past = d->past,
                      .past_on_device = d->past_on_device};
    TRY(run(ctx, form, OP_EMBED, &e));
    for (int64_t i = 0; i < d->layer_count; i++) {
        const DecodeLayer *l = &d->layers[i];
        TRY(attention(ctx, d, &row, l));
        if (!tensor_empty(l->memory)) TRY(cross_attention(ctx, d, &row, l));
        TRY(feed_forward(ctx, d, &row, l));
    }
    Tensor hidden;
    TRY(enter(ctx, d, &row, &d->final_norm, &hidden));
    const DecodeAffine head = {.weight = d->head};
    return linear(ctx, &row, &head, hidden, ACTIVATION_NONE, d->logits);
}
