#include "model/head.h"

static Tensor as_rows(Tensor t) {
    return tensor_reshape(t, shape2(tensor_rows(t), tensor_width(t)));
}

/* Linear, activation, norm: (M, C) to (M, C). Saved in training, else in scratch that the caller marked. */
static Status transform(Ctx *ctx, const Parameters *p, Tensor x, LinearForward *l, NormForward *n) {
    ArenaKind saved = ctx->training ? ARENA_SAVED : ARENA_SCRATCH;
    *l = (LinearForward){.x = x,
                         .weight = p->transform.weight.weight,
                         .bias = p->transform.bias.weight,
                         .activation = p->config.activation};
    ctx->call = "head transform";
    TRY(linear_forward(ctx, l, saved));
    *n = (NormForward){.kind = p->config.norm_kind,
                       .x = l->y,
                       .weight = p->transform_norm.weight.weight,
                       .bias = p->transform_norm.bias.weight,
                       .eps = p->config.norm_eps};
    ctx->call = "head norm";
    return norm_forward(ctx, n, saved);
}

static Status gather(Ctx *ctx, const Targets *t, Tensor *x, GatherForward *g) {
    if (tensor_empty(t->rows)) return OK;
    *g = (GatherForward){.x = *x, .rows = tensor_reshape(t->rows, shape1(tensor_count(t->rows)))};
    ctx->call = "gather";
    TRY(gather_forward(ctx, g, ARENA_SAVED));
    *x = g->y;
    return OK;
}

/* Whether rows must be pooled: a class head reads one row, unless the stack already returns only that row. */
static bool pools(const Config *c, Tensor hidden) {
    return c->architecture->task == TASK_CLASS && hidden.shape.d[1] > 1;
}

/* (B, T, C) to (B, C). */
static Status pool(Ctx *ctx, const Config *c, Tensor hidden, ArenaKind saved, PoolForward *p) {
    *p = (PoolForward){.kind = c->class_token ? POOL_FIRST : POOL_MEAN, .x = hidden};
    ctx->call = "pool";
    return pool_forward(ctx, p, saved);
}

Status head_forward(Ctx *ctx, const Parameters *p, Tensor hidden, const Targets *t, Tensor loss_sum,
                    Head *h) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    Tensor x = as_rows(hidden);
    *h = (Head){.hidden = hidden.shape};
    ctx->layer = -1;
    TRY(gather(ctx, t, &x, &h->gather));
    if (pools(&p->config, hidden)) {
        TRY(pool(ctx, &p->config, hidden, ARENA_SAVED, &h->pool));
        x = h->pool.y;
    }
    if (p->config.head_transform) {
        TRY(transform(ctx, p, x, &h->transform, &h->norm));
        x = h->norm.y;
    }
    Tensor weight;
    TRY(dequantize_values(ctx, p->head.weight, x.dtype, &weight));
    h->loss = (Loss){.hidden = x,
                     .weight = weight,
                     .bias = p->head_bias.weight,
                     .targets = tensor_reshape(t->targets, shape1(tensor_rows(x))),
                     .vocab = p->config.vocab,
                     .scale = t->scale,
                     .count = t->count,
                     .smoothing = t->smoothing,
                     .loss = loss_sum};
    if (ctx->training) {
        h->loss.dweight = p->head.gradient;
        h->loss.dbias = p->head_bias.gradient;
    }
    ctx->call = "head and loss";
    TRY(loss_forward(ctx, &h->loss, ARENA_SAVED));
    arena_release(scratch, mark);
    return OK;
}

/* Mirrors `transform`: turns the gradient of its output into that of its input, in a new tensor. */
static Status transform_back(Ctx *ctx, const Parameters *p, const Head *h, Tensor dy, Tensor *dx) {
    Tensor dr;
    TRY(take(ctx, ARENA_SAVED, "d head norm", dy.dtype, dy.shape, &dr));
    TRY(take(ctx, ARENA_SAVED, "d head transform", dy.dtype, dy.shape, dx));
    NormBackward n = {.forward = &h->norm,
                      .dy = dy,
                      .dr = dr,
                      .dweight = p->transform_norm.weight.gradient,
                      .dbias = p->transform_norm.bias.gradient};
    ctx->call = "head norm";
    TRY(norm_backward(ctx, &n));
    LinearBackward l = {.forward = &h->transform,
                        .dy = dr,
                        .dx = *dx,
                        .dweight = p->transform.weight.gradient,
                        .dbias = p->transform.bias.gradient};
    ctx->call = "head transform";
    return linear_backward(ctx, &l);
}

Status head_backward(Ctx *ctx, const Parameters *p, const Head *h, Tensor *dhidden) {
    ctx->layer = -1;
    ctx->call = "head and loss";
    TRY(loss_backward(ctx, &h->loss));
    Tensor d = h->loss.dhidden;
    if (p->config.head_transform) TRY(transform_back(ctx, p, h, d, &d));
    if (!tensor_empty(h->pool.x)) {
        TRY(take(ctx, ARENA_SAVED, "d all rows", d.dtype, h->hidden, dhidden));
        PoolBackward b = {.forward = &h->pool, .dy = d, .dx = *dhidden};
        ctx->call = "pool";
        return pool_backward(ctx, &b);
    }
    if (tensor_empty(h->gather.rows)) {
        *dhidden = tensor_reshape(d, h->hidden);
        return OK;
    }
    TRY(take(ctx, ARENA_SAVED, "d all rows", d.dtype, h->hidden, dhidden));
    GatherBackward g = {.forward = &h->gather, .dy = d, .dx = as_rows(*dhidden)};
    ctx->call = "gather";
    return gather_backward(ctx, &g);
}

Status head_logits(Ctx *ctx, const Parameters *p, Tensor hidden, Tensor logits) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    bool training = ctx->training;
    Tensor x = as_rows(hidden);
    ctx->layer = -1;
    ctx->training = false;
    if (pools(&p->config, hidden)) {
        PoolForward first;
        TRY(pool(ctx, &p->config, hidden, ARENA_SCRATCH, &first));
        x = first.y;
    }
    if (p->config.head_transform) {
        LinearForward l;
        NormForward n;
        TRY(transform(ctx, p, x, &l, &n));
        x = n.y;
    }
    LinearForward head = {
        .x = x, .weight = p->head.weight, .bias = p->head_bias.weight, .y = logits, .asked = p->config.vocab};
    ctx->call = "head";
    TRY(linear_forward(ctx, &head, ARENA_SCRATCH));
    ctx->training = training;
    arena_release(scratch, mark);
    return OK;
}
