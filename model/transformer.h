/* transformer: a whole model, from token ids or pictures to hidden states, loss, gradients and logits. Knows
 * no backend and no form. A step is: transformer_forward, transformer_loss, transformer_backward,
 * transformer_update, in one Ctx. */
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
    Dropout dropout; // in training; all zero: nothing is dropped
    double depth;    // rate of stochastic depth, with dropout's seed and draw (model/stack.h); 0: none
    bool all_rows;   // leave all hidden states, also where the head reads the class token's alone
    Tensor map; // (B, heads, T), or empty: gets what that token attends to in the last layer; in inference

    /* Of the last forward pass. */
    Stack stack, encoder; // encoder: only where config.encoder_layers is not 0
    Tensor memory;        // (B, S, C): the encoder's output
    Tensor hidden;        // (B, T, C): what the head sees; of a class token alone (B, 1, C)
    Head head;
    DecodeLayer *decode_layers; // (layers): of model/decode.h

    Tensor loss_sum; // (1) fp32: the mean loss of the step, over its micro-batches; in training of the tail
    Tensor state;    // (ADAMW_STATE_SIZE)
    Tensor squares;  // (adamw_blocks(0, parameters.size)) fp64: of the gradient; empty without training
} Transformer;

typedef struct {
    double beta1, beta2, eps, weight_decay, clip;
} UpdateOptions;

/* The model must stay where it is: its stacks point into it. */
CHECKED Status transformer_open(const Config *config, Transformer *model);
void transformer_close(Transformer *model);

/* Takes what lives as long as the model: parameters and, with `training`, gradients, optimizer state. */
CHECKED Status transformer_take(Ctx *ctx, Transformer *model, bool training);
/* Takes a cache from ARENA_SAVED; `source` is the longest source, 0 without an encoder. */
CHECKED Status transformer_take_cache(Ctx *ctx, const Transformer *model, int64_t batch, int64_t capacity,
                                      int64_t source, Cache *cache);

/* Leaves model->hidden, and model->memory where the encoder ran; past + T <= context. Takes what it keeps
 * from ARENA_SAVED: mark it before and release it after the step. `cache` may be NULL; it grows by T, and
 * its memory, if set, serves instead of source and memory. */
CHECKED Status transformer_forward(Ctx *ctx, Transformer *model, const DeviceBatch *batch, Cache *cache);

/* The encoder alone: source (B, S) i32, lengths (B) i32 or empty. Leaves model->memory. */
CHECKED Status transformer_encode(Ctx *ctx, Transformer *model, Tensor source, Tensor lengths);
/* Every layer's keys and values of the encoder's output (B, S, C), once, into a cache taken for S or more. */
CHECKED Status transformer_cache_memory(Ctx *ctx, const Transformer *model, Tensor memory, Tensor lengths,
                                        Cache *cache);

CHECKED Status transformer_loss(Ctx *ctx, Transformer *model, const Targets *targets);
CHECKED Status transformer_backward(Ctx *ctx, Transformer *model);

/* `count` elements of the tail behind the gradients (model/parameters.h), from `first` on; with training. */
Tensor transformer_tail(const Transformer *model, int64_t first, int64_t count);

/* Gradients and loss_sum to zero: before a micro-batch. */
CHECKED Status transformer_zero(Ctx *ctx, Transformer *model);
/* Collective, behind a backward pass that exchanges its gradients: shards_sum. */
CHECKED Status transformer_sum(Ctx *ctx, Transformer *model);
/* Collective, where the parameters have shards. */
CHECKED Status transformer_update(Ctx *ctx, Transformer *model, const UpdateOptions *options);

/* logits (..., padded vocab) of `hidden` rows, usually of the last position; see head_logits. */
CHECKED Status transformer_logits(Ctx *ctx, const Transformer *model, Tensor hidden, Tensor logits);

/* BERT's pooler: tanh of a linear layer of each row's first token. hidden (B, T, C), pooled (B, C). */
CHECKED Status transformer_pool(Ctx *ctx, const Transformer *model, Tensor hidden, Tensor pooled);
