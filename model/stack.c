#include "model/stack.h"

#include "base/memory.h"
#include "model/shards.h"

#include <assert.h>
#include <stdio.h>

void stack_open(const Config *config, const Parameters *all, const StackParameters *parameters,
                int64_t layers, int64_t first_layer, const char *name, Stack *s) {
    *s = (Stack){.config = config,
                 .parameters = parameters,
                 .all = all,
                 .layers = layers,
                 .first_layer = first_layer,
                 .blocks = memory_array((size_t)layers, sizeof *s->blocks),
                 .layer_names = memory_array((size_t)layers, sizeof *s->layer_names)};
    for (int64_t i = 0; i < layers; i++)
        snprintf(s->layer_names[i], sizeof *s->layer_names, "%s %d", name, (int)i);
}

void stack_close(Stack *s) {
    memory_free(s->blocks);
    memory_free(s->layer_names);
    *s = (Stack){0};
}

/* The groups of parameters: the embeddings', a block's, and that of what follows the blocks. */
static int embedding_group(const Stack *s) {
    return s->parameters->first_group;
}
static int block_group(const Stack *s, int64_t layer) {
    return s->parameters->first_group + 1 + (int)layer;
}
static int last_group(const Stack *s) {
    return block_group(s, s->layers);
}

Tensor stack_positions(const Stack *s) {
    return tensor_empty(s->positions) ? s->parameters->position.weight : s->positions;
}

Tensor cache_layer(Tensor all, int64_t layer) {
    Shape shape = shape3(all.shape.d[1], all.shape.d[2], all.shape.d[3]);
    return tensor_elements(all, layer * shape_count(shape), shape);
}

/* Where a pass only infers, nothing inside a block outlives it; where it trains, what is not recomputed. */
static ArenaKind inner_arena(const Ctx *ctx, const Stack *s, Recompute until) {
    return ctx->training && s->recompute < until ? ARENA_SAVED : ARENA_SCRATCH;
}

static Status run_block(Ctx *ctx, Stack *s, int64_t layer, const BlockInput *input) {
    ctx->layer = (int)(s->first_layer + layer);
    scope_begin_part(ctx, s->layer_names[layer]);
    TRY(block_forward(ctx, s->config, &s->parameters->blocks[layer], input, &s->blocks[layer]));
    scope_end(ctx);
    ctx->layer = -1;
    return OK;
}

/* Of the branches of a layer; those of a layer that is not there have none. */
static double depth_rate(const Stack *s, int64_t layer) {
    if (layer < 0 || s->depth <= 0) return 0;
    return s->layers > 1 ? s->depth * (double)layer / (double)(s->layers - 1) : s->depth;
}

static bool stack_drops(const Stack *s) {
    return dropout_on(&s->dropout) || s->depth > 0;
}

/* A norm over a tensor that stays: of the embedding, or the last. */
static Status norm(Ctx *ctx, const Stack *s, const Affine *parameters, const char *name, Tensor x,
                   Tensor skip, NormForward *n) {
    *n = (NormForward){.kind = s->config->norm_kind,
                       .x = x,
                       .skip = skip,
                       .eps = s->config->norm_eps,
                       .weight = parameters->weight.weight,
                       .bias = parameters->bias.weight};
    if (!tensor_empty(skip)) {
        n->dropout = dropout_at(s->dropout, s->first_layer, SITE_LAST);
        n->depth = depth_at(s->dropout, depth_rate(s, s->layers - 1), s->first_layer, SITE_LAST);
        n->depth_rows = x.shape.d[1];
    }
    ctx->call = name;
    return norm_forward(ctx, n, ARENA_SAVED);
}

static Status cut_patches(Ctx *ctx, Stack *s, Tensor pictures, Tensor *x) {
    const Config *c = s->config;
    const StackParameters *p = s->parameters;
    s->patch = (PatchForward){.pixels = pictures,
                              .size = c->patch,
                              .weight = p->patch.weight.weight,
                              .bias = p->patch.bias.weight,
                              .token = p->class_token.weight,
                              .position = p->position.weight};
    for (int64_t i = 0; i < c->channels; i++) {
        s->patch.mean[i] = (double)c->processor.mean[i];
        s->patch.deviation[i] = (double)c->processor.deviation[i];
    }
    ctx->call = "patch";
    TRY(patch_forward(ctx, &s->patch, ARENA_SAVED));
    *x = s->patch.y;
    return OK;
}

static Status look_up(Ctx *ctx, Stack *s, const StackInput *in, Tensor *x) {
    const Config *c = s->config;
    const StackParameters *p = s->parameters;
    int64_t T = in->tokens.shape.d[1], past = in->cache ? in->cache->length : 0;
    assert(past + T <= c->context);
    s->embed = (EmbedForward){.tokens = in->tokens,
                              .token = p->token.weight,
                              .position = stack_positions(s),
                              .segments = in->segments,
                              .segment = p->segment.weight,
                              .scale = config_token_scale(c),
                              .past = past};
    if (in->cache) s->embed.past_on_device = in->cache->length_on_device;
    ctx->call = "embed";
    TRY(embed_forward(ctx, &s->embed, ARENA_SAVED));
    *x = s->embed.y;
    return OK;
}

static Status embed(Ctx *ctx, Stack *s, const StackInput *in, Tensor *x) {
    const Architecture *a = s->config->architecture;
    const StackParameters *p = s->parameters;
    TRY(a->patches ? cut_patches(ctx, s, in->pictures, x) : look_up(ctx, s, in, x));
    if (a->embedding_norm) {
        TRY(norm(ctx, s, &p->embedding_norm, "embedding norm", *x, (Tensor){0}, &s->embedding_norm));
        *x = s->embedding_norm.y;
    }
    if (!dropout_on(&s->dropout)) return OK;
    s->embedding_dropout =
        (DropoutForward){.x = *x, .y = *x, .dropout = dropout_at(s->dropout, s->first_layer, SITE_EMBEDDING)};
    ctx->call = "embedding dropout";
    return dropout_forward(ctx, &s->embedding_dropout);
}

static BlockInput block_input(const Ctx *ctx, const Stack *s, const StackInput *in, int64_t layer) {
    BlockInput b = {
        .inner = inner_arena(ctx, s, RECOMPUTE_BLOCKS),
        .hidden = inner_arena(ctx, s, RECOMPUTE_HIDDEN),
        .causal = s->causal,
        .frequencies = s->frequencies,
        .dropout = s->dropout,
        .depth = {depth_rate(s, layer - (s->config->norm_order == NORM_PRE)), depth_rate(s, layer)},
        .layer = s->first_layer + layer,
        .lengths = in->lengths,
        .starts = in->starts,
        .memory = in->memory,
        .memory_lengths = in->memory_lengths};
    if (layer == s->layers - 1) {
        b.first = s->first;
        b.map = s->map;
    }
    const Cache *cache = in->cache;
    if (!cache) return b;
    b.cache_k = cache_layer(cache->k, layer);
    b.cache_v = cache_layer(cache->v, layer);
    b.past = cache->length;
    b.past_on_device = cache->length_on_device;
    if (tensor_empty(cache->memory)) return b;
    b.memory_cache = cache_layer(cache->memory, layer);
    b.memory_lengths = cache->memory_lengths;
    return b;
}

/* x and skip alternate between two pairs of tensors. Training keeps the x of each layer, which its last
 * norm's backward pass reads, and the skip where the block above runs again. */
static Status forward_blocks(Ctx *ctx, Stack *s, const StackInput *in, Tensor *x, Tensor *skip) {
    Tensor pairs[2][2] = {0};
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    bool skips = s->config->norm_order == NORM_PRE && ctx->training;
    for (int64_t layer = 0; layer < s->layers; layer++) {
        Tensor *pair = pairs[layer % 2];
        ctx->layer = (int)(s->first_layer + layer);
        bool again = ctx->training && s->recompute == RECOMPUTE_BLOCKS;
        bool first = s->first && layer == s->layers - 1;
        Shape shape = first ? shape3(x->shape.d[0], 1, tensor_width(*x)) : x->shape;
        if (ctx->training || first || tensor_empty(pair[0]))
            TRY(take(ctx, ARENA_SAVED, "residual", ctx->dtype, shape, &pair[0]));
        if (skips && (again || first || tensor_empty(pair[1])))
            TRY(take(ctx, ARENA_SAVED, "branch", ctx->dtype, shape, &pair[1]));
        BlockInput input = block_input(ctx, s, in, layer);
        input.x = *x;
        input.skip = *skip;
        input.x_out = pair[0];
        input.skip_out = pair[1];
        ArenaMark mark = arena_mark(scratch);
        TRY(shards_enter(ctx, s->all, block_group(s, layer)));
        TRY(run_block(ctx, s, layer, &input));
        arena_release(scratch, mark);
        *x = pair[0];
        *skip = pair[1];
    }
    return OK;
}

Status stack_forward(Ctx *ctx, Stack *s, const StackInput *in) {
    Tensor x, skip = {0};
    ctx->layer = -1;
    TRY(shards_enter(ctx, s->all, embedding_group(s)));
    TRY(embed(ctx, s, in, &x));
    TRY(forward_blocks(ctx, s, in, &x, &skip));
    TRY(shards_enter(ctx, s->all, last_group(s)));
    if (in->cache) in->cache->length += in->tokens.shape.d[1];
    s->hidden = x;
    if (!s->config->final_norm) return OK;
    TRY(norm(ctx, s, &s->parameters->final_norm, "final norm", x, skip, &s->final_norm));
    s->hidden = s->final_norm.y;
    return OK;
}

/* ---- backward ---- */

/* The norm's gradient comes in g->d and leaves there. */
static Status norm_back(Ctx *ctx, const Affine *p, const char *name, const NormForward *forward,
                        StreamGradient *g) {
    bool drops = norm_drops(forward);
    NormBackward n = {.forward = forward,
                      .dy = g->d,
                      .dr = g->spare,
                      .dskip = drops ? g->masked : (Tensor){0},
                      .dweight = p->weight.gradient,
                      .dbias = p->bias.gradient};
    ctx->call = name;
    TRY(norm_backward(ctx, &n));
    g->branch = drops ? g->masked : g->spare;
    g->spare = g->d;
    g->d = n.dr;
    return OK;
}

/* Where blocks are recomputed, a block's inside exists only here. Its input is what the layer below left,
 * its outputs are the tensors it wrote the first time. */
static Status backward_block(Ctx *ctx, Stack *s, int64_t layer, StreamGradient *g, bool unfinished) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    Block *block = &s->blocks[layer];
    BlockParameters p = s->parameters->blocks[layer];
    if (unfinished) p.expand.weight.gradient = p.expand.bias.gradient = (Tensor){0};
    if (s->recompute == RECOMPUTE_BLOCKS) {
        BlockInput input = block->input;
        input.again = true;
        TRY(run_block(ctx, s, layer, &input));
    }
    ctx->layer = (int)(s->first_layer + layer);
    scope_begin_part(ctx, s->layer_names[layer]);
    TRY(block_backward(ctx, s->config, &p, block, g));
    scope_end(ctx);
    ctx->layer = -1;
    arena_release(scratch, mark);
    return OK;
}

static Status tables_back(Ctx *ctx, Stack *s, Tensor dy) {
    const StackParameters *p = s->parameters;
    EmbedBackward e = {.forward = &s->embed,
                       .dy = dy,
                       .dtoken = p->token.gradient,
                       .dposition = p->position.gradient,
                       .dsegment = p->segment.gradient};
    ctx->call = "embed";
    return embed_backward(ctx, &e);
}

static Status patches_back(Ctx *ctx, Stack *s, Tensor dy) {
    const StackParameters *p = s->parameters;
    PatchBackward b = {.forward = &s->patch,
                       .dy = dy,
                       .dweight = p->patch.weight.gradient,
                       .dbias = p->patch.bias.gradient,
                       .dtoken = p->class_token.gradient,
                       .dposition = p->position.gradient};
    ctx->call = "patch";
    return patch_backward(ctx, &b);
}

/* Whether the gradient of the first block's mlp.expand comes last, while ranks exchange the embedding's,
 * which is the largest and ready last: nothing waits for it, and what it is made of was saved. */
static bool puts_off(const Stack *s) {
    const Affine *expand = &s->parameters->blocks[0].expand;
    return s->recompute == RECOMPUTE_NONE && !activation_gated(s->config->activation) &&
           shards_exchange(s->all, block_group(s, 0), expand->weight.gradient);
}

/* The block's backward pass has left the gradient of `pre` where the layer's output was. */
static Status finish_first_block(Ctx *ctx, Stack *s) {
    const Affine *p = &s->parameters->blocks[0].expand;
    const LinearForward *expand = &s->blocks[0].expand;
    const LinearBackward late = {.forward = expand,
                                 .dy = expand->y,
                                 .dy_is_dpre = true,
                                 .dweight = p->weight.gradient,
                                 .dbias = p->bias.gradient};
    ctx->layer = (int)s->first_layer;
    ctx->call = "mlp.expand";
    TRY(linear_backward(ctx, &late));
    ctx->layer = -1;
    return shards_ready(ctx, s->all, block_group(s, 0));
}

Status stack_backward(Ctx *ctx, Stack *s, StreamGradient *g) {
    const StackParameters *p = s->parameters;
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    ctx->layer = -1;
    TRY(take(ctx, ARENA_SCRATCH, "d residual", ctx->dtype, g->d.shape, &g->spare));
    bool drops = stack_drops(s), unfinished = false;
    if (drops) TRY(take(ctx, ARENA_SCRATCH, "d branch", ctx->dtype, g->d.shape, &g->masked));
    static const char *const names[] = {"d all residuals", "d other residuals", "d all branches"};
    for (int i = 0; i < 2 + drops && s->first; i++)
        TRY(take(ctx, ARENA_SCRATCH, names[i], ctx->dtype, s->blocks[0].input.x.shape, &g->whole[i]));
    g->branch = g->d;
    if (s->config->final_norm) TRY(norm_back(ctx, &p->final_norm, "final norm", &s->final_norm, g));
    TRY(shards_ready(ctx, s->all, last_group(s)));
    for (int64_t layer = s->layers - 1; layer >= 0; layer--) {
        unfinished = layer == 0 && puts_off(s);
        TRY(backward_block(ctx, s, layer, g, unfinished));
        if (!unfinished) TRY(shards_ready(ctx, s->all, block_group(s, layer)));
    }
    if (dropout_on(&s->dropout)) {
        DropoutBackward d = {.forward = &s->embedding_dropout, .dy = g->d, .dx = g->d};
        ctx->call = "embedding dropout";
        TRY(dropout_backward(ctx, &d));
    }
    if (s->config->architecture->embedding_norm)
        TRY(norm_back(ctx, &p->embedding_norm, "embedding norm", &s->embedding_norm, g));
    TRY(s->config->architecture->patches ? patches_back(ctx, s, g->d) : tables_back(ctx, s, g->d));
    arena_release(scratch, mark);
    TRY(shards_ready(ctx, s->all, embedding_group(s)));
    return unfinished ? finish_first_block(ctx, s) : OK;
}
