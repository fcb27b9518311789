/* cuda_deferred: activations deferred to the casts that read them (linear.h): an activation, or the product
 * of its derivative with a gradient, is rounded to bf16 and then to 8 bits in one pass. */
#pragma once

#include "kernels/linear/linear.h"

/* Computes l->x8 from l->input->pre. */
CHECKED Status deferred_input(Ctx *ctx, const LinearForward *l);
/* Computes l->dy8, and dbias, from l->dy and l->forward->pre. */
CHECKED Status deferred_gradient(Ctx *ctx, const LinearBackward *l);
