#include "model/block.h"

#include <math.h>

/* A norm over `x + skip` into `y`; r is taken unless the caller has it. */
static Status norm(Ctx *ctx, const Config *c, const Affine *parameters, ArenaKind inner, const char *name,
                   Tensor x, Tensor skip, Tensor r, NormForward *n) {
    Shape rows = shape1(tensor_rows(x));
    *n = (NormForward){.x = x,
                       .skip = skip,
                       .r = r,
                       .eps = c->norm_eps,
                       .weight = parameters->weight.weight,
                       .bias = parameters->bias.weight};
    if (!tensor_empty(skip) && tensor_empty(r)) TRY(take(ctx, inner, "residual", x.dtype, x.shape, &n->r));
    TRY(take(ctx, inner, "norm", x.dtype, x.shape, &n->y));
    TRY(take(ctx, inner, "norm.mean", wide_dtype(ctx), rows, &n->mean));
    TRY(take(ctx, inner, "norm.rstd", wide_dtype(ctx), rows, &n->rstd));
    ctx->place = name;
    return norm_forward(ctx, n);
}

/* A linear layer; y is taken unless the caller has it. */
static Status linear(Ctx *ctx, const Affine *parameters, ArenaKind inner, const char *name, Tensor x,
                     Activation activation, Tensor y, LinearForward *l) {
    int64_t out = parameters->weight.weight.shape.d[0];
    Shape shape = shape3(x.shape.d[0], x.shape.d[1], out);
    *l = (LinearForward){.x = x,
                         .y = y,
                         .weight = parameters->weight.weight,
                         .bias = parameters->bias.weight,
                         .activation = activation};
    if (activation != ACTIVATION_NONE && ctx->training)
        TRY(take(ctx, inner, "before activation", x.dtype, shape, &l->pre));
    if (tensor_empty(y)) TRY(take(ctx, inner, name, x.dtype, shape, &l->y));
    ctx->place = name;
    return linear_forward(ctx, l);
}

Status block_forward(Ctx *ctx, const Config *c, const BlockParameters *p, const BlockInput *in, Block *b) {
    const Tensor none = {0};
    int64_t C = c->width, kv = c->kv_heads * config_head_size(c);

    TRY(norm(ctx, c, &p->norm1, in->inner, "norm1", in->x, in->skip, none, &b->norm1));
    Tensor r1 = tensor_empty(in->skip) ? in->x : b->norm1.r;
    TRY(linear(ctx, &p->qkv, in->inner, "attention.qkv", b->norm1.y, ACTIVATION_NONE, none, &b->qkv));

    b->attention = (AttentionForward){.q = tensor_columns(b->qkv.y, 0, C),
                                      .k = tensor_columns(b->qkv.y, C, kv),
                                      .v = tensor_columns(b->qkv.y, C + kv, kv),
                                      .heads = c->heads,
                                      .kv_heads = c->kv_heads,
                                      .causal = c->mask == MASK_CAUSAL,
                                      .scale = 1 / sqrt((double)config_head_size(c)),
                                      .cache_k = in->cache_k,
                                      .cache_v = in->cache_v,
                                      .past = in->past,
                                      .past_on_device = in->past_on_device};
    TRY(take(ctx, in->inner, "attention", in->x.dtype, in->x.shape, &b->attention.y));
    ctx->place = "attention";
    TRY(attention_forward(ctx, &b->attention, in->inner));

    TRY(linear(ctx, &p->projection, in->inner, "attention.projection", b->attention.y, ACTIVATION_NONE, none,
               &b->projection));
    TRY(norm(ctx, c, &p->norm2, in->inner, "norm2", r1, b->projection.y, in->r2, &b->norm2));
    TRY(linear(ctx, &p->expand, in->inner, "mlp.expand", b->norm2.y, c->activation, none, &b->expand));
    if (in->again) {
        b->contract.x = b->expand.y;
        b->contract.weight = p->contract.weight.weight;
        b->contract.bias = p->contract.bias.weight;
        b->contract.y = in->m;
        return OK;
    }
    return linear(ctx, &p->contract, in->inner, "mlp.contract", b->expand.y, ACTIVATION_NONE, in->m,
                  &b->contract);
}

static Status norm_back(Ctx *ctx, const Affine *p, const char *name, const NormForward *forward, Tensor dy,
                        Tensor dr) {
    ctx->place = name;
    NormBackward n = {.forward = forward,
                      .dy = dy,
                      .dr = dr,
                      .accumulate = true,
                      .dweight = p->weight.gradient,
                      .dbias = p->bias.gradient};
    return norm_backward(ctx, &n);
}

static Status linear_back(Ctx *ctx, const Affine *p, const char *name, const LinearForward *forward,
                          const LinearForward *input, Tensor dy, Tensor dx) {
    ctx->place = name;
    /* Whoever consumes an activated layer returns the gradient before its activation: see `input`. */
    LinearBackward l = {.forward = forward,
                        .input = input,
                        .dy = dy,
                        .dx = dx,
                        .dy_is_dpre = forward->activation != ACTIVATION_NONE,
                        .dweight = p->weight.gradient,
                        .dbias = p->bias.gradient};
    return linear_backward(ctx, &l);
}

/* Mirrors block_forward from its last line to its first. */
Status block_backward(Ctx *ctx, const BlockParameters *p, const Block *b, Tensor d) {
    Tensor dexpand, dnorm, dattention, dqkv;
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark start = arena_mark(scratch);

    TRY(take(ctx, ARENA_SCRATCH, "d norm", d.dtype, d.shape, &dnorm));
    ArenaMark mark = arena_mark(scratch);
    TRY(take(ctx, ARENA_SCRATCH, "d expand", d.dtype, b->expand.y.shape, &dexpand));
    TRY(linear_back(ctx, &p->contract, "mlp.contract", &b->contract, &b->expand, d, dexpand));
    TRY(linear_back(ctx, &p->expand, "mlp.expand", &b->expand, NULL, dexpand, dnorm));
    TRY(norm_back(ctx, &p->norm2, "norm2", &b->norm2, dnorm, d));
    arena_release(scratch, mark);

    dattention = dnorm;
    TRY(take(ctx, ARENA_SCRATCH, "d qkv", d.dtype, b->qkv.y.shape, &dqkv));
    TRY(linear_back(ctx, &p->projection, "attention.projection", &b->projection, NULL, d, dattention));
    int64_t C = tensor_width(b->attention.q), kv = tensor_width(b->attention.k);
    AttentionBackward attention = {.forward = &b->attention,
                                   .dy = dattention,
                                   .dq = tensor_columns(dqkv, 0, C),
                                   .dk = tensor_columns(dqkv, C, kv),
                                   .dv = tensor_columns(dqkv, C + kv, kv)};
    ctx->place = "attention";
    TRY(attention_backward(ctx, &attention));
    TRY(linear_back(ctx, &p->qkv, "attention.qkv", &b->qkv, NULL, dqkv, dnorm));
    TRY(norm_back(ctx, &p->norm1, "norm1", &b->norm1, dnorm, d));
    arena_release(scratch, start);
    return OK;
}
