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

/* Computes sums[r][s][i] = row r of x . row rows[s] + i of weight, for 1 or GROUP_TOGETHER rows of x, one
 * after another, and GROUP_STREAMS tiles, which are read in parallel; rows[s] is a multiple of GROUP_ROWS.
 *
 *     sum over groups g of  x.scale[g] * weight.scale[g] * (x.code[g] . weight.code[g])
 *
 * Products of codes are exact; the sum over groups is fp32, in the same order for any number of rows. */
enum { GROUP_STREAMS = 4, GROUP_TOGETHER = 2 };
void group_dots(const GroupOfX *x, int64_t count, Tensor weight, const int64_t rows[GROUP_STREAMS],
                float sums[GROUP_TOGETHER][GROUP_STREAMS][GROUP_ROWS]);
