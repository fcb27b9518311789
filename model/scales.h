/* scales: the factors with which --fused=fp8 fits a step's tensors to the range of e4m3. A cast gets a scale
 * from the previous step, and records the largest magnitude for the next step (delayed scaling;
 * kernels/cast/cast.h):
 *
 *     m     = mean over the step's micro-batches of max |x|
 *     s     = the largest power of two with s * SCALE_MARGIN * m <= 448
 *
 * s is unchanged if m is 0 or not finite. m is a mean, like the loss, because a mean has the same bits on any
 * number of ranks. In the first step, which has no scales, each cast computes its own.
 *
 * A single rank with several micro-batches per step casts the blocks' weights once, before the first
 * micro-batch. With several ranks the passes cast the weights, which may arrive during the passes. */
#pragma once

#include "kernels/op.h"
#include "model/parameters.h"

enum { SCALE_MARGIN = 2 };

/* Takes memory for the blocks' 8-bit weights and their transposes, if the GPU multiplies e4m3. */
CHECKED Status scales_take_weights(Ctx *ctx, Parameters *parameters);
/* Whether there are weights to cast: an empty graph cannot be captured. */
bool scales_casts_weights(const Ctx *ctx, const Parameters *parameters);
/* Casts the weights, after the casts' maxima have been cleared. Does nothing if they have no memory. */
CHECKED Status scales_cast_weights(Ctx *ctx, Parameters *parameters);

/* Called after a step: sets parameters->scales and ctx->scaled. *clipped is set to the number of casts that
 * clipped. */
CHECKED Status scales_renew(Ctx *ctx, Parameters *parameters, int64_t micro_batches, int64_t *clipped);

/* Whether a number is a valid scale. */
bool scale_valid(float scale);
