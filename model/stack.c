#include "model/stack.h"

#include "base/memory.h"
#include "model/shards.h"

#include <assert.h>
#include <stdio.h>

void stack_open(const Config *config, const Parameters *all, const StackParameters *parameters,
                int64_t layers, int64_t first_layer, const char *name, Stack *s) {
    *s = (Stack){.pass = {.config = config, .layers = layers, .first_layer = first_layer},
                 .parameters = parameters,
                 .all = all,
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

/* Groups of parameters: the embeddings, each block, and the rest after the blocks. */
static int embedding_group(const Stack *s) {
    return s->parameters->first_group;
}
static int block_group(const Stack *s, int64_t layer) {
    return s->parameters->first_group + 1 + (int)layer;
}
static int last_group(const Stack *s) {
    return block_group(s, s->pass.layers);
}

Tensor stack_positions(const Stack *s) {
    return tensor_empty(s->positions) ? s->parameters->position.weight : s->positions;
}

/* A norm of the stack itself: of the embedding, or the final one. */
static NormForward *norm(Ctx *ctx, const Stack *s, const Affine *parameters, const char *name,
                         NormForward *n) {
    const Config *c = s->pass.config;
    *n = (NormForward){.kind = c->norm_kind,
                       .eps = c->norm_eps,
                       .weight = parameters->weight.weight,
                       .bias = parameters->bias.weight,
                       .dropout = dropout_at(s->pass.dropout, s->pass.first_layer, SITE_LAST)};
    ctx->call = name;
    return n;
}

/* ---- forward ---- */

static Status cut_patches(Ctx *ctx, Stack *s, Tensor *x) {
    const Config *c = s->pass.config;
    const StackParameters *p = s->parameters;
    s->patch = (PatchForward){.pixels = s->pass.batch.pictures,
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

static Status look_up(Ctx *ctx, Stack *s, Tensor *x) {
    const Config *c = s->pass.config;
    const StackParameters *p = s->parameters;
    const DeviceBatch *batch = &s->pass.batch;
    const Cache *cache = s->pass.cache;
    s->embed = (EmbedForward){.tokens = batch->tokens,
                              .token = p->token.weight,
                              .position = stack_positions(s),
                              .segments = batch->segments,
                              .segment = p->segment.weight,
                              .scale = config_token_scale(c)};
    if (cache) {
        s->embed.past = cache->length;
        s->embed.pasts = cache->lengths;
        s->embed.past_on_device = cache->length_on_device;
    }
    assert(s->embed.past + batch->tokens.shape.d[1] <= c->context);
    ctx->call = "embed";
    TRY(embed_forward(ctx, &s->embed, ARENA_SAVED));
    *x = s->embed.y;
    return OK;
}

static Status embed(Ctx *ctx, Stack *s, Residual *x) {
    const Architecture *a = s->pass.config->architecture;
    TRY(a->patches ? cut_patches(ctx, s, &x->x) : look_up(ctx, s, &x->x));
    if (a->embedding_norm) {
        NormForward *n = norm(ctx, s, &s->parameters->embedding_norm, "embedding norm", &s->embedding_norm);
        TRY(residual_normalize(ctx, x, n, ARENA_SAVED));
    }
    if (!dropout_on(&s->pass.dropout)) return OK;
    s->embedding_dropout = (DropoutForward){
        .x = x->x, .y = x->x, .dropout = dropout_at(s->pass.dropout, s->pass.first_layer, SITE_EMBEDDING)};
    ctx->call = "embedding dropout";
    return dropout_forward(ctx, &s->embedding_dropout);
}

static Status run_block(Ctx *ctx, Stack *s, int64_t layer, Residual *x) {
    const BlockPass *pass = &s->pass;
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ctx->layer = (int)(pass->first_layer + layer);
    x->first = pass->first && layer == pass->layers - 1;
    TRY(residual_begin_block(ctx, x, ctx->training && block_recompute(pass, layer) == RECOMPUTE_BLOCKS));
    ArenaMark mark = arena_mark(scratch);
    TRY(shards_enter(ctx, s->all, block_group(s, layer)));
    scope_begin_part(ctx, s->layer_names[layer]);
    TRY(block_forward(ctx, pass, layer, &s->parameters->blocks[layer], x, &s->blocks[layer]));
    scope_end(ctx);
    arena_release(scratch, mark);
    ctx->layer = -1;
    return OK;
}

Status stack_forward(Ctx *ctx, Stack *s, const DeviceBatch *batch, Cache *cache) {
    const Config *c = s->pass.config;
    Residual x = {.post = c->norm_order == NORM_POST};
    s->pass.batch = *batch;
    s->pass.cache = cache;
    ctx->layer = -1;
    TRY(shards_enter(ctx, s->all, embedding_group(s)));
    TRY(embed(ctx, s, &x));
    for (int64_t layer = 0; layer < s->pass.layers; layer++) TRY(run_block(ctx, s, layer, &x));
    TRY(shards_enter(ctx, s->all, last_group(s)));
    if (cache) cache->length += batch->tokens.shape.d[1];
    s->hidden = x.x;
    if (!c->final_norm) return OK;
    x.closing = false;
    NormForward *n = norm(ctx, s, &s->parameters->final_norm, "final norm", &s->final_norm);
    TRY(residual_norm(ctx, &x, n, ARENA_SAVED));
    s->hidden = n->y;
    return OK;
}

/* ---- backward ---- */

static Status norm_back(Ctx *ctx, const Affine *p, const char *name, const NormForward *forward,
                        ResidualGradient *x) {
    NormBackward n = {.forward = forward, .dweight = p->weight.gradient, .dbias = p->bias.gradient};
    ctx->call = name;
    return residual_normalize_backward(ctx, x, &n);
}

/* Runs a recomputed block again. Its inner tensors exist only during this call. Its input is the output of
 * the layer below, and its output stays where the first run wrote it. */
static Status run_block_again(Ctx *ctx, Stack *s, int64_t layer) {
    Block *block = &s->blocks[layer];
    Residual x = block->x;
    if (block_recompute(&s->pass, layer) != RECOMPUTE_BLOCKS) return OK;
    x.again = true;
    scope_begin_part(ctx, s->layer_names[layer]);
    TRY(block_forward(ctx, &s->pass, layer, &s->parameters->blocks[layer], &x, block));
    scope_end(ctx);
    return OK;
}

static Status block_back(Ctx *ctx, Stack *s, int64_t layer, BlockGradient *g) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    ctx->layer = (int)(s->pass.first_layer + layer);
    TRY(run_block_again(ctx, s, layer));
    scope_begin_part(ctx, s->layer_names[layer]);
    TRY(block_backward(ctx, &s->pass, layer, &s->parameters->blocks[layer], &s->blocks[layer], g));
    scope_end(ctx);
    arena_release(scratch, mark);
    ctx->layer = -1;
    return shards_ready(ctx, s->all, block_group(s, layer));
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

static Status embed_back(Ctx *ctx, Stack *s, ResidualGradient *x) {
    const Architecture *a = s->pass.config->architecture;
    if (dropout_on(&s->pass.dropout)) {
        DropoutBackward d = {.forward = &s->embedding_dropout, .dy = x->d, .dx = x->d};
        ctx->call = "embedding dropout";
        TRY(dropout_backward(ctx, &d));
    }
    if (a->embedding_norm)
        TRY(norm_back(ctx, &s->parameters->embedding_norm, "embedding norm", &s->embedding_norm, x));
    TRY(a->patches ? patches_back(ctx, s, x->d) : tables_back(ctx, s, x->d));
    return shards_ready(ctx, s->all, embedding_group(s));
}

Status stack_backward(Ctx *ctx, Stack *s, Tensor dhidden, Tensor dmemory) {
    const BlockPass *pass = &s->pass;
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    const bool drops = dropout_on(&pass->dropout) || pass->depth > 0;
    BlockGradient g = {.x = {.d = dhidden, .post = pass->config->norm_order == NORM_POST}, .memory = dmemory};
    ctx->layer = -1;
    TRY(residual_gradient_take(ctx, &g.x, drops, pass->first ? s->blocks[0].x.x : (Tensor){0}));
    if (pass->config->final_norm)
        TRY(norm_back(ctx, &s->parameters->final_norm, "final norm", &s->final_norm, &g.x));
    TRY(shards_ready(ctx, s->all, last_group(s)));
    for (int64_t layer = pass->layers - 1; layer >= 0; layer--) TRY(block_back(ctx, s, layer, &g));
    TRY(embed_back(ctx, s, &g.x));
    arena_release(scratch, mark);
    return OK;
}
