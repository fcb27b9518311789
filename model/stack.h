/* stack: from token ids, or pictures, to hidden states: tables or patches, blocks and, where
 * the config has one, a final norm.
 *
 *     x = tables(tokens)       or patches(pictures); then a norm and dropout, where the config has them
 *     x = block(x)             for each layer
 *     hidden = norm(x)         with a final norm; else hidden is x
 *
 * A GPT or a BERT is one stack; an encoder-decoder is two, where the blocks of the second attend to the
 * output of the first. */
#pragma once

#include "kernels/embed/embed.h"
#include "kernels/patch/patch.h"
#include "model/block.h"

typedef char LayerName[24];

typedef struct {
    BlockPass pass; // its config, layers and what a pass does; the batch and the cache of the last one
    const StackParameters *parameters;
    const Parameters *all; // that they are of
    Tensor positions;      // (context, C): a fixed table; empty where positions are learned or rotary

    /* Of the last forward pass. */
    EmbedForward embed;
    PatchForward patch; // instead, of pictures
    NormForward embedding_norm;
    DropoutForward embedding_dropout;
    Block *blocks;          // (layers)
    LayerName *layer_names; // (layers) "layer 0", ...: outside profilers keep pointers to them
    NormForward final_norm;
    Tensor hidden; // (B, T, C): the output
} Stack;

/* `parameters` are of `all`. `name` is of a layer: "layer", "encoder layer". Tensors may come later. */
void stack_open(const Config *config, const Parameters *all, const StackParameters *parameters,
                int64_t layers, int64_t first_layer, const char *name, Stack *stack);
void stack_close(Stack *stack);

/* Leaves stack->hidden; takes what it keeps from ARENA_SAVED. `cache` may be NULL: else it grows by T, and
 * cache->length + T <= context. */
CHECKED Status stack_forward(Ctx *ctx, Stack *stack, const DeviceBatch *batch, Cache *cache);

/* `dhidden` is left undefined. `dmemory` (B, S, C) is written, where there is one; else empty. */
CHECKED Status stack_backward(Ctx *ctx, Stack *stack, Tensor dhidden, Tensor dmemory);

/* The table of positions, (context, C), fixed or learned; empty where positions are rotary. */
Tensor stack_positions(const Stack *stack);
