/* cuda_fused: the kernels of a linear layer other than its products, each in a separate file. */
#pragma once

#include "kernels/linear/linear.h"

/* ---- cuda_rows.cu ----
 * A linear layer of a few rows, as in decoding: bound by reading the weights once. */

/* Whether linear_rows runs this layer: up to LINEAR_FEW_ROWS rows, or with FUSE_INVARIANT any number; whole
 * 16-byte vectors. */
bool linear_rows_suit(const Ctx *ctx, const LinearForward *l);
CHECKED Status linear_rows(Ctx *ctx, const LinearForward *l);

/* ---- cuda_tiles.cu ----
 * A linear layer of more rows by Hopper's tensor cores, with bias, skip and activation, gated ones too. With
 * FUSE_INVARIANT it takes every number of rows. */

/* Whether linear_tiles runs this layer: bf16 on Hopper, whole 16-byte vectors; more than LINEAR_FEW_ROWS rows
 * and at most 64, or with FUSE_INVARIANT any number. */
bool linear_tiles_suit(const Ctx *ctx, const LinearForward *l);
CHECKED Status linear_tiles(Ctx *ctx, const LinearForward *l);

/* The number of slices of the inputs that it adds separately, in order, for a layer of `out` outputs and
 * `steps` times LINEAR_SLICE_STEP inputs; the slices are equally many steps, the last the rest. */
constexpr int LINEAR_SLICE_STEP = 64;
int linear_slices(int64_t out, int steps);

/* ---- cuda_gated.cu ----
 * The activation of a gated layer (linear.h) and its gradient, in one pass each. */

/* y = silu(gate) * up, from pre (..., 2 * width of y), dense. */
CHECKED Status gated_output(Ctx *ctx, Tensor pre, Tensor y);
/* Computes dpre, shaped as pre, from dy, which may be the first half of dpre's columns. */
CHECKED Status gated_gradient(Ctx *ctx, Tensor pre, Tensor dy, Tensor dpre);

/* ---- cuda_deferred.cu ---- Activations deferred to the casts that read them (linear.h): an activation, or
 * the product of its derivative with a gradient, is rounded to bf16 and then to 8 bits in one pass. */

/* Computes l->x8 from l->input->pre. */
CHECKED Status deferred_input(Ctx *ctx, const LinearForward *l);
/* Computes l->dy8, and dbias, from l->dy and l->forward->pre. */
CHECKED Status deferred_gradient(Ctx *ctx, const LinearBackward *l);
