/* block: one layer of a Transformer before its residual additions are made. A block takes the stream as two
 * tensors, x and skip, whose sum is due: the addition belongs to the next norm, which does it in the same
 * pass over memory. Pre-norm, as in GPT-2 (Radford et al. 2019, section 2.3): r1 = x + skip;   a =
 * projection(attention(qkv(norm1(r1)))); r2 = r1 + a;     m = contract(gelu(expand(norm2(r2))));      out: x
 * = r2, skip = m */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "model/parameters.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the forward pass leaves for the backward pass: the contracts themselves. */
typedef struct {
    NormForward norm1;
    LinearForward qkv;
    AttentionForward attention;
    LinearForward projection;
    NormForward norm2;
    LinearForward expand, contract;
} Block;

typedef struct {
    Tensor x, skip;          // (B, T, C); skip empty in the first block
    ArenaKind inner;         // where what lies inside the block is taken: ARENA_SAVED, or ARENA_SCRATCH
    Tensor r2, m;            // (B, T, C): the outputs, taken by the caller
    Tensor cache_k, cache_v; // (B, capacity, kv) of this layer; empty without a cache
    int64_t past;            // tokens already in the cache
    Tensor past_on_device;   // (1) i32 or empty: see attention.h
    bool again;              // recomputing for the backward pass: m is not computed
} BlockInput;

CHECKED Status block_forward(Ctx *ctx, const Config *config, const BlockParameters *parameters,
                             const BlockInput *input, Block *block);

/* d, (B, T, C), comes in as the gradient of r2 + m and leaves as that of x + skip. */
CHECKED Status block_backward(Ctx *ctx, const BlockParameters *parameters, const Block *block, Tensor d);

#ifdef __cplusplus
}
#endif
#endif
