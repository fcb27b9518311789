/* cuda_deferred: activations that a layer has left to the casts that read them (linear.h): an activation, or a slope's
 * product with a gradient, is rounded to bf16 and then to 8 bits in one pass. */
#pragma once

#include "kernels/linear/linear.h"

/* l->x8 of l->input->pre. */
CHECKED Status deferred_input(Ctx *ctx, const LinearForward *l);
/* l->dy8, and dbias, of l->dy and l->forward->pre. */
CHECKED Status deferred_gradient(Ctx *ctx, const LinearBackward *l);
