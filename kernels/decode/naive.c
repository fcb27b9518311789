/* The specification of decode: the operations that it fuses, one after another. */
#include "kernels/decode/decode.h"
#include "kernels/embed/embed.h"
#include "kernels/residual/residual.h"

/* Each operation is dispatched separately, in the form selected for it. */

/* A token on its way through the layers. */
typedef struct {
    Ctx *ctx;
    const Decode *d;
    const DecodeLayer *l;
    Residual x;
} Token;

static Status linear(Token *t, const char *name, const DecodeAffine *a, Tensor x, LinearForward *l) {
    l->x = x;
    l->weight = a->weight;
    l->bias = a->bias;
    t->ctx->call = name;
    return linear_forward(t->ctx, l, ARENA_SCRATCH);
}

/* x = x + linear(u) */
static Status add(Token *t, const char *name, const DecodeAffine *a, Tensor u) {
    ResidualAdd r = {.linear = {.weight = a->weight, .bias = a->bias, .fp8 = true}};
    t->ctx->call = name;
    return residual_add(t->ctx, &t->x, u, 0, &r, ARENA_SCRATCH);
}

static NormForward norm(Token *t, const char *name, const DecodeAffine *a) {
    t->ctx->call = name;
    return (NormForward){.kind = t->d->norm_kind, .weight = a->weight, .bias = a->bias, .eps = t->d->eps};
}

static Status head_norm(Token *t, const char *name, const DecodeAffine *a, Tensor x) {
    if (tensor_empty(a->weight)) return OK;
    NormForward n = norm(t, name, a);
    n.x = n.y = x;
    return norm_forward(t->ctx, &n, ARENA_SCRATCH);
}

static Status attend(Token *t, const char *name, AttentionForward *a) {
    t->ctx->call = name;
    return attention_forward(t->ctx, a, ARENA_SCRATCH);
}

/* (rows, columns) as the rows of one sequence. */
static Tensor of_sequence(Tensor rows) {
    return tensor_reshape(rows, shape3(1, tensor_rows(rows), tensor_width(rows)));
}

/* Queries come first, then keys, then values. */
AttentionForward decode_attention(const Decode *d, const DecodeLayer *l, Tensor qkv) {
    const int64_t Q = tensor_width(l->projection.weight), kv = tensor_width(l->cache_k);
    const Tensor row = of_sequence(qkv);
    return (AttentionForward){.q = tensor_columns(row, 0, Q),
                              .k = tensor_columns(row, Q, kv),
                              .v = tensor_columns(row, Q + kv, kv),
                              .heads = d->heads,
                              .kv_heads = d->kv_heads,
                              .causal = true,
                              .scale = d->scale,
                              .frequencies = d->frequencies,
                              .cache_k = of_sequence(l->cache_k),
                              .cache_v = of_sequence(l->cache_v),
                              .past = d->past,
                              .past_on_device = d->past_on_device};
}

/* ---- the branches: x = x + f(u) ---- */

static Status self_attention(Token *t, Tensor u) {
    LinearForward qkv = {.parts = t->d->qkv_parts, .fp8 = true};
    TRY(linear(t, "attention.qkv", &t->l->qkv, u, &qkv));
    AttentionForward a = decode_attention(t->d, t->l, qkv.y);
    TRY(head_norm(t, "query norm", &t->l->query_norm, a.q));
    TRY(head_norm(t, "key norm", &t->l->key_norm, a.k));
    TRY(attend(t, "attention", &a));
    return add(t, "attention.projection", &t->l->projection, a.y);
}

static Status cross_attention(Token *t, Tensor u) {
    const Tensor memory = of_sequence(t->l->memory);
    const int64_t kv = tensor_width(t->l->cache_k);
    LinearForward query = {.fp8 = true};
    TRY(linear(t, "cross.query", &t->l->query, u, &query));
    AttentionForward a = {.q = query.y,
                          .k = tensor_columns(memory, 0, kv),
                          .v = tensor_columns(memory, kv, kv),
                          .key_lengths = t->d->memory_length,
                          .heads = t->d->heads,
                          .kv_heads = t->d->kv_heads,
                          .scale = t->d->scale};
    TRY(attend(t, "cross attention", &a));
    return add(t, "cross.projection", &t->l->cross_projection, a.y);
}

static Status feed_forward(Token *t, Tensor u) {
    LinearForward expand = {.activation = t->d->activation, .fp8 = true};
    TRY(linear(t, "mlp.expand", &t->l->expand, u, &expand));
    return add(t, "mlp.contract", &t->l->contract, expand.y);
}

static Status branch(Token *t, const char *name, const DecodeAffine *a, Status (*f)(Token *t, Tensor u)) {
    if (!t->d->norm_after) { // x = x + f(norm(x))
        NormForward n = norm(t, name, a);
        TRY(residual_norm(t->ctx, &t->x, &n, ARENA_SCRATCH));
        return f(t, n.y);
    }
    TRY(f(t, t->x.x)); // x = norm(x + f(x))
    NormForward n = norm(t, name, a);
    return residual_normalize(t->ctx, &t->x, &n, ARENA_SCRATCH);
}

/* ---- the decoder ---- */

static Status embed(Token *t) {
    const Decode *d = t->d;
    EmbedForward e = {.tokens = tensor_reshape(d->token_id, shape2(1, 1)),
                      .token = d->token,
                      .position = d->position,
                      .scale = d->token_scale,
                      .past = d->past,
                      .past_on_device = d->past_on_device};
    t->ctx->layer = -1;
    t->ctx->call = "embed";
    TRY(embed_forward(t->ctx, &e, ARENA_SAVED));
    t->x.x = e.y;
    return OK;
}

static Status layer(Token *t) {
    Arena *scratch = &t->ctx->arenas[ARENA_SCRATCH];
    t->ctx->layer = t->l->number;
    TRY(residual_begin_block(t->ctx, &t->x, false));
    ArenaMark mark = arena_mark(scratch);
    scope_begin_part(t->ctx, t->l->name);
    TRY(branch(t, "norm1", &t->l->norm1, self_attention));
    if (!tensor_empty(t->l->memory)) TRY(branch(t, "cross norm", &t->l->cross_norm, cross_attention));
    t->x.closing = true;
    TRY(branch(t, "norm2", &t->l->norm2, feed_forward));
    scope_end(t->ctx);
    arena_release(scratch, mark);
    t->ctx->layer = -1;
    return OK;
}

Status decode_naive(Ctx *ctx, const Decode *d) {
    Token t = {.ctx = ctx, .d = d, .x = {.post = d->norm_after}};
    const ArenaMark saved = arena_mark(&ctx->arenas[ARENA_SAVED]);
    const ArenaMark scratch = arena_mark(&ctx->arenas[ARENA_SCRATCH]);
    TRY(embed(&t));
    for (int64_t i = 0; i < d->layer_count; i++) {
        t.l = &d->layers[i];
        TRY(layer(&t));
    }
    Tensor hidden = t.x.x;
    if (!tensor_empty(d->final_norm.weight)) {
        NormForward n = norm(&t, "final norm", &d->final_norm);
        t.x.closing = false;
        TRY(residual_norm(ctx, &t.x, &n, ARENA_SAVED));
        hidden = n.y;
    }
    LinearForward head = {.y = d->logits, .asked = d->asked};
    TRY(linear(&t, "head", &(DecodeAffine){.weight = d->head}, hidden, &head));
    arena_release(&ctx->arenas[ARENA_SCRATCH], scratch);
    arena_release(&ctx->arenas[ARENA_SAVED], saved);
    return OK;
}
