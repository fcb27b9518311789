/* transformer: a whole model, from token ids or pictures to hidden states, loss, gradients and logits. It
 * is independent of backends and forms. A step is: transformer_forward, transformer_loss,
 * transformer_backward, transformer_update, in one Ctx. */
#pragma once

#include "kernels/decode/decode.h"
#include "model/config.h"
#include "model/head.h"
#include "model/parameter_values.h"
#include "model/shards.h"
#include "model/stack.h"
#include "optim/adamw.h"

typedef struct {
    Config config;
    Parameters parameters;
    PositionTables positions;
    Recompute recompute;
    int64_t spared;  // the lowest blocks recompute less: model/block.h
    Dropout dropout; // dropout in training; all zero: none
    double depth;    // stochastic-depth rate, with dropout's seed and draw (model/stack.h); 0: none
    bool all_rows;   // compute all hidden states, even if the head reads only the class token's
    Tensor
        map; // (B, heads, T), or empty: receives the class token's attention in the last layer, in inference

    /* Results of the last forward pass. */
    Stack stack, encoder; // encoder: only if config.encoder_layers is not 0
    Tensor memory;        // (B, S, C): the encoder's output
    Tensor hidden;        // (B, T, C): the head's input; (B, 1, C) for a class token alone
    Head head;
    DecodeLayer *decode_layers; // (layers): layers of transformer_decode

    Tensor loss_sum; // (1) fp32: mean loss of the step over its micro-batches; in training a part of the tail
    Tensor state;    // (ADAMW_STATE_SIZE)
    Tensor
        squares; // (adamw_blocks(0, parameters.size)) fp64: squares of the gradient; empty without training
} Transformer;

typedef struct {
    double beta1, beta2, eps, weight_decay, clip;
} UpdateOptions;

/* The model must not be moved, because its stacks point into it. */
CHECKED Status transformer_open(const Config *config, Transformer *model);
void transformer_close(Transformer *model);

/* Takes memory for the model's lifetime: parameters and, with `training`, gradients and optimizer state. */
CHECKED Status transformer_take(Ctx *ctx, Transformer *model, bool training);
/* Takes a cache from ARENA_SAVED; `source` is the longest source, 0 without an encoder. */
CHECKED Status transformer_take_cache(Ctx *ctx, const Transformer *model, int64_t batch, int64_t capacity,
                                      int64_t source, Cache *cache);

/* Computes model->hidden, and model->memory if the encoder runs; past + T <= context. Saved tensors come
 * from ARENA_SAVED: mark it before the step and release it afterwards. `cache` may be NULL; it grows by T,
 * and its memory, if set, replaces source and memory. */
CHECKED Status transformer_forward(Ctx *ctx, Transformer *model, const DeviceBatch *batch, Cache *cache);

/* Runs the encoder alone: source (B, S) i32, lengths (B) i32 or empty. Computes model->memory. */
CHECKED Status transformer_encode(Ctx *ctx, Transformer *model, Tensor source, Tensor lengths);
/* Computes every layer's keys and values of the encoder's output (B, S, C), once, into a cache taken for S
 * or more. */
CHECKED Status transformer_cache_memory(Ctx *ctx, const Transformer *model, Tensor memory, Tensor lengths,
                                        Cache *cache);

CHECKED Status transformer_loss(Ctx *ctx, Transformer *model, const Targets *targets);
CHECKED Status transformer_backward(Ctx *ctx, Transformer *model);

/* `count` elements of the tail after the gradients (model/parameters.h), starting at `first`; in training. */
Tensor transformer_tail(const Transformer *model, int64_t first, int64_t count);

/* Sets gradients and loss_sum to zero, before a micro-batch. */
CHECKED Status transformer_zero(Ctx *ctx, Transformer *model);
/* Collective, after a backward pass that exchanges gradients: shards_sum. */
CHECKED Status transformer_sum(Ctx *ctx, Transformer *model);
/* Collective if the parameters are sharded. */
CHECKED Status transformer_update(Ctx *ctx, Transformer *model, const UpdateOptions *options);

/* Logits (..., padded vocab) of `hidden` rows, usually the last position's; see head_logits. */
CHECKED Status transformer_logits(Ctx *ctx, const Transformer *model, Tensor hidden, Tensor logits);

/* BERT's pooler: tanh of a linear layer of each row's first token. hidden (B, T, C), pooled (B, C). */
CHECKED Status transformer_pool(Ctx *ctx, const Transformer *model, Tensor hidden, Tensor pooled);

/* One token of one sequence through the whole model as a single operation (kernels/decode/decode.h): computes
 * logits, (1, padded vocab) fp32, of the token after `token`, (1) i32 in device memory. The cache
 * has one sequence and, with an encoder, its output; it grows by one token. The model must be a decoder. */
CHECKED Status transformer_decode(Ctx *ctx, Transformer *model, Tensor token, Cache *cache, Tensor logits);
