#include "model/block.h"

#include <math.h>

static const Tensor none = {0};

/* A block's forward pass under way. */
typedef struct {
    Ctx *ctx;
    const Config *config;
    const BlockInput *in;
    Tensor x, skip; // the stream
} Run;

/* What belongs to a norm of the block. */
typedef struct {
    const char *name;
    int site;
} NormSite;

static const NormSite norm1 = {"norm1", SITE_NORM1}, cross_norm = {"cross norm", SITE_CROSS_NORM},
                      norm2 = {"norm2", SITE_NORM2};

/* A norm over the stream; r and y are taken unless the caller has them. */
static Status norm(Run *run, const Affine *parameters, NormSite site, Tensor r, Tensor y, NormForward *n) {
    Ctx *ctx = run->ctx;
    ArenaKind inner = run->in->inner;
    Shape rows = shape1(tensor_rows(run->x)), shape = run->x.shape;
    *n = (NormForward){.x = run->x,
                       .skip = run->skip,
                       .r = r,
                       .y = y,
                       .eps = run->config->norm_eps,
                       .weight = parameters->weight.weight,
                       .bias = parameters->bias.weight};
    if (!tensor_empty(n->skip)) n->dropout = dropout_at(run->in->dropout, run->in->layer, site.site);
    if (!tensor_empty(n->skip) && tensor_empty(r))
        TRY(take(ctx, inner, "residual", ctx->dtype, shape, &n->r));
    if (tensor_empty(y)) TRY(take(ctx, inner, "norm", ctx->dtype, shape, &n->y));
    TRY(take(ctx, inner, "norm.mean", wide_dtype(ctx), rows, &n->mean));
    TRY(take(ctx, inner, "norm.rstd", wide_dtype(ctx), rows, &n->rstd));
    ctx->call = site.name;
    return norm_forward(ctx, n);
}

/* Opens a branch: `u` is what it computes from. With the norm before, that is the norm of the stream,
 * whose sum is made here; the last branch's goes to the block's output. */
static Status enter(Run *run, const Affine *parameters, NormSite name, bool last, NormForward *n, Tensor *u) {
    *u = run->x;
    if (run->config->norm_order == NORM_POST) return OK;
    bool skip = !tensor_empty(run->skip);
    TRY(norm(run, parameters, name, last && skip ? run->in->x_out : none, none, n));
    if (skip) run->x = n->r;
    run->skip = none;
    *u = n->y;
    return OK;
}

/* Closes it, behind its last layer: what that made goes into the stream. */
static Status leave(Run *run, const Affine *parameters, NormSite name, bool last,
                    const LinearForward *closing, NormForward *n) {
    bool added = !tensor_empty(closing->skip);
    if (added) run->x = closing->y;
    run->skip = added ? none : closing->y;
    if (run->config->norm_order == NORM_PRE) return OK;
    TRY(norm(run, parameters, name, none, last ? run->in->x_out : none, n));
    run->x = n->y;
    run->skip = none;
    return OK;
}

/* Queries, keys and values as so many layers. */
static int parts_of(const Config *c, int parts) {
    return !c->architecture->qkv_as_one && c->kv_heads == c->heads ? parts : 1;
}

/* Runs the layer. y is taken from `arena` unless the caller has it: from the scratch arena where the backward
 * pass does not read it. */
static Status run_linear(Ctx *ctx, const char *name, ArenaKind arena, LinearForward *l) {
    Tensor x = l->x;
    Shape shape = shape3(x.shape.d[0], x.shape.d[1], l->weight.shape.d[0]);
    if (l->activation != ACTIVATION_NONE && ctx->training)
        TRY(take(ctx, arena, "before activation", x.dtype, shape, &l->pre));
    if (tensor_empty(l->y)) TRY(take(ctx, arena, name, x.dtype, shape, &l->y));
    ctx->call = name;
    return linear_forward(ctx, l);
}

/* A linear layer with some of the rows of `parameters`. */
static Status linear(Run *run, const Affine *parameters, const char *name, Tensor x, Activation activation,
                     ArenaKind arena, Tensor y, int parts, LinearForward *l) {
    *l = (LinearForward){.x = x,
                         .y = y,
                         .weight = parameters->weight.weight,
                         .bias = parameters->bias.weight,
                         .activation = activation,
                         .parts = parts};
    return run_linear(run->ctx, name, arena, l);
}

/* The layer that closes a branch. With the norm before and when not training, it adds the stream to its
 * result: that makes a forward pass 2% faster, but not a training step, which leaves the sum to the norm. */
static Status closing_linear(Run *run, const Affine *parameters, const char *name, Tensor x, bool last,
                             LinearForward *l) {
    const BlockInput *in = run->in;
    bool before = run->config->norm_order == NORM_PRE, adds = before && !run->ctx->training;
    *l = (LinearForward){.x = x,
                         .y = !last || !before ? none
                              : adds           ? in->x_out
                                               : in->skip_out,
                         .weight = parameters->weight.weight,
                         .bias = parameters->bias.weight,
                         .skip = adds ? run->x : none};
    if (in->again && last && before) return OK; // the result is there from the first time
    return run_linear(run->ctx, name, ARENA_SCRATCH, l);
}

static Tensor rows_of(Tensor t, int64_t first, int64_t count) {
    if (tensor_empty(t)) return t;
    size_t bytes = (size_t)(first * t.stride) * dtype_size(t.dtype);
    Shape shape = t.shape.rank == 1 ? shape1(count) : shape2(count, tensor_width(t));
    if (t.shape.rank == 1) bytes = (size_t)first * dtype_size(t.dtype);
    return tensor_view((void *)((uintptr_t)t.data + bytes), t.dtype, shape);
}

static Parameter part(const Parameter *p, int64_t first, int64_t count) {
    return (Parameter){rows_of(p->weight, first, count), rows_of(p->gradient, first, count)};
}

Affine block_query_rows(const Affine *packed) {
    int64_t C = tensor_width(packed->weight.weight);
    return (Affine){part(&packed->weight, 0, C), part(&packed->bias, 0, C)};
}

/* And those that make keys and values. */
static Affine memory_rows(const Affine *packed) {
    int64_t C = tensor_width(packed->weight.weight), rows = packed->weight.weight.shape.d[0] - C;
    return (Affine){part(&packed->weight, C, rows), part(&packed->bias, C, rows)};
}

static Status attend(Run *run, const char *name, Tensor q, Tensor keys_and_values, AttentionForward *a) {
    Ctx *ctx = run->ctx;
    const Config *c = run->config;
    int64_t kv = c->kv_heads * config_head_size(c);
    a->q = q;
    a->k = tensor_columns(keys_and_values, 0, kv);
    a->v = tensor_columns(keys_and_values, kv, kv);
    a->heads = c->heads;
    a->kv_heads = c->kv_heads;
    a->scale = 1 / sqrt((double)config_head_size(c));
    TRY(take(ctx, run->in->inner, name, ctx->dtype, run->x.shape, &a->y));
    ctx->call = name;
    return attention_forward(ctx, a, run->in->inner);
}

static Status self_attention(Run *run, const BlockParameters *p, Block *b) {
    const BlockInput *in = run->in;
    int64_t C = run->config->width;
    Tensor u;
    TRY(enter(run, &p->norm1, norm1, false, &b->norm1, &u));
    TRY(linear(run, &p->qkv, "attention.qkv", u, ACTIVATION_NONE, in->inner, none, parts_of(run->config, 3),
               &b->qkv));
    b->attention = (AttentionForward){.key_lengths = in->lengths,
                                      .causal = in->causal,
                                      .dropout = dropout_at(in->dropout, in->layer, SITE_ATTENTION),
                                      .cache_k = in->cache_k,
                                      .cache_v = in->cache_v,
                                      .past = in->past,
                                      .past_on_device = in->past_on_device};
    Tensor keys_and_values = tensor_columns(b->qkv.y, C, tensor_width(b->qkv.y) - C);
    TRY(attend(run, "attention", tensor_columns(b->qkv.y, 0, C), keys_and_values, &b->attention));
    TRY(closing_linear(run, &p->projection, "attention.projection", b->attention.y, false, &b->projection));
    return leave(run, &p->norm1, norm1, false, &b->projection, &b->norm1);
}

static Status cross_attention(Run *run, const BlockParameters *p, Block *b) {
    const BlockInput *in = run->in;
    const Affine query = block_query_rows(&p->cross), memory = memory_rows(&p->cross);
    Tensor u, keys_and_values = in->memory_cache;
    TRY(enter(run, &p->cross_norm, cross_norm, false, &b->cross_norm, &u));
    TRY(linear(run, &query, "cross.query", u, ACTIVATION_NONE, in->inner, none, 1, &b->cross_query));
    if (tensor_empty(keys_and_values)) {
        TRY(linear(run, &memory, "cross.memory", in->memory, ACTIVATION_NONE, in->inner, none,
                   parts_of(run->config, 2), &b->cross_memory));
        keys_and_values = b->cross_memory.y;
    }
    b->cross = (AttentionForward){.key_lengths = in->memory_lengths,
                                  .dropout = dropout_at(in->dropout, in->layer, SITE_CROSS)};
    TRY(attend(run, "cross attention", b->cross_query.y, keys_and_values, &b->cross));
    TRY(closing_linear(run, &p->cross_projection, "cross.projection", b->cross.y, false,
                       &b->cross_projection));
    return leave(run, &p->cross_norm, cross_norm, false, &b->cross_projection, &b->cross_norm);
}

static Status feed_forward(Run *run, const BlockParameters *p, Block *b) {
    const BlockInput *in = run->in;
    Tensor u;
    TRY(enter(run, &p->norm2, norm2, true, &b->norm2, &u));
    TRY(linear(run, &p->expand, "mlp.expand", u, run->config->activation, in->hidden, none, 1, &b->expand));
    TRY(closing_linear(run, &p->contract, "mlp.contract", b->expand.y, true, &b->contract));
    return leave(run, &p->norm2, norm2, true, &b->contract, &b->norm2);
}

Status block_forward(Ctx *ctx, const Config *c, const BlockParameters *p, const BlockInput *in, Block *b) {
    Run run = {.ctx = ctx, .config = c, .in = in, .x = in->x, .skip = in->skip};
    TRY(self_attention(&run, p, b));
    if (!tensor_empty(in->memory) || !tensor_empty(in->memory_cache)) TRY(cross_attention(&run, p, b));
    TRY(feed_forward(&run, p, b));
    b->input = *in;
    return OK;
}

Status block_memory(Ctx *ctx, const Config *c, const BlockParameters *p, Tensor memory,
                    Tensor keys_and_values) {
    const BlockInput in = {.inner = ARENA_SCRATCH};
    const Affine rows = memory_rows(&p->cross);
    Run run = {.ctx = ctx, .config = c, .in = &in};
    LinearForward l;
    return linear(&run, &rows, "cross.memory", memory, ACTIVATION_NONE, ARENA_SCRATCH, keys_and_values,
                  parts_of(c, 2), &l);
}

/* ---- backward: from the last line to the first ---- */

/* Leaves in g->branch the gradient of what the norm added, where it added something. */
static Status norm_back(Ctx *ctx, const Affine *p, const char *name, const NormForward *forward, Tensor dy,
                        Tensor dr, bool accumulate, Tensor dr_sums, StreamGradient *g) {
    bool drops = dropout_on(&forward->dropout);
    ctx->call = name;
    g->branch = drops ? g->masked : dr;
    NormBackward n = {.forward = forward,
                      .dskip = drops ? g->masked : none,
                      .dy = dy,
                      .dr = dr,
                      .accumulate = accumulate,
                      .dweight = p->weight.gradient,
                      .dbias = p->bias.gradient,
                      .dr_sums = dr_sums};
    return norm_backward(ctx, &n);
}

/* Mirrors leave: g->branch is then the gradient of the branch's result. */
static Status leave_back(Ctx *ctx, const Config *c, const Affine *p, const char *name,
                         const NormForward *forward, StreamGradient *g) {
    if (c->norm_order == NORM_PRE) return OK;
    TRY(norm_back(ctx, p, name, forward, g->d, g->spare, false, none, g));
    Tensor dr = g->spare;
    g->spare = g->d;
    g->d = dr;
    return OK;
}

/* The gradient of the bias that closes a branch is summed over the stream's. With the norm before, that
 * norm reads it anyway, and does it: this is then what it adds the sums to, else empty. */
static Tensor sums_left_to_norm(const Config *c, const Affine *closing, const StreamGradient *g) {
    bool left = c->norm_order == NORM_PRE && g->branch.data == g->d.data;
    return left ? closing->bias.gradient : none;
}

/* Mirrors enter. With the norm after, the branch has added its input's gradient to g->d already. */
static Status enter_back(Ctx *ctx, const Config *c, const Affine *p, const char *name,
                         const NormForward *forward, Tensor du, Tensor sums, StreamGradient *g) {
    if (c->norm_order == NORM_POST) return OK;
    return norm_back(ctx, p, name, forward, du, g->d, true, sums, g);
}

static Status linear_back(Ctx *ctx, const Affine *p, const char *name, const LinearForward *forward,
                          const LinearForward *input, Tensor dy, Tensor dx, bool accumulate) {
    ctx->call = name;
    /* Whoever consumes an activated layer returns the gradient before its activation: see `input`. */
    LinearBackward l = {.forward = forward,
                        .input = input,
                        .dy = dy,
                        .dx = dx,
                        .accumulate = accumulate,
                        .dy_is_dpre = forward->activation != ACTIVATION_NONE,
                        .dweight = p->weight.gradient,
                        .dbias = p->bias.gradient};
    return linear_backward(ctx, &l);
}

/* The layer that closes a branch; its bias's gradient is left out where `sums` says that the norm takes
 * it. */
static Status closing_back(Ctx *ctx, const Affine *p, const char *name, const LinearForward *forward,
                           const LinearForward *input, Tensor dx, Tensor sums, const StreamGradient *g) {
    Affine closing = *p;
    if (!tensor_empty(sums)) closing.bias.gradient = none;
    return linear_back(ctx, &closing, name, forward, input, g->branch, dx, false);
}

static Status attend_back(Ctx *ctx, const char *name, const AttentionForward *forward, Tensor dy, Tensor dq,
                          Tensor dkeys_and_values) {
    int64_t kv = tensor_width(forward->k);
    AttentionBackward a = {.forward = forward,
                           .dy = dy,
                           .dq = dq,
                           .dk = tensor_columns(dkeys_and_values, 0, kv),
                           .dv = tensor_columns(dkeys_and_values, kv, kv)};
    ctx->call = name;
    return attention_backward(ctx, &a);
}

/* What lies inside the feed-forward layers, a second time. */
static Status hidden_again(Ctx *ctx, LinearForward *expand, LinearForward *contract) {
    TRY(take(ctx, ARENA_SCRATCH, "before activation", ctx->dtype, expand->pre.shape, &expand->pre));
    TRY(take(ctx, ARENA_SCRATCH, "mlp.expand", ctx->dtype, expand->y.shape, &expand->y));
    contract->x = expand->y;
    ctx->call = "mlp.expand";
    return linear_forward(ctx, expand);
}

/* `d_inside` is a tensor for what lies inside a branch; the gradient of the branch's input goes there too, or
 * with the norm after straight into the stream's. */
static Status feed_forward_back(Ctx *ctx, const Config *c, const BlockParameters *p, const Block *b,
                                Tensor d_inside, StreamGradient *g) {
    bool after = c->norm_order == NORM_POST;
    LinearForward expand = b->expand, contract = b->contract;
    TRY(leave_back(ctx, c, &p->norm2, norm2.name, &b->norm2, g));
    Tensor du = after ? g->d : d_inside, sums = sums_left_to_norm(c, &p->contract, g);
    if (b->input.hidden != b->input.inner) TRY(hidden_again(ctx, &expand, &contract));
    Tensor dexpand = expand.y; // its last reader is the product that writes its gradient: see linear.h
    TRY(closing_back(ctx, &p->contract, "mlp.contract", &contract, &expand, dexpand, sums, g));
    TRY(linear_back(ctx, &p->expand, "mlp.expand", &expand, NULL, dexpand, du, after));
    return enter_back(ctx, c, &p->norm2, norm2.name, &b->norm2, du, sums, g);
}

static Status cross_attention_back(Ctx *ctx, const Config *c, const BlockParameters *p, const Block *b,
                                   Tensor d_inside, StreamGradient *g) {
    const Affine query = block_query_rows(&p->cross), memory = memory_rows(&p->cross);
    bool after = c->norm_order == NORM_POST;
    Tensor dq, dkeys_and_values;
    TRY(leave_back(ctx, c, &p->cross_norm, cross_norm.name, &b->cross_norm, g));
    Tensor du = after ? g->d : d_inside, sums = sums_left_to_norm(c, &p->cross_projection, g);
    TRY(take(ctx, ARENA_SCRATCH, "d query", ctx->dtype, b->cross_query.y.shape, &dq));
    TRY(take(ctx, ARENA_SCRATCH, "d memory", ctx->dtype, b->cross_memory.y.shape, &dkeys_and_values));
    TRY(closing_back(ctx, &p->cross_projection, "cross.projection", &b->cross_projection, NULL, d_inside,
                     sums, g));
    TRY(attend_back(ctx, "cross attention", &b->cross, d_inside, dq, dkeys_and_values));
    TRY(linear_back(ctx, &memory, "cross.memory", &b->cross_memory, NULL, dkeys_and_values, g->memory,
                    g->memory_written));
    g->memory_written = true;
    TRY(linear_back(ctx, &query, "cross.query", &b->cross_query, NULL, dq, du, after));
    return enter_back(ctx, c, &p->cross_norm, cross_norm.name, &b->cross_norm, du, sums, g);
}

static Status self_attention_back(Ctx *ctx, const Config *c, const BlockParameters *p, const Block *b,
                                  Tensor d_inside, StreamGradient *g) {
    bool after = c->norm_order == NORM_POST;
    int64_t C = c->width;
    Tensor dqkv;
    TRY(leave_back(ctx, c, &p->norm1, norm1.name, &b->norm1, g));
    Tensor du = after ? g->d : d_inside, sums = sums_left_to_norm(c, &p->projection, g);
    TRY(take(ctx, ARENA_SCRATCH, "d qkv", ctx->dtype, b->qkv.y.shape, &dqkv));
    TRY(closing_back(ctx, &p->projection, "attention.projection", &b->projection, NULL, d_inside, sums, g));
    TRY(attend_back(ctx, "attention", &b->attention, d_inside, tensor_columns(dqkv, 0, C),
                    tensor_columns(dqkv, C, tensor_width(dqkv) - C)));
    TRY(linear_back(ctx, &p->qkv, "attention.qkv", &b->qkv, NULL, dqkv, du, after));
    return enter_back(ctx, c, &p->norm1, norm1.name, &b->norm1, du, sums, g);
}

Status block_backward(Ctx *ctx, const Config *c, const BlockParameters *p, const Block *b,
                      StreamGradient *g) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark start = arena_mark(scratch);
    Tensor d_inside;
    TRY(take(ctx, ARENA_SCRATCH, "d branch", ctx->dtype, g->d.shape, &d_inside));
    ArenaMark mark = arena_mark(scratch);
    TRY(feed_forward_back(ctx, c, p, b, d_inside, g));
    arena_release(scratch, mark);
    if (!tensor_empty(b->input.memory)) {
        TRY(cross_attention_back(ctx, c, p, b, d_inside, g));
        arena_release(scratch, mark);
    }
    TRY(self_attention_back(ctx, c, p, b, d_inside, g));
    arena_release(scratch, start);
    return OK;
}
