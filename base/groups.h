/* groups: weights as integers of 8 or 4 bits. GROUP neighbours of a row share a scale, which is a bf16:
 *
 *     value[i] = scale[i / GROUP] * code[i]
 *
 *     I8   code in [-127, 127], a byte each
 *     I4   code in [-8, 7], stored as code + 8: byte j of a group holds elements j (its low half) and j + GROUP / 2
 *
 * The scale of I8 maps the largest magnitude to 127. I4 tries several scales, of which the one is kept that gives the
 * least sum of squared errors. Values that were made from codes give the same values again. */
#pragma once

#include "base/tensor.h"

__BEGIN_DECLS

/* `count` finite values, a multiple of GROUP; codes and scales in host memory. */
void groups_quantize(Dtype dtype, const float *values, int64_t count, void *codes, uint16_t *scales);
void groups_dequantize(Dtype dtype, const void *codes, const uint16_t *scales, int64_t count, float *values);

/* The code of element i. */
static inline int group_code(Dtype dtype, const void *codes, int64_t i) {
    if (dtype == I8) return ((const int8_t *)codes)[i];
    const int64_t group = i / GROUP, j = i % GROUP, half = GROUP / 2;
    const uint8_t pair = ((const uint8_t *)codes)[group * half + j % half];
    return (j < half ? pair & 15 : pair >> 4) - 8;
}

__END_DECLS
