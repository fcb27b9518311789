/* block: one layer of a Transformer. It is made of branches: self-attention; in a stack with an encoder
 * attention to the encoder's output (cross attention); and the feed-forward layers. Each branch f has a norm
 * before it (GPT-2; Radford et al. 2019, section 2.3) or after it (Vaswani et al. 2017, section 3.1):
 *
 *     x = x + f(norm(x))        NORM_PRE
 *     x = norm(x + f(x))        NORM_POST
 *
 * What becomes of x between the branches, the additions and the norms, is kernels/residual's. */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/residual/residual.h"
#include "model/cache.h"
#include "model/device_batch.h"
#include "model/parameters.h"

/* What the backward pass makes anew instead of keeping it. */
typedef enum {
    RECOMPUTE_NONE,
    RECOMPUTE_HIDDEN, // inside the feed-forward layers, by one product: almost half of what is kept
    RECOMPUTE_BLOCKS, // everything inside a block, by running it again: all but its inputs
} Recompute;

/* What a pass draws masks for: the instance of a Dropout is SITES * layer + site. */
enum {
    SITE_ATTENTION, // probabilities of the self-attention
    SITE_NORM1,     // the branch that norm1 adds; and so on
    SITE_CROSS,     // probabilities of the cross attention
    SITE_CROSS_NORM,
    SITE_NORM2,
    SITE_EMBEDDING, // of a stack's first layer
    SITE_LAST,      // the branch that the last norm adds; of a stack's first layer
    SITES = 8
};

/* The Dropout of one site. */
static inline Dropout dropout_at(Dropout dropout, int64_t layer, int site) {
    dropout.instance = (uint32_t)(SITES * layer + site);
    return dropout;
}

/* A pass through the blocks of one stack: what they have in common. */
typedef struct {
    const Config *config;
    int64_t layers, first_layer; // first_layer: the number of the first block in plans, profiles and draws
    bool causal;                 // of the self-attention
    bool first;                  // the head reads the first row of each sequence alone: (B, 1, C) is left
    Tensor map;         // (B, heads, T): what that row attends to in the last block; empty: nobody asks
    Tensor frequencies; // (D/2) wide: of rotary positions; else empty
    Recompute recompute;
    Dropout dropout; // of the embedding, branches and probabilities; off when not training
    double depth;    // the rate of stochastic depth of the last layer's branches, 0 in the first's; likewise
    DeviceBatch batch; // of which blocks read lengths, starts, memory and source_lengths
    Cache *cache;      // or NULL; its memory, where there is one, goes before the batch's
} BlockPass;

/* What the forward pass leaves for the backward pass: the contracts themselves. */
typedef struct {
    Residual x; // the stream as it came in
    NormForward norm1;
    LinearForward qkv;
    NormForward query_norm, key_norm; // of each head
    AttentionForward attention;
    ResidualAdd projection;
    NormForward cross_norm;
    LinearForward cross_query, cross_memory; // from the stream; keys and values from the encoder's output
    AttentionForward cross;
    ResidualAdd cross_projection;
    NormForward norm2;
    LinearForward expand;
    ResidualAdd contract;
} Block;

typedef struct {
    ResidualGradient x;
    Tensor memory;       // (B, S, C): of the encoder's output; empty where there is none
    bool memory_written; // by a layer above, so that this one adds to it
} BlockGradient;

/* Queries, keys and values as so many layers: linear.h. */
int block_qkv_parts(const Config *config);

/* The rows of a cross attention's packed layer that make the queries. */
Affine block_query_rows(const Affine *packed);

/* `layer` is that of the stack; x goes from the block's input to its output. */
CHECKED Status block_forward(Ctx *ctx, const BlockPass *pass, int64_t layer,
                             const BlockParameters *parameters, Residual *x, Block *block);

/* The gradient goes from that of the block's output to that of its input. */
CHECKED Status block_backward(Ctx *ctx, const BlockPass *pass, const BlockParameters *parameters,
                              Block *block, BlockGradient *gradient);

/* Keys and values for the cross attention, (B, S, 2*kv), from the encoder's output. */
CHECKED Status block_memory(Ctx *ctx, const Config *config, const BlockParameters *parameters, Tensor memory,
                            Tensor keys_and_values);
