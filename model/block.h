/* block: one layer of a Transformer. Its branches are self-attention; in a stack with an encoder, cross
 * attention to the encoder's output; and the feed-forward layers. Each branch f has a norm before it
 * (GPT-2; Radford et al. 2019, section 2.3) or after it (Vaswani et al. 2017, section 3.1):
 *
 *     x = x + f(norm(x))        NORM_PRE
 *     x = norm(x + f(x))        NORM_POST
 *
 * kernels/residual implements the additions and norms of x. */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/residual/residual.h"
#include "model/parameters.h"

/* One batch in device memory (in host memory: data/batch.h). Tensors that the model does not
 * use are empty. */
typedef struct {
    Tensor tokens;   // (B, T) i32, each in [0, vocab): input of the stack that the head reads
    Tensor pictures; // (B, H, W, channels) u8: instead of tokens
    Tensor segments; // (B, T) i32; empty: all 0
    Tensor lengths;  // (B) i32: number of tokens of each row that are attended to; empty: all
    Tensor starts;   // (B, T) i32: first position of each token's document (attention.h); empty: 0

    /* For an encoder-decoder. */
    Tensor source;         // (B, S) i32: the encoder runs first
    Tensor source_lengths; // (B) i32, or empty
    Tensor memory;         // (B, S, C): an encoder output computed before, instead of source

    /* For the loss: Targets, in model/head.h. */
    Tensor targets; // (B, T) i32, or with rows (M)
    Tensor rows;    // (M) i32
    Tensor count;   // (1) fp32: number of targets
} DeviceBatch;

/* The key-value cache of a stack, layer by layer, and keys and values of the encoder's output. */
typedef struct {
    Tensor k, v;             // (layers, B, capacity, kv_heads*D)
    int64_t first;           // the batch's first row in k and v
    int64_t length;          // number of cached tokens: the position of the next one
    Tensor lengths;          // (B) i32 or empty: those of each row, of which `length` is the greatest
    Tensor length_on_device; // (1) i32 or empty: `length` in device memory (embed.h, attention.h)
    Tensor memory;           // (layers, B, S, 2*kv_heads*D); empty without an encoder
    Tensor memory_lengths;   // (B) i32, or empty
} Cache;

/* One layer's view of k, v or memory: `count` batch rows of it, (count, rows, columns). */
static inline Tensor cache_rows(Tensor all, int64_t layer, int64_t first, int64_t count) {
    Shape shape = shape3(count, all.shape.d[2], all.shape.d[3]);
    return tensor_elements(all, (layer * all.shape.d[1] + first) * all.shape.d[2] * all.shape.d[3], shape);
}

static inline Tensor cache_layer(Tensor all, int64_t layer) {
    return cache_rows(all, layer, 0, all.shape.d[1]);
}

/* Activations that the backward pass recomputes instead of reading saved ones. */
typedef enum {
    RECOMPUTE_NONE,
    RECOMPUTE_HIDDEN, // hidden activations of the feed-forward layers, by one product: almost half the
                      // saved memory
    RECOMPUTE_BLOCKS, // everything inside a block, by running it again from its inputs
    RECOMPUTE_AUTO,   // a value of the option: run/fit.h selects one of the others
} Recompute;

/* Places that draw dropout masks: the instance of a Dropout is SITES * layer + site. */
enum {
    SITE_ATTENTION, // self-attention probabilities
    SITE_NORM1,     // the branch that norm1 adds; the following are similar
    SITE_CROSS,     // probabilities of cross attention
    SITE_CROSS_NORM,
    SITE_NORM2,
    SITE_EMBEDDING, // numbered in a stack's first layer
    SITE_LAST,      // the branch that the last norm adds; numbered in a stack's first layer
    SITES = 8
};

/* The Dropout of a site. */
static inline Dropout dropout_at(Dropout dropout, int64_t layer, int site) {
    dropout.instance = (uint32_t)(SITES * layer + site);
    return dropout;
}

/* A pass through the blocks of a stack: data common to all blocks. */
typedef struct {
    const Config *config;
    int64_t layers, first_layer; // first_layer: number of the first block in plans, profiles and random draws
    bool causal;                 // mask of the self-attention
    bool first;         // the head reads only the first row of each sequence: the output is (B, 1, C)
    Tensor map;         // (B, heads, T): receives the attention of that row in the last block; may be empty
    Tensor frequencies; // (D/2) of the dtype wide_dtype: rotary positions; else empty
    Recompute recompute;
    int64_t spared;  // the lowest `spared` blocks recompute one kind less: hidden for blocks, none for hidden
    Dropout dropout; // dropout of embedding, branches and probabilities; off outside training
    double depth;    // stochastic-depth rate of the last layer, 0 in the first; off outside training
    DeviceBatch batch; // blocks read its lengths, starts, memory and source_lengths
    Cache *cache;      // or NULL; its memory, if set, replaces the batch's
} BlockPass;

/* Contracts that the forward pass saves for the backward pass. */
typedef struct {
    Residual x; // the residual stream at the input
    NormForward norm1;
    LinearForward qkv;
    NormForward query_norm, key_norm; // norms of each head
    AttentionForward attention;
    ResidualAdd projection;
    NormForward cross_norm;
    LinearForward cross_query,
        cross_memory; // queries from the stream; keys and values from the encoder's output
    AttentionForward cross;
    ResidualAdd cross_projection;
    NormForward norm2;
    LinearForward expand;
    ResidualAdd contract;
} Block;

typedef struct {
    ResidualGradient x;
    Tensor memory;       // (B, S, C): gradient of the encoder's output; empty without an encoder
    bool memory_written; // a layer above has written it, so this one adds to it
} BlockGradient;

/* The activations that block `layer` of the stack recomputes. The blocks that recompute more lie above the
 * others, because a block that runs again needs the pending addition below, which kernels/residual keeps from
 * there on. */
static inline Recompute block_recompute(const BlockPass *pass, int64_t layer) {
    return pass->recompute && layer < pass->spared ? pass->recompute - 1 : pass->recompute;
}

/* The number of layers that queries, keys and values count as: linear.h. */
int block_qkv_parts(const Config *config);

/* The rows of a cross attention's packed layer that produce queries. */
Affine block_query_rows(const Affine *packed);

/* `layer` is the layer's index in the stack. Replaces x by the block's output. */
CHECKED Status block_forward(Ctx *ctx, const BlockPass *pass, int64_t layer,
                             const BlockParameters *parameters, Residual *x, Block *block);

/* Replaces the gradient of the block's output by that of its input. */
CHECKED Status block_backward(Ctx *ctx, const BlockPass *pass, int64_t layer,
                              const BlockParameters *parameters, Block *block, BlockGradient *gradient);

/* Keys and values for cross attention, (B, S, 2*kv), from the encoder's output. */
CHECKED Status block_memory(Ctx *ctx, const Config *config, const BlockParameters *parameters, Tensor memory,
                            Tensor keys_and_values);
