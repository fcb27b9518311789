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

/* Keys and values of the tokens seen so far, layer by layer, and those of the encoder's output. */
typedef struct {
    Tensor k, v;             // (layers, B, capacity, kv_heads*D)
    int64_t length;          // tokens in it
    Tensor length_on_device; // (1) i32 or empty: `length` in device memory (embed.h, attention.h)
    Tensor memory;           // (layers, B, S, 2*kv_heads*D); empty without an encoder
    Tensor memory_lengths;   // (B) i32, or empty
} Cache;

typedef char LayerName[24];

typedef struct {
    const Config *config;
    const StackParameters *parameters;
    const Parameters *all;       // that they are of
    int64_t layers, first_layer; // first_layer: the number of its first block in plans and profiles
    bool causal;
    bool first; // hidden is of the first row of each sequence alone, (B, 1, C)
    Tensor map; // (B, heads, T): what that row attends to in the last block (model/block.h); or empty
    Recompute recompute;
    Dropout dropout;  // of the embedding, branches and probabilities; off when not training
    double depth;     // the rate of stochastic depth of the last layer's branches, 0 in the first's; likewise
    Tensor positions; // (context, C): a fixed table; empty where positions are learned or rotary
    Tensor frequencies; // (D/2) fp32: of rotary positions; else empty

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

typedef struct {
    Tensor tokens;                 // (B, T) i32, device memory, each in [0, vocab)
    Tensor pictures;               // (B, H, W, channels) u8, device memory: instead of tokens
    Tensor segments;               // (B, T) i32, or empty
    Tensor lengths;                // (B) i32: keys at and beyond it are not attended to; empty: all are
    Tensor starts;                 // (B, T) i32: of each token's document (attention.h); empty: 0
    Tensor memory, memory_lengths; // (B, S, C), (B) i32: of the encoder, for blocks with cross attention
    Cache *cache;                  // or NULL; its memory, where there is one, goes before `memory`
} StackInput;

/* `parameters` are of `all`. `name` is of a layer: "layer", "encoder layer". Tensors may come later. */
void stack_open(const Config *config, const Parameters *all, const StackParameters *parameters,
                int64_t layers, int64_t first_layer, const char *name, Stack *stack);
void stack_close(Stack *stack);

/* Leaves stack->hidden; takes what it keeps from ARENA_SAVED. past + T <= context. */
CHECKED Status stack_forward(Ctx *ctx, Stack *stack, const StackInput *input);

/* The gradient of `hidden` comes in gradient->d, which is left undefined; the other tensors of the stream are
 * taken here. gradient->memory is written, where there is one. */
CHECKED Status stack_backward(Ctx *ctx, Stack *stack, StreamGradient *gradient);

/* The table of positions, (context, C), fixed or learned; empty where positions are rotary. */
Tensor stack_positions(const Stack *stack);

/* One layer's part of a cache: (B, rows, columns). */
Tensor cache_layer(Tensor all, int64_t layer);
