/* embed: token, position and segment embedding.
 *
 *     y[b,t] = scale * token[tokens[b,t]] + position[past + t] + segment[segments[b,t]]
 *
 * Backward:
 *
 *     dtoken[tokens[b,t]]     += scale * dy[b,t]
 *     dposition[past + t]     += sum over b of dy[b,t]
 *     dsegment[segments[b,t]] += dy[b,t]
 *
 * Sums run in a fixed order (no float atomics), so equal batches give equal bits. The caller has checked
 * that every token is in [0, V), every segment in [0, S), and past + T <= P. Positions are learned
 * (Radford et al. 2019, section 2.3) or a fixed table without a gradient (Vaswani et al. 2017, section
 * 3.5, with scale = sqrt(C), section 3.4). Segments are BERT's (Devlin et al. 2019, figure 2). */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

/* The tables and y have one dtype. */
typedef struct {
    Tensor tokens;   // (B, T) i32, device memory
    Tensor token;    // (V, C)
    Tensor position; // (P, C); may be empty
    Tensor segments; // (B, T) i32, device memory; empty: all 0
    Tensor segment;  // (S, C); may be empty
    double scale;    // factor of the token's row: 1, or sqrt(C)
    Tensor y;        // (B, T, C)
    int64_t past;    // position of the first column of tokens: the number of tokens in the cache
    Tensor pasts;    // (B) i32, device memory, or empty: those of each row, at most past. In inference only
    Tensor
        past_on_device; // (1) i32, or empty: the fused CUDA form reads past here instead, so that a captured
                        // graph can advance; the caller has checked that it is at most P - T.
} EmbedForward;

typedef struct {
    const EmbedForward *forward;
    Tensor dy;        // (B, T, C)
    Tensor dtoken;    // (V, C) fp32, +=
    Tensor dposition; // (P, C) fp32, +=; empty if position is empty or fixed
    Tensor dsegment;  // (S, C) fp32, +=; empty if segment is
} EmbedBackward;

/* Takes an empty y from `saved`. */
CHECKED Status embed_forward(Ctx *ctx, EmbedForward *e, ArenaKind saved);
CHECKED Status embed_backward(Ctx *ctx, const EmbedBackward *e);

__END_DECLS
