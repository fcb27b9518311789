/* transformer: the stack, from token ids to hidden states, loss, gradients and logits. Knows no backend and
 * no form. A step is: transformer_forward, transformer_loss, transformer_backward, transformer_update, in one
 * Ctx. */
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "kernels/embed/embed.h"
#include "kernels/loss/loss.h"
#include "model/block.h"
#include "optim/adamw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys and values of the tokens seen so far, layer by layer. */
typedef struct {
    Tensor k, v;    // (layers, B, capacity, kv_heads*D)
    int64_t length; // tokens in it
    Tensor place;   // (1) i32 or empty: `length` in device memory (embed.h, attention.h)
} Cache;

typedef char LayerName[16];

typedef struct {
    Config config;
    Parameters parameters;
    bool recompute; // blocks keep their inputs only, and run forward once more in the backward pass

    /* Of the last forward pass. */
    EmbedForward embed;
    Block *blocks;          // (layers)
    LayerName *layer_names; // (layers) "layer 0", ...: outside profilers keep pointers to them
    Tensor hidden;          // (B, T, C): what the head sees
    NormForward final_norm;
    Loss loss;

    Tensor loss_sum; // (1) fp32: the mean loss of the step, over its micro-batches
    Tensor state;    // (ADAMW_STATE_SIZE)
} Transformer;

typedef struct {
    double beta1, beta2, eps, weight_decay, clip;
} UpdateOptions;

CHECKED Status transformer_open(const Config *config, Transformer *model);
void transformer_close(Transformer *model);

/* Takes what lives as long as the model: parameters and, with `training`, gradients, optimizer state. */
CHECKED Status transformer_take(Ctx *ctx, Transformer *model, bool training);
/* Takes a cache from ARENA_SAVED. */
CHECKED Status transformer_take_cache(Ctx *ctx, const Transformer *model, int64_t batch, int64_t capacity,
                                      Cache *cache);

/* tokens (B, T) i32 in device memory, each in [0, vocab), with past + T <= context. Leaves model->hidden.
 * Takes what it keeps from ARENA_SAVED: mark it before and release it after the step. `cache` may be NULL; it
 * grows by T. */
CHECKED Status transformer_forward(Ctx *ctx, Transformer *model, Tensor tokens, Cache *cache);

/* targets (B, T) i32, -1 ignored; loss_sum += scale * sum of losses. When training, backward may follow. */
CHECKED Status transformer_loss(Ctx *ctx, Transformer *model, Tensor targets, double scale);
CHECKED Status transformer_backward(Ctx *ctx, Transformer *model);

/* Gradients and loss_sum to zero: before the first micro-batch of a step. */
CHECKED Status transformer_zero(Ctx *ctx, Transformer *model);
CHECKED Status transformer_update(Ctx *ctx, Transformer *model, const UpdateOptions *options);

/* logits (..., padded vocab) of `hidden` rows, usually of the last position; dtype as given in the tensor. */
CHECKED Status transformer_logits(Ctx *ctx, const Transformer *model, Tensor hidden, Tensor logits);

#ifdef __cplusplus
}
#endif
#endif
