#include "model/transformer.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>

Status transformer_open(const Config *config, Transformer *model) {
    TRY(config_validate(config));
    *model = (Transformer){.config = *config};
    Parameters *p = &model->parameters;
    const Config *c = &model->config;
    parameters_open(c, p);
    stack_open(c, p, &p->stack, c->layers, c->encoder_layers, "layer", &model->stack);
    if (c->encoder_layers)
        stack_open(c, p, &p->encoder, c->encoder_layers, 0, "encoder layer", &model->encoder);
    model->decode_layers = memory_array((size_t)c->layers, sizeof *model->decode_layers);
    model->stack.pass.causal = c->architecture->mask == MASK_CAUSAL;
    return OK;
}

void transformer_close(Transformer *model) {
    parameters_close(&model->parameters);
    stack_close(&model->stack);
    stack_close(&model->encoder);
    memory_free(model->decode_layers);
    *model = (Transformer){0};
}

Tensor transformer_tail(const Transformer *model, int64_t first, int64_t count) {
    return tensor_elements(parameters_tail_of(&model->parameters, model->parameters.sums), first,
                           shape1(count));
}

Status transformer_take(Ctx *ctx, Transformer *model, bool training) {
    ctx->layer = -1;
    TRY(parameters_take(ctx, &model->parameters, training));
    TRY(positions_take(ctx, &model->config, &model->positions));
    model->stack.positions = model->encoder.positions = model->positions.sinusoids;
    model->stack.pass.frequencies = model->encoder.pass.frequencies = model->positions.frequencies;
    Dtype wide = wide_dtype(ctx);
    const Parameters *p = &model->parameters;
    TRY(take(ctx, ARENA_OPTIMIZER, "optimizer state", wide, shape1(ADAMW_STATE_SIZE), &model->state));
    if (training) {
        TRY(take(ctx, ARENA_OPTIMIZER, "squares", F64, shape1(adamw_blocks(0, p->size)), &model->squares));
        model->loss_sum = transformer_tail(model, TAIL_LOSS, 1);
    } else {
        TRY(take(ctx, ARENA_OPTIMIZER, "loss", wide, shape1(1), &model->loss_sum));
    }
    if (ctx->measuring) return OK;
    TRY(ctx->device->fill(ctx->device, model->loss_sum.data, 0, tensor_bytes(model->loss_sum)));
    return ctx->device->fill(ctx->device, model->state.data, 0, tensor_bytes(model->state));
}

Status transformer_take_cache(Ctx *ctx, const Transformer *model, int64_t batch, int64_t capacity,
                              int64_t source, Cache *cache) {
    const Config *c = &model->config;
    int64_t kv = config_kv_width(c);
    Shape shape = shape4(c->layers, batch, capacity, kv);
    *cache = (Cache){0};
    ctx->layer = -1;
    TRY(take(ctx, ARENA_CACHE, "cache.keys", ctx->dtype, shape, &cache->k));
    TRY(take(ctx, ARENA_CACHE, "cache.values", ctx->dtype, shape, &cache->v));
    if (!source) return OK;
    return take(ctx, ARENA_CACHE, "cache.memory", ctx->dtype, shape4(c->layers, batch, source, 2 * kv),
                &cache->memory);
}

Status transformer_cache_memory(Ctx *ctx, const Transformer *model, Tensor memory, Tensor lengths,
                                Cache *cache) {
    Shape shape = cache->memory.shape;
    assert(memory.shape.d[0] == shape.d[1] && shape_count(shape) <= tensor_count(cache->memory));
    shape.d[2] = memory.shape.d[1]; // a source shorter than planned is stored without gaps
    cache->memory = tensor_view(cache->memory.data, ctx->dtype, shape);
    cache->memory_lengths = lengths;
    for (int64_t layer = 0; layer < model->config.layers; layer++) {
        const BlockParameters *p = &model->parameters.stack.blocks[layer];
        ctx->layer = (int)(model->stack.pass.first_layer + layer);
        TRY(block_memory(ctx, &model->config, p, memory, cache_layer(cache->memory, layer)));
    }
    ctx->layer = -1;
    return OK;
}

/* Copies settings that the caller may have changed since the last pass. */
static void set_up(const Ctx *ctx, const Transformer *model, Stack *stack) {
    stack->pass.recompute = model->recompute;
    stack->pass.spared = model->spared;
    stack->pass.dropout = ctx->training ? model->dropout : (Dropout){0};
    stack->pass.depth = ctx->training ? model->depth : 0;
}

Status transformer_encode(Ctx *ctx, Transformer *model, Tensor source, Tensor lengths) {
    set_up(ctx, model, &model->encoder);
    TRY(stack_forward(ctx, &model->encoder, &(DeviceBatch){.tokens = source, .lengths = lengths}, NULL));
    model->memory = model->encoder.hidden;
    return OK;
}

Status transformer_forward(Ctx *ctx, Transformer *model, const DeviceBatch *batch, Cache *cache) {
    DeviceBatch read = *batch;
    if (!tensor_empty(batch->source)) {
        TRY(transformer_encode(ctx, model, batch->source, batch->source_lengths));
        read.memory = model->memory;
    }
    set_up(ctx, model, &model->stack);
    model->stack.pass.first = model->config.class_head && model->config.class_token && !model->all_rows;
    model->stack.pass.map = model->map;
    TRY(stack_forward(ctx, &model->stack, &read, cache));
    model->hidden = model->stack.hidden;
    return OK;
}

Status transformer_loss(Ctx *ctx, Transformer *model, const Targets *targets) {
    return head_forward(ctx, &model->parameters, model->hidden, targets, model->loss_sum, &model->head);
}

Status transformer_backward(Ctx *ctx, Transformer *model) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    const bool encoded = model->config.encoder_layers > 0;
    Tensor dhidden, dmemory = {0};
    TRY(head_backward(ctx, &model->parameters, &model->head, &dhidden));
    if (encoded) TRY(take(ctx, ARENA_SCRATCH, "d memory", ctx->dtype, model->memory.shape, &dmemory));
    TRY(stack_backward(ctx, &model->stack, dhidden, dmemory));
    if (encoded) TRY(stack_backward(ctx, &model->encoder, dmemory, (Tensor){0}));
    arena_release(scratch, mark);
    return OK;
}

Status transformer_zero(Ctx *ctx, Transformer *model) {
    if (ctx->measuring) return OK;
    Device *device = ctx->device;
    Tensor sums = model->parameters.sums;
    if (tensor_empty(sums)) sums = model->loss_sum;
    return device->fill(device, sums.data, 0, tensor_bytes(sums));
}

static Adamw update_of(const Transformer *model, const UpdateOptions *options) {
    const Parameters *p = &model->parameters;
    return (Adamw){.steps = ADAMW_WHOLE,
                   .weight = p->weight,
                   .master = p->master,
                   .gradient = p->gradient,
                   .m = p->m,
                   .v = p->v,
                   .loss = model->loss_sum,
                   .state = model->state,
                   .decays = p->decays,
                   .squares = tensor_view(model->squares.data, F64, shape1(adamw_blocks(0, p->size))),
                   .count = p->count,
                   .parameters = p->optimized,
                   .beta1 = options->beta1,
                   .beta2 = options->beta2,
                   .eps = options->eps,
                   .weight_decay = options->weight_decay,
                   .clip = options->clip};
}

Status transformer_sum(Ctx *ctx, Transformer *model) {
    const UpdateOptions none = {0};
    const Adamw a = update_of(model, &none);
    return shards_sum(ctx, &model->parameters, &a);
}

Status transformer_update(Ctx *ctx, Transformer *model, const UpdateOptions *options) {
    const Parameters *p = &model->parameters;
    const Adamw a = update_of(model, options);
    if (shards_cut(ctx, p)) return shards_update(ctx, p, &a);
    ctx->layer = -1;
    ctx->call = "adamw";
    return adamw_update(ctx, &a);
}

Status transformer_logits(Ctx *ctx, const Transformer *model, Tensor hidden, Tensor logits) {
    return head_logits(ctx, &model->parameters, hidden, logits);
}

Status transformer_pool(Ctx *ctx, const Transformer *model, Tensor hidden, Tensor pooled) {
    const Parameters *p = &model->parameters;
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    PoolForward first = {.kind = POOL_FIRST, .x = hidden};
    ctx->layer = -1;
    ctx->call = "first tokens";
    TRY(pool_forward(ctx, &first, ARENA_SCRATCH));
    LinearForward l = {.x = first.y,
                       .weight = p->pooler.weight.weight,
                       .bias = p->pooler.bias.weight,
                       .y = pooled,
                       .activation = ACTIVATION_TANH};
    ctx->call = "pooler";
    TRY(linear_forward(ctx, &l, ARENA_SCRATCH));
    arena_release(scratch, mark);
    return OK;
}

/* ---- decoding ---- */

static DecodeAffine decode_affine(const Affine *a) {
    return (DecodeAffine){a->weight.weight, a->bias.weight};
}

static DecodeLayer decode_layer(const Stack *stack, const Cache *cache, int64_t layer) {
    const BlockParameters *p = &stack->parameters->blocks[layer];
    Shape shape = shape2(cache->k.shape.d[2], cache->k.shape.d[3]);
    DecodeLayer l = {.norm1 = decode_affine(&p->norm1),
                     .qkv = decode_affine(&p->qkv),
                     .projection = decode_affine(&p->projection),
                     .norm2 = decode_affine(&p->norm2),
                     .expand = decode_affine(&p->expand),
                     .contract = decode_affine(&p->contract),
                     .query_norm = decode_affine(&p->query_norm),
                     .key_norm = decode_affine(&p->key_norm),
                     .cache_k = tensor_reshape(cache_layer(cache->k, layer), shape),
                     .cache_v = tensor_reshape(cache_layer(cache->v, layer), shape),
                     .name = stack->layer_names[layer],
                     .number = (int)(stack->pass.first_layer + layer)};
    if (tensor_empty(cache->memory)) return l;
    const Affine query = block_query_rows(&p->cross);
    l.cross_norm = decode_affine(&p->cross_norm);
    l.query = decode_affine(&query);
    l.cross_projection = decode_affine(&p->cross_projection);
    l.memory = tensor_reshape(cache_layer(cache->memory, layer),
                              shape2(cache->memory.shape.d[2], cache->memory.shape.d[3]));
    return l;
}

Status transformer_decode(Ctx *ctx, Transformer *model, Tensor token, Cache *cache, Tensor logits) {
    const Config *c = &model->config;
    const Parameters *p = &model->parameters;
    assert(cache->length < c->context && cache->k.shape.d[1] == 1);
    assert(!c->encoder_layers == tensor_empty(cache->memory));
    for (int64_t i = 0; i < c->layers; i++) model->decode_layers[i] = decode_layer(&model->stack, cache, i);
    Decode d = {.token_id = token,
                .token = p->stack.token.weight,
                .position = stack_positions(&model->stack),
                .frequencies = model->stack.pass.frequencies,
                .layers = model->decode_layers,
                .layer_count = c->layers,
                .final_norm = decode_affine(&p->stack.final_norm),
                .head = p->head.weight,
                .logits = logits,
                .asked = c->vocab,
                .heads = c->heads,
                .kv_heads = c->kv_heads,
                .token_scale = config_token_scale(c),
                .scale = 1 / sqrt((double)c->head_size),
                .eps = c->norm_eps,
                .norm_kind = c->norm_kind,
                .norm_after = c->norm_order == NORM_POST,
                .activation = c->activation,
                .qkv_parts = block_qkv_parts(c),
                .past = cache->length,
                .past_on_device = cache->length_on_device,
                .memory_length = cache->memory_lengths};
    ctx->layer = -1;
    ctx->call = "decode";
    TRY(decode_forward(ctx, &d));
    cache->length++;
    return OK;
}
