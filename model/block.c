#include "model/block.h"

#include "kernels/attention/attention.h"

#include <math.h>

static const Tensor none = {0};

/* A forward or backward pass through one block. */
typedef struct {
    Ctx *ctx;
    const BlockPass *pass;
    const Config *config;
    const BlockParameters *p;
    Block *b;
    int64_t layer;
    Residual *x;      // forward: the residual stream
    BlockGradient *g; // backward: its gradient
    Tensor inside;    // backward, (B, T, C): scratch for gradients inside a branch
} Walk;

/* The number of layers that are packed into one. */
static int parts_of(const Config *c, int parts) {
    return !c->architecture->qkv_as_one && c->kv_heads == c->heads ? parts : 1;
}

int block_qkv_parts(const Config *c) {
    return parts_of(c, 3);
}

Affine block_query_rows(const Affine *packed) {
    return affine_rows(packed, 0, tensor_width(packed->weight.weight));
}

/* The rows that produce keys and values. */
static Affine memory_rows(const Affine *packed) {
    int64_t C = tensor_width(packed->weight.weight);
    return affine_rows(packed, C, packed->weight.weight.shape.d[0] - C);
}

/* Inference keeps nothing beyond the block; training saves what is not recomputed. */
static ArenaKind saved_unless(const Walk *w, Recompute recomputed) {
    return w->ctx->training && block_recompute(w->pass, w->layer) < recomputed ? ARENA_SAVED : ARENA_SCRATCH;
}

static ArenaKind saved(const Walk *w) {
    return saved_unless(w, RECOMPUTE_BLOCKS);
}

/* Stochastic-depth rate of this layer's branches. */
static double depth_of(const Walk *w) {
    const BlockPass *pass = w->pass;
    return pass->layers > 1 ? pass->depth * (double)w->layer / (double)(pass->layers - 1) : pass->depth;
}

/* Cached keys and values of the encoder's output, or empty. */
static Tensor memory_cache(const Walk *w) {
    const Cache *cache = w->pass->cache;
    return cache && !tensor_empty(cache->memory) ? cache_layer(cache->memory, w->layer) : none;
}

/* ---- the parts, each with its backward pass ---- */

/* Under --fused=fp8 the blocks' products have 8-bit operands; embedding and head keep their dtype. */
static LinearForward layer_of(const Affine *p) {
    return (LinearForward){.weight = p->weight.weight,
                           .bias = p->bias.weight,
                           .fp8 = true,
                           .scales = p->weight.scales,
                           .seen = p->weight.seen,
                           .weight8 = p->weight.bytes};
}

/* `l` is the result of layer_of; the caller may set further fields. */
static Status linear(Walk *w, const char *name, Tensor x, ArenaKind where, LinearForward *l) {
    l->x = x;
    w->ctx->call = name;
    return linear_forward(w->ctx, l, where);
}

/* The caller sets dx and further fields of `l`. The reader of an activated layer's output returns the
 * gradient of its pre-activation. */
static Status linear_back(Walk *w, const char *name, const Affine *p, const LinearForward *forward, Tensor dy,
                          LinearBackward l) {
    l.forward = forward;
    l.dy = dy;
    l.dy_is_dpre = forward->activation != ACTIVATION_NONE;
    l.dweight = p->weight.gradient;
    l.dbias = p->bias.gradient;
    w->ctx->call = name;
    return linear_backward(w->ctx, &l);
}

/* x = x + linear(u): the layer that closes a branch. `input`: the activated layer that made u, or NULL. */
static Status add(Walk *w, const char *name, const Affine *p, Tensor u, const LinearForward *input,
                  ResidualAdd *a) {
    *a = (ResidualAdd){.linear = layer_of(p)};
    a->linear.input = input;
    w->ctx->call = name;
    return residual_add(w->ctx, w->x, u, depth_of(w), a, saved(w));
}

static Status add_back(Walk *w, const char *name, const Affine *p, const ResidualAdd *forward, Tensor du) {
    LinearBackward l = {
        .input = forward->linear.input, .dx = du, .dweight = p->weight.gradient, .dbias = p->bias.gradient};
    w->ctx->call = name;
    return residual_add_backward(w->ctx, &w->g->x, forward, &l);
}

/* The caller may set further fields of `a`. */
static Status attend(Walk *w, const char *name, Tensor q, Tensor k, Tensor v, AttentionForward *a) {
    const Config *c = w->config;
    a->q = q;
    a->k = k;
    a->v = v;
    a->heads = c->heads;
    a->kv_heads = c->kv_heads;
    a->scale = 1 / sqrt((double)c->head_size);
    w->ctx->call = name;
    return attention_forward(w->ctx, a, saved(w));
}

static Status attend_back(Walk *w, const char *name, const AttentionForward *forward, Tensor dy, Tensor dq,
                          Tensor dk, Tensor dv) {
    AttentionBackward a = {.forward = forward, .dy = dy, .dq = dq, .dk = dk, .dv = dv};
    w->ctx->call = name;
    return attention_backward(w->ctx, &a);
}

/* Views of keys and values: each row holds the keys, then the values. */
static Tensor keys_of(const Config *c, Tensor keys_and_values) {
    return tensor_columns(keys_and_values, 0, config_kv_width(c));
}
static Tensor values_of(const Config *c, Tensor keys_and_values) {
    return tensor_columns(keys_and_values, config_kv_width(c), config_kv_width(c));
}

/* Views of queries, keys and values in packed rows. */
static void split(const Walk *w, Tensor qkv, Tensor *q, Tensor *k, Tensor *v) {
    int64_t Q = config_query_width(w->config);
    Tensor keys_and_values = tensor_columns(qkv, Q, tensor_width(qkv) - Q);
    *q = tensor_columns(qkv, 0, Q);
    *k = keys_of(w->config, keys_and_values);
    *v = values_of(w->config, keys_and_values);
}

/* Memory for the gradient of attention's output: w->inside, unless the heads' total width differs from
 * x's. */
static Status take_d_heads(Walk *w, Tensor heads, Tensor *d) {
    *d = tensor_view(w->inside.data, heads.dtype, heads.shape);
    if (tensor_width(heads) == w->config->width) return OK;
    return take(w->ctx, ARENA_SCRATCH, "d heads", heads.dtype, heads.shape, d);
}

/* Normalizes the heads in x, columns of the packed projection, if the config has head norms. */
static Status head_norm(Walk *w, const char *name, const Affine *p, Tensor *x, NormForward *n) {
    if (!w->config->head_norms) return OK;
    *n = (NormForward){
        .kind = NORM_RMS, .x = *x, .weight = p->weight.weight, .y = *x, .eps = w->config->norm_eps};
    if (w->ctx->training) n->y = none; // the backward pass reads x
    w->ctx->call = name;
    TRY(norm_forward(w->ctx, n, saved(w)));
    *x = n->y;
    return OK;
}

/* Replaces the gradient of the norm's output by that of its input, in place. */
static Status head_norm_back(Walk *w, const char *name, const Affine *p, const NormForward *forward,
                             Tensor d) {
    if (!w->config->head_norms) return OK;
    NormBackward n = {.forward = forward, .dy = d, .dr = d, .dweight = p->weight.gradient};
    w->ctx->call = name;
    return norm_backward(w->ctx, &n);
}

/* ---- the branches: x = x + f(u) ---- */

static Status self_attention(Walk *w, Tensor u) {
    const BlockPass *pass = w->pass;
    const Cache *cache = pass->cache;
    Block *b = w->b;
    Tensor q, k, v;
    b->qkv = layer_of(&w->p->qkv);
    b->qkv.parts = block_qkv_parts(w->config);
    b->attention = (AttentionForward){
        .key_lengths = pass->batch.lengths,
        .starts = pass->batch.starts,
        .causal = pass->causal,
        .frequencies = pass->frequencies,
        .dropout = dropout_at(pass->dropout, pass->first_layer + w->layer, SITE_ATTENTION)};
    if (cache) {
        b->attention.cache_k = cache_rows(cache->k, w->layer, cache->first, u.shape.d[0]);
        b->attention.cache_v = cache_rows(cache->v, w->layer, cache->first, u.shape.d[0]);
        b->attention.past = cache->length;
        b->attention.pasts = cache->lengths;
        b->attention.past_on_device = cache->length_on_device;
    }
    TRY(linear(w, "attention.qkv", u, saved(w), &b->qkv));
    split(w, b->qkv.y, &q, &k, &v);
    TRY(head_norm(w, "query norm", &w->p->query_norm, &q, &b->query_norm));
    TRY(head_norm(w, "key norm", &w->p->key_norm, &k, &b->key_norm));
    TRY(attend(w, "attention", q, k, v, &b->attention));
    if (!tensor_empty(pass->map) && w->layer == pass->layers - 1)
        TRY(attention_map(w->ctx, &b->attention, pass->map));
    return add(w, "attention.projection", &w->p->projection, b->attention.y, NULL, &b->projection);
}

static Status self_attention_back(Walk *w, LinearBackward du) {
    Block *b = w->b;
    Tensor dqkv, dheads, dq, dk, dv;
    TRY(take(w->ctx, ARENA_SCRATCH, "d qkv", b->qkv.y.dtype, b->qkv.y.shape, &dqkv));
    TRY(take_d_heads(w, b->attention.y, &dheads));
    split(w, dqkv, &dq, &dk, &dv);
    TRY(add_back(w, "attention.projection", &w->p->projection, &b->projection, dheads));
    TRY(attend_back(w, "attention", &b->attention, dheads, dq, dk, dv));
    TRY(head_norm_back(w, "key norm", &w->p->key_norm, &b->key_norm, dk));
    TRY(head_norm_back(w, "query norm", &w->p->query_norm, &b->query_norm, dq));
    return linear_back(w, "attention.qkv", &w->p->qkv, &b->qkv, dqkv, du);
}

static Status cross_attention(Walk *w, Tensor u) {
    const BlockPass *pass = w->pass;
    const Config *c = w->config;
    const Affine query = block_query_rows(&w->p->cross), memory = memory_rows(&w->p->cross);
    Block *b = w->b;
    Tensor keys_and_values = memory_cache(w);
    const bool cached = !tensor_empty(keys_and_values);
    b->cross_query = layer_of(&query);
    b->cross_memory = layer_of(&memory);
    b->cross_memory.parts = parts_of(c, 2);
    b->cross =
        (AttentionForward){.key_lengths = cached ? pass->cache->memory_lengths : pass->batch.source_lengths,
                           .dropout = dropout_at(pass->dropout, pass->first_layer + w->layer, SITE_CROSS)};
    TRY(linear(w, "cross.query", u, saved(w), &b->cross_query));
    if (!cached) {
        TRY(linear(w, "cross.memory", pass->batch.memory, saved(w), &b->cross_memory));
        keys_and_values = b->cross_memory.y;
    }
    TRY(attend(w, "cross attention", b->cross_query.y, keys_of(c, keys_and_values),
               values_of(c, keys_and_values), &b->cross));
    return add(w, "cross.projection", &w->p->cross_projection, b->cross.y, NULL, &b->cross_projection);
}

static Status cross_attention_back(Walk *w, LinearBackward du) {
    const Affine query = block_query_rows(&w->p->cross), memory = memory_rows(&w->p->cross);
    const Config *c = w->config;
    Block *b = w->b;
    BlockGradient *g = w->g;
    Tensor dheads, dq, dkv, kv = b->cross_memory.y;
    TRY(take(w->ctx, ARENA_SCRATCH, "d query", b->cross_query.y.dtype, b->cross_query.y.shape, &dq));
    TRY(take(w->ctx, ARENA_SCRATCH, "d memory", kv.dtype, kv.shape, &dkv));
    TRY(take_d_heads(w, b->cross.y, &dheads));
    TRY(add_back(w, "cross.projection", &w->p->cross_projection, &b->cross_projection, dheads));
    TRY(attend_back(w, "cross attention", &b->cross, dheads, dq, keys_of(c, dkv), values_of(c, dkv)));
    const LinearBackward dmemory = {.dx = g->memory, .accumulate = g->memory_written};
    TRY(linear_back(w, "cross.memory", &memory, &b->cross_memory, dkv, dmemory));
    g->memory_written = true;
    return linear_back(w, "cross.query", &query, &b->cross_query, dq, du);
}

static Status feed_forward(Walk *w, Tensor u) {
    Block *b = w->b;
    b->expand = layer_of(&w->p->expand);
    b->expand.activation = w->config->activation;
    b->expand.may_defer = true;
    TRY(linear(w, "mlp.expand", u, saved_unless(w, RECOMPUTE_HIDDEN), &b->expand));
    return add(w, "mlp.contract", &w->p->contract, b->expand.y, &b->expand, &b->contract);
}

/* Recomputes the hidden activations. */
static Status hidden_again(Walk *w, LinearForward *expand, ResidualAdd *contract) {
    if (block_recompute(w->pass, w->layer) != RECOMPUTE_HIDDEN) return OK;
    expand->pre = expand->y = none;
    TRY(linear(w, "mlp.expand", expand->x, ARENA_SCRATCH, expand));
    contract->linear.x = expand->y;
    return OK;
}

static Status feed_forward_back(Walk *w, LinearBackward du) {
    LinearForward expand = w->b->expand;
    ResidualAdd contract = w->b->contract;
    Tensor dexpand;
    contract.linear.input = &expand;
    TRY(hidden_again(w, &expand, &contract));
    TRY(linear_take_gradient(w->ctx, &expand, &dexpand));
    TRY(add_back(w, "mlp.contract", &w->p->contract, &contract, dexpand));
    du.lasts = !activation_gated(expand.activation) && block_recompute(w->pass, w->layer) == RECOMPUTE_NONE;
    return linear_back(w, "mlp.expand", &w->p->expand, &expand, dexpand, du);
}

/* ---- the block ---- */

/* A branch and its norm. */
typedef struct {
    const char *name; // name of the norm
    int site;
    const Affine *parameters;
    NormForward *norm;
    Status (*forward)(Walk *w, Tensor u);
    Status (*backward)(Walk *w, LinearBackward du); // du gives the destination of the gradient of u
} Branch;

static Branch self_attention_of(const Walk *w) {
    return (Branch){"norm1", SITE_NORM1, &w->p->norm1, &w->b->norm1, self_attention, self_attention_back};
}

static Branch cross_attention_of(const Walk *w) {
    return (Branch){"cross norm",      SITE_CROSS_NORM, &w->p->cross_norm,
                    &w->b->cross_norm, cross_attention, cross_attention_back};
}

static Branch feed_forward_of(const Walk *w) {
    return (Branch){"norm2", SITE_NORM2, &w->p->norm2, &w->b->norm2, feed_forward, feed_forward_back};
}

static NormForward *norm(Walk *w, const Branch *f) {
    *f->norm =
        (NormForward){.kind = w->config->norm_kind,
                      .weight = f->parameters->weight.weight,
                      .bias = f->parameters->bias.weight,
                      .eps = w->config->norm_eps,
                      .dropout = dropout_at(w->pass->dropout, w->pass->first_layer + w->layer, f->site)};
    w->ctx->call = f->name;
    return f->norm;
}

static NormBackward norm_back(Walk *w, const Branch *f, Tensor dy) {
    w->ctx->call = f->name;
    return (NormBackward){.forward = f->norm,
                          .dy = dy,
                          .dweight = f->parameters->weight.gradient,
                          .dbias = f->parameters->bias.gradient};
}

static Status branch_forward(Walk *w, Branch f) {
    if (w->config->norm_order == NORM_PRE) { // x = x + f(norm(x))
        TRY(residual_norm(w->ctx, w->x, norm(w, &f), saved(w)));
        return f.forward(w, f.norm->y);
    }
    TRY(f.forward(w, w->x->x)); // x = norm(x + f(x))
    return residual_normalize(w->ctx, w->x, norm(w, &f), saved(w));
}

static Status branch_backward(Walk *w, Branch f) {
    ResidualGradient *x = &w->g->x;
    if (w->config->norm_order == NORM_PRE) {
        const Tensor du = tensor_view(w->inside.data, w->inside.dtype, f.norm->y.shape);
        TRY(f.backward(w, (LinearBackward){.dx = du}));
        NormBackward n = norm_back(w, &f, du);
        return residual_norm_backward(w->ctx, x, &n);
    }
    NormBackward n = norm_back(w, &f, none);
    TRY(residual_normalize_backward(w->ctx, x, &n));
    return f.backward(w, (LinearBackward){.dx = x->d, .accumulate = true});
}

Status block_forward(Ctx *ctx, const BlockPass *pass, int64_t layer, const BlockParameters *p, Residual *x,
                     Block *b) {
    Walk w = {.ctx = ctx, .pass = pass, .config = pass->config, .p = p, .b = b, .layer = layer, .x = x};
    b->x = *x;
    TRY(branch_forward(&w, self_attention_of(&w)));
    if (!tensor_empty(pass->batch.memory) || !tensor_empty(memory_cache(&w)))
        TRY(branch_forward(&w, cross_attention_of(&w)));
    x->closing = true;
    return branch_forward(&w, feed_forward_of(&w));
}

Status block_backward(Ctx *ctx, const BlockPass *pass, int64_t layer, const BlockParameters *p, Block *b,
                      BlockGradient *g) {
    Walk w = {.ctx = ctx, .pass = pass, .config = pass->config, .p = p, .b = b, .layer = layer, .g = g};
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark start = arena_mark(scratch);
    TRY(take(ctx, ARENA_SCRATCH, "d branch", b->x.x.dtype, b->x.x.shape, &w.inside));
    ArenaMark mark = arena_mark(scratch);
    TRY(branch_backward(&w, feed_forward_of(&w)));
    arena_release(scratch, mark);
    if (!tensor_empty(g->memory)) {
        TRY(branch_backward(&w, cross_attention_of(&w)));
        arena_release(scratch, mark);
    }
    TRY(branch_backward(&w, self_attention_of(&w)));
    arena_release(scratch, start);
    return OK;
}

Status block_memory(Ctx *ctx, const Config *c, const BlockParameters *p, Tensor memory,
                    Tensor keys_and_values) {
    const Affine rows = memory_rows(&p->cross);
    Walk w = {.ctx = ctx, .config = c, .p = p};
    LinearForward l = layer_of(&rows);
    l.y = keys_and_values;
    l.parts = parts_of(c, 2);
    return linear(&w, "cross.memory", memory, ARENA_SCRATCH, &l);
}
