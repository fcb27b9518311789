/* residual: the stream x that runs through the blocks of a Transformer. Each branch reads it and adds to it
 * what the linear layer that closes the branch makes:
 *
 *     y = norm(x)                          residual_norm: before a branch, and behind the last block
 *     x = norm(x)                          residual_normalize: behind a branch, and behind the embedding
 *     x = x + depth(dropout(linear(u)))    residual_add
 *
 * These are compositions of norm, linear and pool, whose contracts let a neighbour do a part of the work. Who
 * does what is decided in residual.c for both passes, and nowhere else: who adds, who sums the gradient of
 * the bias, which rows are still wanted, and which sums outlive their block.
 *
 * Backward: the gradient of x comes from the blocks above and is updated in place. */
#pragma once

#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"

typedef struct {
    Tensor x;         // (B, T, C)
    Tensor due;       // (B, T, C): what the next norm adds to x; empty: nothing
    double due_depth; // the rate of stochastic depth of what is due
    bool post;        // norms stand behind the branches (Vaswani et al. 2017), not before them
    bool first;       // the next addition is to the first row of each sequence alone: x becomes (B, 1, C)
    bool again;       // the block runs a second time, for its backward pass
    bool closing;     // the branch is its block's last: what it leaves outlives the block
    Tensor kept[2];   // (B, T, C): where it leaves x and what is due
    Tensor other[2];  // (B, T, C): the same of the block below
} Residual;

/* One addition: what the forward pass leaves for the backward pass. */
typedef struct {
    LinearForward linear;
    PoolForward first_u, first_x; // where first rows alone are wanted: those of u and of x
} ResidualAdd;

typedef struct {
    Tensor d;       // (B, T, C): of x
    Tensor branch;  // (B, T, C): of what was added to x last: d, but where dropout sets the two apart
    Tensor bias;    // (C): a bias's gradient, which the next norm adds the sums over d's rows to; or empty
    Tensor dropped; // (B, T, C): memory for `branch`; empty where nothing is dropped
    Tensor all[2];  // (B, T, C): memory for d and `dropped` below an addition to first rows; else empty
    bool post;      // as in Residual
} ResidualGradient;

/* Before a block: memory for what it leaves. `runs_again`: the backward pass runs the block a second time. */
CHECKED Status residual_begin_block(Ctx *ctx, Residual *stream, bool runs_again);

/* `n` says its kind, weight, bias, eps and the dropout of what may be due; what it saves is taken from
 * `saved`. */
CHECKED Status residual_norm(Ctx *ctx, Residual *stream, NormForward *n, ArenaKind saved);
CHECKED Status residual_normalize(Ctx *ctx, Residual *stream, NormForward *n, ArenaKind saved);

/* `add->linear` says its weight and bias; `depth` is the rate of stochastic depth. */
CHECKED Status residual_add(Ctx *ctx, Residual *stream, Tensor u, double depth, ResidualAdd *add,
                            ArenaKind saved);

/* Takes the memory from ARENA_SCRATCH, for a d that is there. `drops`: something is dropped from branches.
 * `x`: the stream as it was before it lost rows; empty if it has lost none. */
CHECKED Status residual_gradient_take(Ctx *ctx, ResidualGradient *g, bool drops, Tensor x);

/* `n` says its forward contract and where the parameters' gradients go. The gradient of what the norm made is
 * n->dy, which is added to g->d as the gradient of x; of residual_normalize, and of a residual_norm that
 * nothing else reads x behind, it is g->d itself. */
CHECKED Status residual_norm_backward(Ctx *ctx, ResidualGradient *g, NormBackward *n);
CHECKED Status residual_normalize_backward(Ctx *ctx, ResidualGradient *g, NormBackward *n);

/* `l` says dx, its input and where the parameters' gradients go. Behind it g->d is the gradient of all rows.
 * */
CHECKED Status residual_add_backward(Ctx *ctx, ResidualGradient *g, const ResidualAdd *add,
                                     LinearBackward *l);
