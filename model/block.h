/* block: one layer of a Transformer. It is made of branches: self-attention; in a stack with an encoder
 * attention to the encoder's output (cross attention); and the feed-forward layers. Each branch f has a norm
 * before it (GPT-2; Radford et al. 2019, section 2.3) or after it (Vaswani et al. 2017, section 3.1):
 *
 *     x = x + f(norm(x))        NORM_PRE
 *     x = norm(x + f(x))        NORM_POST
 *
 * The stream is two tensors, x and skip, whose sum is due: the addition belongs to the next norm, which does
 * it in the same pass over memory. But with NORM_PRE and when not training, the layer that closes a branch
 * adds the stream to what it makes; and with NORM_POST a block's output has no skip.
 *
 * Where a head reads the first row of each sequence alone, the last block works on that row alone as soon as
 * its attention has looked at the others: its outputs are (B, 1, C). */
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"
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

/* The samples of one site: rows of (B, T, C). */
static inline Dropout depth_at(Dropout dropout, double rate, int64_t layer, int site) {
    dropout.rate = rate;
    return dropout_at(dropout, layer, site);
}

typedef struct {
    Tensor x, skip;   // (B, T, C); skip may be empty
    ArenaKind inner;  // where what the backward pass reads is taken: ARENA_SAVED, or ARENA_SCRATCH
    ArenaKind hidden; // the same inside the feed-forward layers; other than `inner`, it is ARENA_SCRATCH, and
                      // the backward pass makes it again
    Tensor x_out, skip_out;  // (B, T, C): the outputs, taken by the caller; skip_out where a skip is left
    bool causal;             // of the self-attention
    Tensor frequencies;      // (D/2) wide: rotary positions; empty: none
    Tensor lengths;          // (B) i32: tokens of each row that can be attended to; empty: all
    Tensor starts;           // (B, T) i32: of each token's document (attention.h); empty: 0
    Tensor memory;           // (B, S, C): the encoder's output; empty where there is none
    Tensor memory_lengths;   // (B) i32, or empty
    Tensor memory_cache;     // (B, S, 2*kv): keys and values made from memory before; memory is then not read
    Tensor cache_k, cache_v; // (B, capacity, kv) of this layer; empty without a cache
    int64_t past;            // tokens already in the cache
    Tensor past_on_device;   // (1) i32 or empty: see attention.h
    Dropout dropout;         // of residual branches and probabilities; off when not training
    double depth[2];         // rates of stochastic depth of the branches that norm1 adds, and norm2
    int64_t layer;           // its number in plans, profiles and draws
    bool first;              // only the first row of each sequence is wanted: NORM_PRE, self-attention alone
    Tensor map;              // (B, heads, T) gets what the first row attends to, of each head; or empty
    bool again;              // recomputing for the backward pass: what only the block above needs is left out
} BlockInput;

/* What the forward pass leaves for the backward pass: the contracts themselves. */
typedef struct {
    BlockInput input;
    NormForward norm1;
    LinearForward qkv;
    NormForward query_norm, key_norm; // of each head
    AttentionForward attention;
    PoolForward first_heads, first_x; // where only first rows are wanted: attention's output, and the stream
    LinearForward projection;
    NormForward cross_norm;
    LinearForward cross_query, cross_memory; // from the stream; keys and values from the encoder's output
    AttentionForward cross;
    LinearForward cross_projection;
    NormForward norm2;
    LinearForward expand, contract;
} Block;

/* The gradient of the stream on its way down. */
typedef struct {
    Tensor d;            // (B, T, C): of x + skip
    Tensor branch;       // (B, T, C): of skip, which may be d itself
    Tensor masked;       // (B, T, C): for `branch`, where dropout sets it apart from d; else empty
    Tensor spare;        // (B, T, C): where what cannot overwrite `d` is written
    Tensor memory;       // (B, S, C): of the encoder's output; empty where there is none
    bool memory_written; // by a layer above, so that this one adds to it
    Tensor whole[3];     // (B, T, C): what d, spare and masked become below a block of first rows; else empty
} StreamGradient;

/* The rows of a cross attention's packed layer that make the queries. */
Affine block_query_rows(const Affine *packed);

CHECKED Status block_forward(Ctx *ctx, const Config *config, const BlockParameters *parameters,
                             const BlockInput *input, Block *block);

/* The gradient comes in as that of x_out + skip_out and leaves as that of x + skip; `spare` and `d` may have
 * been exchanged. */
CHECKED Status block_backward(Ctx *ctx, const Config *config, const BlockParameters *parameters, Block *block,
                              StreamGradient *gradient);

/* Keys and values for the cross attention, (B, S, 2*kv), from the encoder's output. */
CHECKED Status block_memory(Ctx *ctx, const Config *config, const BlockParameters *parameters, Tensor memory,
                            Tensor keys_and_values);
