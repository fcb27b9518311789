/* cpu_groups: dot products with weights quantized by groups (base/groups.h). */
#pragma once

#include "base/tensor.h"

/* Computes sums[s] = row n of x . row rows[s] of weight for GROUP_STREAMS rows, which are read in parallel.
 *
 *     sum over groups g of  x.scale[g] * weight.scale[g] * (x.code[g] . weight.code[g])
 *
 * x is I8; weight is I8 or I4. Products of codes are exact; the sum over groups is fp32. */
enum { GROUP_STREAMS = 4 };
void group_dots(Tensor x, int64_t n, Tensor weight, const int64_t rows[GROUP_STREAMS],
                float sums[GROUP_STREAMS]);
