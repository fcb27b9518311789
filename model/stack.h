/* stack: from token ids or pictures to hidden states: embedding, blocks and, if the config has one, a
 * final norm.
 *
 *     x = tables(tokens)       or patches(pictures); then a norm and dropout, if the config has them
 *     x = block(x)             for each layer
 *     hidden = norm(x)         with a final norm; else hidden is x
 *
 * A GPT or a BERT is one stack. An encoder-decoder is two stacks; the blocks of the second attend to the
 * output of the first. */
#pragma once

#include "kernels/embed/embed.h"
#include "kernels/patch/patch.h"
#include "model/block.h"

typedef char LayerName[24];

typedef struct {
    BlockPass pass; // config, layers, and the batch and cache of the last pass
    const StackParameters *parameters;
    const Parameters *all; // all parameters of the model, which include the stack's
    Tensor positions;      // (context, C): a fixed table; empty with learned or rotary positions

    /* Results of the last forward pass. */
    EmbedForward embed;
    PatchForward patch; // the result of the patch embedding, for pictures
    NormForward embedding_norm;
    DropoutForward embedding_dropout;
    Block *blocks;          // (layers)
    LayerName *layer_names; // (layers) "layer 0", ...; external profilers keep pointers to them
    NormForward final_norm;
    Tensor hidden; // (B, T, C): the output
} Stack;

/* `parameters` are part of `all`, and may get memory later. `name` is a layer's name: "layer", "encoder
 * layer". */
void stack_open(const Config *config, const Parameters *all, const StackParameters *parameters,
                int64_t layers, int64_t first_layer, const char *name, Stack *stack);
void stack_close(Stack *stack);

/* Computes stack->hidden; saved tensors come from ARENA_SAVED. `cache` may be NULL; else it grows by T,
 * and cache->length + T <= context. */
CHECKED Status stack_forward(Ctx *ctx, Stack *stack, const DeviceBatch *batch, Cache *cache);

/* Overwrites `dhidden`. Writes `dmemory` (B, S, C) unless it is empty. */
CHECKED Status stack_backward(Ctx *ctx, Stack *stack, Tensor dhidden, Tensor dmemory);

/* The table of positions, (context, C), fixed or learned; empty with rotary positions. */
Tensor stack_positions(const Stack *stack);
