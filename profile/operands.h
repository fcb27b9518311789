/* operands: what an operation reads, for the shapes in traces and tables. */
#pragma once

#include "kernels/record.h"

/* The tensors of its contract, in the order of their declaration; of a backward pass the gradient, and then
 * what the forward pass read. What it has none of stays empty. */
void operands_of(const Call *call, Tensor inputs[RECORD_INPUTS]);
