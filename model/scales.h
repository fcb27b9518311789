/* scales: by which --fused=fp8 brings a step's tensors into the range of 8 bits. A cast is given a scale that was known
 * before the step began, and leaves what it has seen for the next step (kernels/cast/cast.h):
 *
 *     m     = mean over the step's micro-batches of max |x|
 *     s     = the largest power of two with s * SCALE_MARGIN * m <= 448
 *
 * s stays as it is where m is 0 or not finite. A mean, as of the losses, has the same bits on any number of ranks.
 * The first step has no scales, and its casts find their own.
 *
 * Where a step has several micro-batches, one rank casts the blocks' weights before the first of them, for all. Of
 * several ranks each casts in its passes, since weights may arrive there. */
#pragma once

#include "kernels/op.h"
#include "model/parameters.h"

enum { SCALE_MARGIN = 2 };

/* Memory for the blocks' weights in 8 bits and their transposes, where the GPU multiplies these. */
CHECKED Status scales_take_weights(Ctx *ctx, Parameters *parameters);
/* Whether there is any to cast now: a graph must not be empty. */
bool scales_casts_weights(const Ctx *ctx, const Parameters *parameters);
/* Casts them, once what casts have seen has been cleared. Nothing where they have no memory. */
CHECKED Status scales_cast_weights(Ctx *ctx, Parameters *parameters);

/* Behind a step: sets parameters->scales and ctx->scaled. `clipped` gets the number of casts that clipped. */
CHECKED Status scales_renew(Ctx *ctx, Parameters *parameters, int64_t micro_batches, int64_t *clipped);

/* Whether a number can be a scale. */
bool scale_valid(float scale);
