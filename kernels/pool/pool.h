/* pool: one row per sequence, for a head.
 *
 *     y[b] = x[b,0]                        FIRST: the class token's
 *     y[b] = sum over t of x[b,t] / T      MEAN
 *
 * Backward, dx is written:
 *
 *     dx[b,0] = dy[b], and 0 elsewhere     FIRST
 *     dx[b,t] = dy[b] / T                  MEAN
 *
 * All tensors have one dtype. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef enum { POOL_FIRST, POOL_MEAN } PoolKind;

typedef struct {
    PoolKind kind;
    Tensor x; // (B, T, C)
    Tensor y; // (B, C)
} PoolForward;

typedef struct {
    const PoolForward *forward;
    Tensor dy; // (B, C)
    Tensor dx; // (B, T, C)
} PoolBackward;

/* Takes an empty y from `saved`. */
CHECKED Status pool_forward(Ctx *ctx, PoolForward *p, ArenaKind saved);
CHECKED Status pool_backward(Ctx *ctx, const PoolBackward *p);

__END_DECLS
