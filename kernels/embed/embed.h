/* embed: y[b,t,:] = token[tokens[b,t],:] + position[past + t,:].
 * Backward: dtoken[tokens[b,t],:] += dy[b,t,:];  dposition[past + t,:] += sum over b of dy[b,t,:].
 * The sums run in a fixed order (no float atomics): the same batch gives the same bits. The caller has
 * checked that every token lies in [0, V) and past + T <= P. Radford et al. 2019 (GPT-2), section 2.3. */
#ifndef KERNELS_EMBED_H
#define KERNELS_EMBED_H

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Tensor tokens;         // (B, T) i32, device memory
    Tensor token;          // (V, C)
    Tensor position;       // (P, C); may be empty
    Tensor y;              // (B, T, C)
    int64_t past;          // position of the first column of tokens: 0, or the tokens already in a cache
    Tensor past_on_device; // (1) i32, or empty: the fused CUDA form reads past here instead, so that captured
                           // work can go on; the caller has checked that it is at most P - T
} EmbedForward;

typedef struct {
    const EmbedForward *forward;
    Tensor dy;        // (B, T, C)
    Tensor dtoken;    // (V, C) fp32, +=
    Tensor dposition; // (P, C) fp32, +=; empty where position is
} EmbedBackward;

CHECKED Status embed_forward(Ctx *ctx, const EmbedForward *e);
CHECKED Status embed_backward(Ctx *ctx, const EmbedBackward *e);

#ifdef __cplusplus
}
#endif
#endif
