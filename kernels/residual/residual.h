/* residual: the residual stream x of a Transformer. Each branch reads x and adds the output of its last
 * linear layer:
 *
 *     y = norm(x)                          residual_norm: before a branch, and after the last block
 *     x = norm(x)                          residual_normalize: after a branch, and after the embedding
 *     x = x + depth(dropout(linear(u)))    residual_add
 *
 * These are compositions of norm, linear and pool, whose contracts can take over each other's work.
 * residual.c decides for both passes which operation adds the residual, which one sums the bias gradient,
 * which rows are still needed, and which tensors outlive their block.
 *
 * Backward: the gradient of x comes from the blocks above and is updated in place. */
#pragma once

#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"

typedef struct {
    Tensor x;         // (B, T, C)
    Tensor due;       // (B, T, C): pending, added to x by the next norm; empty: none
    double due_depth; // stochastic-depth rate of the pending addition
    bool post;        // norms follow the branches (Vaswani et al. 2017) instead of preceding them
    bool first;      // the next addition is restricted to the first row of each sequence: x becomes (B, 1, C)
    bool again;      // the block runs a second time, for its backward pass
    bool closing;    // the branch is the last of its block: its result outlives the block
    Tensor kept[2];  // (B, T, C): memory for x and the pending addition
    Tensor other[2]; // (B, T, C): the same for the block below
} Residual;

/* One addition: data saved for the backward pass. */
typedef struct {
    LinearForward linear;
    PoolForward first_u, first_x; // if only first rows are needed: the first rows of u and of x
} ResidualAdd;

typedef struct {
    Tensor d;       // (B, T, C): gradient of x
    Tensor branch;  // (B, T, C): gradient of the last addition to x: d, or a separate tensor with dropout
    Tensor bias;    // (C): a bias gradient to which the next norm adds the sum of d's rows; or empty
    Tensor dropped; // (B, T, C): memory for `branch`; empty without dropout
    Tensor all[2];  // (B, T, C): memory for d and `dropped` below an addition to first rows; else empty
    bool post;      // the same as in Residual
} ResidualGradient;

/* Call before each block: takes memory for its results. `runs_again`: the backward pass runs the block a
 * second time. */
CHECKED Status residual_begin_block(Ctx *ctx, Residual *stream, bool runs_again);

/* `n` gives kind, weight, bias, eps and the dropout of a pending addition; saved tensors come from
 * `saved`. */
CHECKED Status residual_norm(Ctx *ctx, Residual *stream, NormForward *n, ArenaKind saved);
CHECKED Status residual_normalize(Ctx *ctx, Residual *stream, NormForward *n, ArenaKind saved);

/* `add->linear` gives weight and bias; `depth` is the stochastic-depth rate. */
CHECKED Status residual_add(Ctx *ctx, Residual *stream, Tensor u, double depth, ResidualAdd *add,
                            ArenaKind saved);

/* Takes memory from ARENA_SCRATCH for an existing d. `drops`: branches have dropout. `x`: the stream
 * before it was restricted to first rows; empty if it was not. */
CHECKED Status residual_gradient_take(Ctx *ctx, ResidualGradient *g, bool drops, Tensor x);

/* `n` gives the forward contract and the parameter gradients. n->dy is the gradient of the norm's output,
 * and g->d that of x. For residual_normalize, and for a residual_norm after which x is not read, n->dy is
 * g->d. */
CHECKED Status residual_norm_backward(Ctx *ctx, ResidualGradient *g, NormBackward *n);
CHECKED Status residual_normalize_backward(Ctx *ctx, ResidualGradient *g, NormBackward *n);

/* `l` gives dx, its input and the parameter gradients. Afterwards g->d covers all rows. */
CHECKED Status residual_add_backward(Ctx *ctx, ResidualGradient *g, const ResidualAdd *add,
                                     LinearBackward *l);
