/* cpu_groups: dot products with weights quantized by groups (base/groups.h). */
#pragma once

#include "base/tensor.h"

/* A group of x in 8 bits. */
typedef struct {
    int8_t codes[GROUP];
    float scale;
    int32_t sum; // sum of the codes
} GroupOfX;

void group_of_x(const float x[GROUP], GroupOfX *group);

/* Computes sums[s][i] = x . row rows[s] + i of weight for GROUP_STREAMS tiles, which are read in parallel;
 * rows[s] is a multiple of GROUP_ROWS.
 *
 *     sum over groups g of  x.scale[g] * weight.scale[g] * (x.code[g] . weight.code[g])
 *
 * Products of codes are exact; the sum over groups is fp32. */
enum { GROUP_STREAMS = 4 };
void group_dots(const GroupOfX *x, Tensor weight, const int64_t rows[GROUP_STREAMS],
                float sums[GROUP_STREAMS][GROUP_ROWS]);
