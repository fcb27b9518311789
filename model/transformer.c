#include "model/transformer.h"

#include "base/memory.h"

#include <assert.h>
#include <stdio.h>

Status transformer_open(const Config *config, Transformer *model) {
    TRY(config_validate(config));
    *model = (Transformer){.config = *config};
    TRY(parameters_open(config, &model->parameters));
    model->blocks = memory_array((size_t)config->layers, sizeof *model->blocks);
    model->layer_names = memory_array((size_t)config->layers, sizeof *model->layer_names);
    if (!model->blocks || !model->layer_names) {
        transformer_close(model);
        return fail(ERROR_MEMORY, "out of host memory for the model's blocks");
    }
    for (int i = 0; i < config->layers; i++)
        snprintf(model->layer_names[i], sizeof *model->layer_names, "layer %d", i);
    return OK;
}

void transformer_close(Transformer *model) {
    parameters_close(&model->parameters);
    memory_free(model->blocks);
    memory_free(model->layer_names);
    *model = (Transformer){0};
}

Status transformer_take(Ctx *ctx, Transformer *model, bool training) {
    ctx->layer = -1;
    TRY(parameters_take(ctx, &model->parameters, training));
    Dtype wide = wide_dtype(ctx);
    TRY(take(ctx, ARENA_OPTIMIZER, "loss", wide, shape1(1), &model->loss_sum));
    TRY(take(ctx, ARENA_OPTIMIZER, "optimizer state", wide, shape1(ADAMW_STATE_SIZE), &model->state));
    if (ctx->measuring) return OK;
    TRY(ctx->device->fill(ctx->device, model->loss_sum.data, 0, tensor_bytes(model->loss_sum)));
    return ctx->device->fill(ctx->device, model->state.data, 0, tensor_bytes(model->state));
}

Status transformer_take_cache(Ctx *ctx, const Transformer *model, int64_t batch, int64_t capacity,
                              Cache *cache) {
    const Config *c = &model->config;
    Shape shape = shape4(c->layers, batch, capacity, c->kv_heads * config_head_size(c));
    *cache = (Cache){0};
    ctx->layer = -1;
    TRY(take(ctx, ARENA_SAVED, "cache.keys", ctx->dtype, shape, &cache->k));
    return take(ctx, ARENA_SAVED, "cache.values", ctx->dtype, shape, &cache->v);
}

/* One layer's part of a cache: (B, capacity, kv). */
static Tensor cache_layer(Tensor all, int64_t layer) {
    Shape shape = shape3(all.shape.d[1], all.shape.d[2], all.shape.d[3]);
    size_t bytes = (size_t)(layer * shape_count(shape)) * dtype_size(all.dtype);
    return tensor_view((void *)((uintptr_t)all.data + bytes), all.dtype, shape);
}

/* Where a pass only infers, or recomputes, nothing inside a block outlives it. */
static ArenaKind inner_arena(const Ctx *ctx, const Transformer *model) {
    return ctx->training && !model->recompute ? ARENA_SAVED : ARENA_SCRATCH;
}

static Status run_block(Ctx *ctx, Transformer *model, int64_t layer, const BlockInput *input) {
    ctx->layer = (int)layer;
    scope_begin(ctx, model->layer_names[layer]);
    TRY(block_forward(ctx, &model->config, &model->parameters.blocks[layer], input, &model->blocks[layer]));
    scope_end(ctx);
    ctx->layer = -1;
    return OK;
}

/* x and skip alternate between two pairs of tensors when only inferring; training keeps a pair for each
 * layer. */
static Status forward_blocks(Ctx *ctx, Transformer *model, Cache *cache, Tensor *x, Tensor *skip) {
    Tensor pairs[2][2] = {0};
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    for (int64_t layer = 0; layer < model->config.layers; layer++) {
        Tensor *pair = pairs[layer % 2];
        ctx->layer = (int)layer;
        if (ctx->training || tensor_empty(pair[0])) {
            TRY(take(ctx, ARENA_SAVED, "residual", ctx->dtype, x->shape, &pair[0]));
            TRY(take(ctx, ARENA_SAVED, "branch", ctx->dtype, x->shape, &pair[1]));
        }
        BlockInput input = {
            .x = *x, .skip = *skip, .inner = inner_arena(ctx, model), .r2 = pair[0], .m = pair[1]};
        if (cache) {
            input.cache_k = cache_layer(cache->k, layer);
            input.cache_v = cache_layer(cache->v, layer);
            input.past = cache->length;
            input.past_on_device = cache->place;
        }
        ArenaMark mark = arena_mark(scratch);
        TRY(run_block(ctx, model, layer, &input));
        arena_release(scratch, mark);
        *x = pair[0];
        *skip = pair[1];
    }
    return OK;
}

Status transformer_forward(Ctx *ctx, Transformer *model, Tensor tokens, Cache *cache) {
    const Config *c = &model->config;
    Parameters *p = &model->parameters;
    int64_t B = tokens.shape.d[0], T = tokens.shape.d[1], past = cache ? cache->length : 0;
    assert(past + T <= c->context);
    Shape stream = shape3(B, T, c->width);
    ctx->layer = -1;

    model->embed = (EmbedForward){
        .tokens = tokens, .token = p->token.weight, .position = p->position.weight, .scale = 1, .past = past};
    if (cache) model->embed.past_on_device = cache->place;
    TRY(take(ctx, ARENA_SAVED, "embedding", ctx->dtype, stream, &model->embed.y));
    ctx->place = "embed";
    TRY(embed_forward(ctx, &model->embed));

    Tensor x = model->embed.y, skip = {0};
    TRY(forward_blocks(ctx, model, cache, &x, &skip));
    if (cache) cache->length += T;

    NormForward *n = &model->final_norm;
    *n = (NormForward){.x = x,
                       .skip = skip,
                       .eps = c->norm_eps,
                       .weight = p->final_norm.weight.weight,
                       .bias = p->final_norm.bias.weight};
    TRY(take(ctx, ARENA_SAVED, "final residual", ctx->dtype, stream, &n->r));
    TRY(take(ctx, ARENA_SAVED, "final norm", ctx->dtype, stream, &n->y));
    TRY(take(ctx, ARENA_SAVED, "final norm.mean", wide_dtype(ctx), shape1(B * T), &n->mean));
    TRY(take(ctx, ARENA_SAVED, "final norm.rstd", wide_dtype(ctx), shape1(B * T), &n->rstd));
    ctx->place = "final norm";
    TRY(norm_forward(ctx, n));
    model->hidden = n->y;
    return OK;
}

Status transformer_loss(Ctx *ctx, Transformer *model, Tensor targets, double scale) {
    int64_t rows = tensor_count(targets);
    Parameters *p = &model->parameters;
    Loss *l = &model->loss;
    *l = (Loss){.hidden = tensor_reshape(model->hidden, shape2(rows, model->config.width)),
                .weight = p->token.weight,
                .targets = tensor_reshape(targets, shape1(rows)),
                .vocab = model->config.vocab,
                .scale = scale,
                .loss = model->loss_sum};
    ctx->layer = -1;
    TRY(take(ctx, ARENA_SAVED, "losses", wide_dtype(ctx), shape1(rows), &l->losses));
    if (ctx->training) {
        TRY(take(ctx, ARENA_SAVED, "d hidden", ctx->dtype, l->hidden.shape, &l->dhidden));
        l->dweight = p->token.gradient;
    }
    ctx->place = "head and loss";
    return loss_forward(ctx, l);
}

/* With recomputation a block's inside exists only here. Its input is what the layer below left, its outputs
 * are the tensors it wrote the first time. */
static Status backward_block(Ctx *ctx, Transformer *model, int64_t layer, Tensor d) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    Block *block = &model->blocks[layer];
    if (model->recompute) {
        BlockInput input = {.x = block->norm1.x,
                            .skip = block->norm1.skip,
                            .inner = ARENA_SCRATCH,
                            .again = true,
                            .r2 = block->norm2.r,
                            .m = block->contract.y};
        TRY(run_block(ctx, model, layer, &input));
    }
    ctx->layer = (int)layer;
    scope_begin(ctx, model->layer_names[layer]);
    TRY(block_backward(ctx, &model->parameters.blocks[layer], block, d));
    scope_end(ctx);
    ctx->layer = -1;
    arena_release(scratch, mark);
    return OK;
}

Status transformer_backward(Ctx *ctx, Transformer *model) {
    Parameters *p = &model->parameters;
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    ctx->layer = -1;
    ctx->place = "head and loss";
    TRY(loss_backward(ctx, &model->loss));

    Tensor d; // the gradient of the residual stream, from the top to the embedding
    TRY(take(ctx, ARENA_SCRATCH, "d residual", ctx->dtype, model->hidden.shape, &d));
    NormBackward n = {.forward = &model->final_norm,
                      .dy = tensor_reshape(model->loss.dhidden, model->hidden.shape),
                      .dr = d,
                      .dweight = p->final_norm.weight.gradient,
                      .dbias = p->final_norm.bias.gradient};
    ctx->place = "final norm";
    TRY(norm_backward(ctx, &n));
    for (int64_t layer = model->config.layers - 1; layer >= 0; layer--)
        TRY(backward_block(ctx, model, layer, d));

    EmbedBackward e = {
        .forward = &model->embed, .dy = d, .dtoken = p->token.gradient, .dposition = p->position.gradient};
    ctx->place = "embed";
    TRY(embed_backward(ctx, &e));
    arena_release(scratch, mark);
    return OK;
}

Status transformer_zero(Ctx *ctx, Transformer *model) {
    if (ctx->measuring) return OK;
    Device *device = ctx->device;
    TRY(device->fill(device, model->loss_sum.data, 0, tensor_bytes(model->loss_sum)));
    Tensor gradient = model->parameters.gradient;
    return tensor_empty(gradient) ? OK : device->fill(device, gradient.data, 0, tensor_bytes(gradient));
}

Status transformer_update(Ctx *ctx, Transformer *model, const UpdateOptions *options) {
    Parameters *p = &model->parameters;
    Adamw a = {.weight = p->weight,
               .master = p->master,
               .gradient = p->gradient,
               .m = p->m,
               .v = p->v,
               .loss = model->loss_sum,
               .state = model->state,
               .decayed = p->decayed,
               .count = p->count,
               .offsets = p->offsets,
               .counts = p->counts,
               .beta1 = options->beta1,
               .beta2 = options->beta2,
               .eps = options->eps,
               .weight_decay = options->weight_decay,
               .clip = options->clip};
    ctx->layer = -1;
    ctx->place = "adamw";
    return adamw_update(ctx, &a);
}

Status transformer_logits(Ctx *ctx, const Transformer *model, Tensor hidden, Tensor logits) {
    LinearForward head = {.x = hidden, .weight = model->parameters.token.weight, .y = logits};
    ctx->layer = -1;
    ctx->place = "head";
    return linear_forward(ctx, &head);
}
