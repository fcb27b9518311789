/* cpu_groups: dot products with weights that are integers by groups (base/groups.h). */
#pragma once

#include "base/tensor.h"

/* sums[s] = row n of x . row rows[s] of weight: GROUP_STREAMS rows, which are read side by side.
 *
 *     sum over groups g of  x.scale[g] * weight.scale[g] * (x.code[g] . weight.code[g])
 *
 * x is I8; weight is I8 or I4. The products of codes are exact, and what the groups add is summed in fp32. */
enum { GROUP_STREAMS = 4 };
void group_dots(Tensor x, int64_t n, Tensor weight, const int64_t rows[GROUP_STREAMS],
                float sums[GROUP_STREAMS]);
