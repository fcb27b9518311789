#include "model/block.h"

#include "kernels/pool/first_rows.h"

#include <math.h>

static const Tensor none = {0};

/* A block's forward or backward pass under way. */
typedef struct {
    Ctx *ctx;
    const Config *config;
    const BlockParameters *p;
    Block *b;
    Tensor x, skip;    // forward: the stream
    StreamGradient *g; // backward: its gradient
    Tensor d_inside;   // backward, (B, T, C): the gradient of what lies inside a branch
} Walk;

/* What a branch has at its two ends: its norm, and the linear layer that closes it. */
typedef struct {
    const char *name; // of the norm
    int site;
    const Affine *norm_parameters;
    NormForward *norm;
    const char *closing_name;
    const Affine *closing_parameters;
    LinearForward *closing;
    bool last; // of the block
} Branch;

static Branch self_attention_of(const Walk *w) {
    return (Branch){"norm1",           SITE_NORM1,        &w->p->norm1, &w->b->norm1, "attention.projection",
                    &w->p->projection, &w->b->projection, false};
}

static Branch cross_attention_of(const Walk *w) {
    return (Branch){"cross norm",       SITE_CROSS_NORM,         &w->p->cross_norm,       &w->b->cross_norm,
                    "cross.projection", &w->p->cross_projection, &w->b->cross_projection, false};
}

static Branch feed_forward_of(const Walk *w) {
    return (Branch){"norm2",        SITE_NORM2,      &w->p->norm2,    &w->b->norm2,
                    "mlp.contract", &w->p->contract, &w->b->contract, true};
}

/* Queries, keys and values as so many layers. */
static int parts_of(const Config *c, int parts) {
    return !c->architecture->qkv_as_one && c->kv_heads == c->heads ? parts : 1;
}

Affine block_query_rows(const Affine *packed) {
    return affine_rows(packed, 0, tensor_width(packed->weight.weight));
}

/* And those that make keys and values. */
static Affine memory_rows(const Affine *packed) {
    int64_t C = tensor_width(packed->weight.weight);
    return affine_rows(packed, C, packed->weight.weight.shape.d[0] - C);
}

/* ---- the parts, each with its backward pass ---- */

/* r and y are taken unless they are given. */
static Status norm(Walk *w, const Branch *branch, Tensor r, Tensor y) {
    const BlockInput *in = &w->b->input;
    *branch->norm = (NormForward){.kind = w->config->norm_kind,
                                  .x = w->x,
                                  .skip = w->skip,
                                  .weight = branch->norm_parameters->weight.weight,
                                  .bias = branch->norm_parameters->bias.weight,
                                  .r = r,
                                  .y = y,
                                  .eps = w->config->norm_eps};
    if (!tensor_empty(w->skip)) {
        branch->norm->dropout = dropout_at(in->dropout, in->layer, branch->site);
        branch->norm->depth =
            depth_at(in->dropout, in->depth[branch->site == SITE_NORM2], in->layer, branch->site);
        branch->norm->depth_rows = w->x.shape.d[1];
    }
    w->ctx->call = branch->name;
    return norm_forward(w->ctx, branch->norm, in->inner);
}

/* Leaves in g->branch the gradient of what the norm added, where it added something. */
static Status norm_back(Walk *w, const Branch *branch, Tensor dy, Tensor dr, bool accumulate,
                        Tensor dr_sums) {
    StreamGradient *g = w->g;
    bool drops = norm_drops(branch->norm);
    NormBackward n = {.forward = branch->norm,
                      .dy = dy,
                      .dr = dr,
                      .accumulate = accumulate,
                      .dskip = drops ? g->masked : none,
                      .dweight = branch->norm_parameters->weight.gradient,
                      .dbias = branch->norm_parameters->bias.gradient,
                      .dr_sums = dr_sums};
    g->branch = drops ? g->masked : dr;
    w->ctx->call = branch->name;
    return norm_backward(w->ctx, &n);
}

/* Opens a branch: `u` is what it computes from. With the norm before, that is the norm of the stream,
 * whose sum is made here; the last branch's goes to the block's output. */
static Status enter(Walk *w, const Branch *branch, Tensor *u) {
    *u = w->x;
    if (w->config->norm_order == NORM_POST) return OK;
    bool skip = !tensor_empty(w->skip);
    TRY(norm(w, branch, branch->last && skip ? w->b->input.x_out : none, none));
    if (skip) w->x = branch->norm->r;
    w->skip = none;
    *u = branch->norm->y;
    return OK;
}

/* Where the gradient of u goes: with the norm after straight to the stream's, which it is added to. */
static Tensor gradient_of_u(const Walk *w) {
    return w->config->norm_order == NORM_POST ? w->g->d : w->d_inside;
}

/* The gradient of the bias that closes a branch is summed over the stream's. With the norm before, that norm
 * reads it anyway, and does it: this is then what it adds the sums to, else empty. */
static Tensor sums_left_to_norm(const Walk *w, const Branch *branch) {
    bool left = w->config->norm_order == NORM_PRE && w->g->branch.data == w->g->d.data;
    return left ? branch->closing_parameters->bias.gradient : none;
}

static Status enter_back(Walk *w, const Branch *branch) {
    if (w->config->norm_order == NORM_POST) return OK;
    return norm_back(w, branch, w->d_inside, w->g->d, true, sums_left_to_norm(w, branch));
}

/* `l` may say more of the layer than is set here. */
static Status linear(Walk *w, const char *name, const Affine *p, Tensor x, ArenaKind saved,
                     LinearForward *l) {
    l->x = x;
    l->weight = p->weight.weight;
    l->bias = p->bias.weight;
    w->ctx->call = name;
    return linear_forward(w->ctx, l, saved);
}

/* `input`: the activated layer whose output this one reads, or NULL. */
static Status linear_back(Walk *w, const char *name, const Affine *p, const LinearForward *forward,
                          const LinearForward *input, Tensor dy, Tensor dx, bool accumulate) {
    LinearBackward l = {.forward = forward,
                        .input = input,
                        .dy = dy,
                        /* Whoever reads an activated layer's output returns the gradient of its pre. */
                        .dy_is_dpre = forward->activation != ACTIVATION_NONE,
                        .dx = dx,
                        .accumulate = accumulate,
                        .dweight = p->weight.gradient,
                        .dbias = p->bias.gradient};
    w->ctx->call = name;
    return linear_backward(w->ctx, &l);
}

/* The layer that a branch begins with; `dy` is its gradient. */
static Status opening_back(Walk *w, const char *name, const Affine *p, const LinearForward *forward,
                           Tensor dy) {
    return linear_back(w, name, p, forward, NULL, dy, gradient_of_u(w), w->config->norm_order == NORM_POST);
}

/* The layer that closes a branch. With the norm before and when not training, it adds the stream to its
 * result: that makes a forward pass 2% faster, but not a training step, which leaves the sum to the norm. */
static Status closing(Walk *w, const Branch *branch, Tensor x) {
    const BlockInput *in = &w->b->input;
    bool before = w->config->norm_order == NORM_PRE, adds = before && !w->ctx->training;
    LinearForward *l = branch->closing;
    *l = (LinearForward){.x = x,
                         .weight = branch->closing_parameters->weight.weight,
                         .bias = branch->closing_parameters->bias.weight,
                         .skip = adds ? w->x : none};
    if (branch->last && before) l->y = adds ? in->x_out : in->skip_out;
    if (in->again && branch->last && before) return OK; // the result is there from the first time
    w->ctx->call = branch->closing_name;
    return linear_forward(w->ctx, l, ARENA_SCRATCH);
}

/* Its bias's gradient is left out where the norm sums it. */
static Status closing_back(Walk *w, const Branch *branch, const LinearForward *input, Tensor dx) {
    Affine p = *branch->closing_parameters;
    if (!tensor_empty(sums_left_to_norm(w, branch))) p.bias.gradient = none;
    return linear_back(w, branch->closing_name, &p, branch->closing, input, w->g->branch, dx, false);
}

/* Behind the closing layer: what that made goes into the stream. */
static Status leave(Walk *w, const Branch *branch) {
    bool added = !tensor_empty(branch->closing->skip);
    if (added) w->x = branch->closing->y;
    w->skip = added ? none : branch->closing->y;
    if (w->config->norm_order == NORM_PRE) return OK;
    TRY(norm(w, branch, none, branch->last ? w->b->input.x_out : none));
    w->x = branch->norm->y;
    w->skip = none;
    return OK;
}

/* g->branch is then the gradient of what the closing layer made. */
static Status leave_back(Walk *w, const Branch *branch) {
    StreamGradient *g = w->g;
    if (w->config->norm_order == NORM_PRE) return OK;
    TRY(norm_back(w, branch, g->d, g->spare, false, none));
    Tensor dr = g->spare;
    g->spare = g->d;
    g->d = dr;
    return OK;
}

/* `a` may say more than is set here. */
static Status attend(Walk *w, const char *name, Tensor q, Tensor k, Tensor v, AttentionForward *a) {
    const Config *c = w->config;
    a->q = q;
    a->k = k;
    a->v = v;
    a->heads = c->heads;
    a->kv_heads = c->kv_heads;
    a->scale = 1 / sqrt((double)c->head_size);
    w->ctx->call = name;
    return attention_forward(w->ctx, a, w->b->input.inner);
}

static Status attend_back(Walk *w, const char *name, const AttentionForward *forward, Tensor dy, Tensor dq,
                          Tensor dk, Tensor dv) {
    AttentionBackward a = {.forward = forward, .dy = dy, .dq = dq, .dk = dk, .dv = dv};
    w->ctx->call = name;
    return attention_backward(w->ctx, &a);
}

/* Keys and values: in each row the keys, then the values. */
static Tensor keys_of(const Config *c, Tensor keys_and_values) {
    return tensor_columns(keys_and_values, 0, config_kv_width(c));
}
static Tensor values_of(const Config *c, Tensor keys_and_values) {
    return tensor_columns(keys_and_values, config_kv_width(c), config_kv_width(c));
}

/* Queries, and behind them keys and values. */
static void split(const Walk *w, Tensor qkv, Tensor *q, Tensor *k, Tensor *v) {
    int64_t Q = config_query_width(w->config);
    Tensor keys_and_values = tensor_columns(qkv, Q, tensor_width(qkv) - Q);
    *q = tensor_columns(qkv, 0, Q);
    *k = keys_of(w->config, keys_and_values);
    *v = values_of(w->config, keys_and_values);
}

/* The gradient of what attention makes: d_inside, unless the heads are wider or narrower than the stream. */
static Status take_d_heads(Walk *w, Tensor heads, Tensor *d) {
    *d = w->d_inside;
    if (tensor_width(heads) == w->config->width) return OK;
    return take(w->ctx, ARENA_SCRATCH, "d heads", heads.dtype, heads.shape, d);
}

/* x, columns of the packed projection, becomes what is normed, where the config has such norms. */
static Status head_norm(Walk *w, const char *name, const Affine *p, Tensor *x, NormForward *n) {
    if (!w->config->head_norms) return OK;
    *n = (NormForward){
        .kind = NORM_RMS, .x = *x, .weight = p->weight.weight, .y = *x, .eps = w->config->norm_eps};
    if (w->ctx->training) n->y = none; // the backward pass reads x
    w->ctx->call = name;
    TRY(norm_forward(w->ctx, n, w->b->input.inner));
    *x = n->y;
    return OK;
}

/* In the place of the gradient of what it made comes that of what it read. */
static Status head_norm_back(Walk *w, const char *name, const Affine *p, const NormForward *forward,
                             Tensor d) {
    if (!w->config->head_norms) return OK;
    NormBackward n = {.forward = forward, .dy = d, .dr = d, .dweight = p->weight.gradient};
    w->ctx->call = name;
    return norm_backward(w->ctx, &n);
}

/* ---- first rows ---- */

/* From here down the stream's gradient is of all rows; what lies inside a branch is `dheads`, likewise. */
static Status widen(Walk *w, Tensor *dheads) {
    Block *b = w->b;
    StreamGradient *g = w->g;
    bool same = g->branch.data == g->d.data;
    Tensor d = *dheads;
    if (!b->input.first) return OK;
    TRY(take(w->ctx, ARENA_SCRATCH, "d all heads", d.dtype, b->attention.y.shape, dheads));
    TRY(first_rows_back(w->ctx, "first heads", &b->first_heads, d, *dheads));
    TRY(first_rows_back(w->ctx, "first rows", &b->first_x, g->d, g->whole[0]));
    g->d = g->whole[0];
    g->spare = g->whole[1];
    g->masked = g->whole[2];
    if (same) g->branch = g->d;
    return take(w->ctx, ARENA_SCRATCH, "d all rows", g->d.dtype, g->d.shape, &w->d_inside);
}

/* ---- the branches ---- */

static Status self_attention(Walk *w) {
    const BlockInput *in = &w->b->input;
    const Branch branch = self_attention_of(w);
    Block *b = w->b;
    Tensor u, q, k, v;
    b->qkv = (LinearForward){.parts = parts_of(w->config, 3)};
    b->attention = (AttentionForward){.key_lengths = in->lengths,
                                      .starts = in->starts,
                                      .causal = in->causal,
                                      .frequencies = in->frequencies,
                                      .dropout = dropout_at(in->dropout, in->layer, SITE_ATTENTION),
                                      .cache_k = in->cache_k,
                                      .cache_v = in->cache_v,
                                      .past = in->past,
                                      .past_on_device = in->past_on_device};
    TRY(enter(w, &branch, &u));
    TRY(linear(w, "attention.qkv", &w->p->qkv, u, in->inner, &b->qkv));
    split(w, b->qkv.y, &q, &k, &v);
    TRY(head_norm(w, "query norm", &w->p->query_norm, &q, &b->query_norm));
    TRY(head_norm(w, "key norm", &w->p->key_norm, &k, &b->key_norm));
    TRY(attend(w, "attention", q, k, v, &b->attention));
    if (!tensor_empty(in->map)) TRY(first_rows_map(w->ctx, &b->attention, in->map));
    Tensor heads = b->attention.y;
    if (in->first) {
        TRY(first_rows(w->ctx, "first heads", in->inner, &heads, &b->first_heads));
        TRY(first_rows(w->ctx, "first rows", in->inner, &w->x, &b->first_x));
    }
    TRY(closing(w, &branch, heads));
    return leave(w, &branch);
}

static Status self_attention_back(Walk *w) {
    const Branch branch = self_attention_of(w);
    Block *b = w->b;
    Tensor dqkv, dheads, dq, dk, dv;
    TRY(leave_back(w, &branch));
    TRY(take(w->ctx, ARENA_SCRATCH, "d qkv", b->qkv.y.dtype, b->qkv.y.shape, &dqkv));
    TRY(take_d_heads(w, b->projection.x, &dheads));
    split(w, dqkv, &dq, &dk, &dv);
    TRY(closing_back(w, &branch, NULL, dheads));
    TRY(widen(w, &dheads));
    TRY(attend_back(w, "attention", &b->attention, dheads, dq, dk, dv));
    TRY(head_norm_back(w, "key norm", &w->p->key_norm, &b->key_norm, dk));
    TRY(head_norm_back(w, "query norm", &w->p->query_norm, &b->query_norm, dq));
    TRY(opening_back(w, "attention.qkv", &w->p->qkv, &b->qkv, dqkv));
    return enter_back(w, &branch);
}

static Status cross_attention(Walk *w) {
    const BlockInput *in = &w->b->input;
    const Branch branch = cross_attention_of(w);
    const Affine query = block_query_rows(&w->p->cross), memory = memory_rows(&w->p->cross);
    Block *b = w->b;
    Tensor u, keys_and_values = in->memory_cache;
    b->cross_query = (LinearForward){0};
    b->cross_memory = (LinearForward){.parts = parts_of(w->config, 2)};
    b->cross = (AttentionForward){.key_lengths = in->memory_lengths,
                                  .dropout = dropout_at(in->dropout, in->layer, SITE_CROSS)};
    TRY(enter(w, &branch, &u));
    TRY(linear(w, "cross.query", &query, u, in->inner, &b->cross_query));
    if (tensor_empty(keys_and_values)) {
        TRY(linear(w, "cross.memory", &memory, in->memory, in->inner, &b->cross_memory));
        keys_and_values = b->cross_memory.y;
    }
    TRY(attend(w, "cross attention", b->cross_query.y, keys_of(w->config, keys_and_values),
               values_of(w->config, keys_and_values), &b->cross));
    TRY(closing(w, &branch, b->cross.y));
    return leave(w, &branch);
}

static Status cross_attention_back(Walk *w) {
    const Branch branch = cross_attention_of(w);
    const Affine query = block_query_rows(&w->p->cross), memory = memory_rows(&w->p->cross);
    Block *b = w->b;
    StreamGradient *g = w->g;
    const Config *c = w->config;
    Tensor dheads, dq, dkeys_and_values, kv = b->cross_memory.y;
    TRY(leave_back(w, &branch));
    TRY(take(w->ctx, ARENA_SCRATCH, "d query", b->cross_query.y.dtype, b->cross_query.y.shape, &dq));
    TRY(take(w->ctx, ARENA_SCRATCH, "d memory", kv.dtype, kv.shape, &dkeys_and_values));
    TRY(take_d_heads(w, b->cross.y, &dheads));
    TRY(closing_back(w, &branch, NULL, dheads));
    TRY(attend_back(w, "cross attention", &b->cross, dheads, dq, keys_of(c, dkeys_and_values),
                    values_of(c, dkeys_and_values)));
    TRY(linear_back(w, "cross.memory", &memory, &b->cross_memory, NULL, dkeys_and_values, g->memory,
                    g->memory_written));
    g->memory_written = true;
    TRY(opening_back(w, "cross.query", &query, &b->cross_query, dq));
    return enter_back(w, &branch);
}

static Status feed_forward(Walk *w) {
    const Branch branch = feed_forward_of(w);
    Block *b = w->b;
    Tensor u;
    b->expand = (LinearForward){.activation = w->config->activation};
    TRY(enter(w, &branch, &u));
    TRY(linear(w, "mlp.expand", &w->p->expand, u, b->input.hidden, &b->expand));
    TRY(closing(w, &branch, b->expand.y));
    return leave(w, &branch);
}

static Status feed_forward_back(Walk *w) {
    LinearForward expand = w->b->expand, contract = w->b->contract;
    Branch branch = feed_forward_of(w);
    branch.closing = &contract;
    TRY(leave_back(w, &branch));
    if (w->b->input.hidden != w->b->input.inner) { // what lies inside was not kept: a second time
        expand.pre = expand.y = none;
        TRY(linear(w, "mlp.expand", &w->p->expand, expand.x, ARENA_SCRATCH, &expand));
        contract.x = expand.y;
    }
    Tensor dexpand = expand.y; // its last reader is the product that writes its gradient: see linear.h
    if (activation_gated(expand.activation))
        TRY(take(w->ctx, ARENA_SCRATCH, "d gate and up", expand.pre.dtype, expand.pre.shape, &dexpand));
    TRY(closing_back(w, &branch, &expand, dexpand));
    TRY(opening_back(w, "mlp.expand", &w->p->expand, &expand, dexpand));
    return enter_back(w, &branch);
}

/* ---- the block ---- */

Status block_forward(Ctx *ctx, const Config *c, const BlockParameters *p, const BlockInput *in, Block *b) {
    Walk w = {.ctx = ctx, .config = c, .p = p, .b = b, .x = in->x, .skip = in->skip};
    b->input = *in;
    TRY(self_attention(&w));
    if (!tensor_empty(in->memory) || !tensor_empty(in->memory_cache)) TRY(cross_attention(&w));
    return feed_forward(&w);
}

Status block_backward(Ctx *ctx, const Config *c, const BlockParameters *p, Block *b, StreamGradient *g) {
    Walk w = {.ctx = ctx, .config = c, .p = p, .b = b, .g = g};
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark start = arena_mark(scratch);
    TRY(take(ctx, ARENA_SCRATCH, "d branch", g->d.dtype, g->d.shape, &w.d_inside));
    ArenaMark mark = arena_mark(scratch);
    TRY(feed_forward_back(&w));
    arena_release(scratch, mark);
    if (!tensor_empty(b->input.memory)) {
        TRY(cross_attention_back(&w));
        arena_release(scratch, mark);
    }
    TRY(self_attention_back(&w));
    arena_release(scratch, start);
    return OK;
}

Status block_memory(Ctx *ctx, const Config *c, const BlockParameters *p, Tensor memory,
                    Tensor keys_and_values) {
    const Affine rows = memory_rows(&p->cross);
    Walk w = {.ctx = ctx, .config = c, .p = p};
    LinearForward l = {.y = keys_and_values, .parts = parts_of(c, 2)};
    return linear(&w, "cross.memory", &rows, memory, ARENA_SCRATCH, &l);
}
