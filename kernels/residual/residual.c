#include "kernels/residual/residual.h"

static const Tensor none = {0};

/* ---- the operation that adds ---- */

/* Whether the linear layer adds the residual. With post-norm, the norm adds, because only the norm reads
 * the sum. With pre-norm, x must be written in any case, and adding it in the linear layer's epilogue
 * makes a forward pass 2% faster. A training step does not gain, so there the norm adds; in bf16 this rounds
 * once more, so inference that must give training's bits does the same. */
static bool linear_adds(const Ctx *ctx, const Residual *s) {
    return !s->post && !ctx->training && !(ctx->fuses & FUSE_INVARIANT);
}

/* x and the pending addition alternate between two tensors. Training keeps each block's x, which its last
 * norm's backward pass reads, and for blocks that run again also the pending addition below. */
Status residual_begin_block(Ctx *ctx, Residual *s, bool runs_again) {
    const bool due = !s->post && !linear_adds(ctx, s);
    Shape shape = s->x.shape;
    if (s->first) shape.d[1] = 1;
    for (int i = 0; i < 2; i++) {
        Tensor kept = s->kept[i];
        s->kept[i] = s->other[i];
        s->other[i] = kept;
    }
    if (ctx->training || s->first || tensor_empty(s->kept[0]))
        TRY(take(ctx, ARENA_SAVED, "residual", s->x.dtype, shape, &s->kept[0]));
    if (due && (runs_again || s->first || tensor_empty(s->kept[1])))
        TRY(take(ctx, ARENA_SAVED, "branch", s->x.dtype, shape, &s->kept[1]));
    s->closing = false;
    return OK;
}

static Status run_norm(Ctx *ctx, Residual *s, NormForward *n, ArenaKind saved) {
    n->x = s->x;
    n->skip = s->due;
    if (tensor_empty(s->due)) {
        n->dropout.rate = 0;
    } else {
        n->depth = n->dropout;
        n->depth.rate = s->due_depth;
        n->depth_rows = s->x.shape.d[1];
    }
    s->due = none;
    return norm_forward(ctx, n, saved);
}

Status residual_norm(Ctx *ctx, Residual *s, NormForward *n, ArenaKind saved) {
    const bool adds = !tensor_empty(s->due);
    if (adds && s->closing) n->r = s->kept[0];
    TRY(run_norm(ctx, s, n, saved));
    if (adds) s->x = n->r;
    return OK;
}

Status residual_normalize(Ctx *ctx, Residual *s, NormForward *n, ArenaKind saved) {
    if (s->closing) n->y = s->kept[0];
    TRY(run_norm(ctx, s, n, saved));
    s->x = n->y;
    return OK;
}

/* ---- first rows ---- */

/* (B, T, C) becomes (B, 1, C). */
static Status first_rows(Ctx *ctx, const char *name, ArenaKind saved, Tensor *x, PoolForward *p) {
    Shape shape = shape3(x->shape.d[0], 1, tensor_width(*x));
    *p = (PoolForward){.kind = POOL_FIRST, .x = *x};
    ctx->call = name;
    TRY(pool_forward(ctx, p, saved));
    *x = tensor_reshape(p->y, shape);
    return OK;
}

/* dy (B, 1, C); dx (B, T, C) is written, with zeros in the other rows. */
static Status first_rows_back(Ctx *ctx, const char *name, const PoolForward *forward, Tensor dy, Tensor dx) {
    PoolBackward p = {
        .forward = forward, .dy = tensor_reshape(dy, shape2(dy.shape.d[0], tensor_width(dy))), .dx = dx};
    ctx->call = name;
    return pool_backward(ctx, &p);
}

/* Drops all but the first rows, if the head reads only these and no later operation reads the others. */
static Status leave_others(Ctx *ctx, Residual *s, Tensor *u, ResidualAdd *add, ArenaKind saved) {
    const char *call = ctx->call;
    if (!s->first) return OK;
    TRY(first_rows(ctx, "first heads", saved, u, &add->first_u));
    TRY(first_rows(ctx, "first rows", saved, &s->x, &add->first_x));
    ctx->call = call;
    s->first = false;
    return OK;
}

/* For the operations below, d and du cover all rows again; `du` holds the first rows of du. */
static Status return_to_all(Ctx *ctx, ResidualGradient *g, const ResidualAdd *add, Tensor du, Tensor all_du) {
    const bool same = g->branch.data == g->d.data;
    TRY(first_rows_back(ctx, "first heads", &add->first_u, du, all_du));
    TRY(first_rows_back(ctx, "first rows", &add->first_x, g->d, g->all[0]));
    g->d = g->all[0];
    g->dropped = g->all[1];
    if (same) g->branch = g->d;
    return OK;
}

/* ---- the addition ---- */

Status residual_add(Ctx *ctx, Residual *s, Tensor u, double depth, ResidualAdd *add, ArenaKind saved) {
    const bool added = linear_adds(ctx, s);
    LinearForward *l = &add->linear;
    TRY(leave_others(ctx, s, &u, add, saved));
    l->x = u;
    l->skip = added ? s->x : none;
    if (s->closing) l->y = s->kept[added ? 0 : 1];
    /* A block that runs again need not recompute its output, which the block above already has. */
    const bool computed = s->again && s->closing && !tensor_empty(l->y);
    if (!computed) {
        TRY(take_missing(ctx, ARENA_SCRATCH, ctx->call, u.dtype, linear_pre_shape(l), &l->y));
        TRY(linear_forward(ctx, l, saved));
    }
    s->due = added ? none : l->y;
    s->due_depth = depth;
    if (added) s->x = l->y;
    return OK;
}

/* ---- backward ---- */

Status residual_gradient_take(Ctx *ctx, ResidualGradient *g, bool drops, Tensor x) {
    const bool all = !tensor_empty(x);
    if (drops) TRY(take(ctx, ARENA_SCRATCH, "d branch", g->d.dtype, g->d.shape, &g->dropped));
    if (all) TRY(take(ctx, ARENA_SCRATCH, "d all residuals", x.dtype, x.shape, &g->all[0]));
    if (all && drops) TRY(take(ctx, ARENA_SCRATCH, "d all branches", x.dtype, x.shape, &g->all[1]));
    g->branch = g->d;
    return OK;
}

/* The gradient of x stays in the same tensor. */
static Status norm_back(Ctx *ctx, ResidualGradient *g, NormBackward *n) {
    const bool drops = norm_drops(n->forward);
    n->dr = g->d;
    n->dskip = drops ? g->dropped : none;
    g->branch = drops ? g->dropped : g->d;
    return norm_backward(ctx, n);
}

Status residual_norm_backward(Ctx *ctx, ResidualGradient *g, NormBackward *n) {
    n->accumulate = true;
    n->dr_sums = g->bias;
    g->bias = none;
    return norm_back(ctx, g, n);
}

Status residual_normalize_backward(Ctx *ctx, ResidualGradient *g, NormBackward *n) {
    n->dy = g->d;
    return norm_back(ctx, g, n);
}

/* With pre-norm, the norm's backward pass reads d and can sum its rows, which gives the bias gradient
 * unless dropout is on. */
static bool norm_sums(const ResidualGradient *g) {
    return !g->post && g->branch.data == g->d.data;
}

Status residual_add_backward(Ctx *ctx, ResidualGradient *g, const ResidualAdd *add, LinearBackward *l) {
    const Tensor all = l->dx;
    const bool first = !tensor_empty(add->first_x.x);
    l->forward = &add->linear;
    l->dy = g->branch;
    if (norm_sums(g)) {
        g->bias = l->dbias;
        l->dbias = none;
    }
    if (first) TRY(take(ctx, ARENA_SCRATCH, "d first heads", all.dtype, add->linear.x.shape, &l->dx));
    TRY(linear_backward(ctx, l));
    return first ? return_to_all(ctx, g, add, l->dx, all) : OK;
}
