#include "model/decode.h"

#include <assert.h>
#include <math.h>

static DecodeAffine affine(const Affine *a) {
    return (DecodeAffine){a->weight.weight, a->bias.weight};
}

static DecodeLayer decode_layer(const Stack *stack, const Cache *cache, int64_t layer) {
    const BlockParameters *p = &stack->parameters->blocks[layer];
    Shape shape = shape2(cache->k.shape.d[2], cache->k.shape.d[3]);
    DecodeLayer l = {.norm1 = affine(&p->norm1),
                     .qkv = affine(&p->qkv),
                     .projection = affine(&p->projection),
                     .norm2 = affine(&p->norm2),
                     .expand = affine(&p->expand),
                     .contract = affine(&p->contract),
                     .query_norm = affine(&p->query_norm),
                     .key_norm = affine(&p->key_norm),
                     .cache_k = tensor_reshape(cache_layer(cache->k, layer), shape),
                     .cache_v = tensor_reshape(cache_layer(cache->v, layer), shape),
                     .name = stack->layer_names[layer],
                     .number = (int)(stack->pass.first_layer + layer)};
    if (tensor_empty(cache->memory)) return l;
    const Affine query = block_query_rows(&p->cross);
    l.cross_norm = affine(&p->cross_norm);
    l.query = affine(&query);
    l.cross_projection = affine(&p->cross_projection);
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
                .final_norm = affine(&p->stack.final_norm),
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
