/* groups: weights as integers of 8 or 4 bits. GROUP neighbours of a row share a scale, which is a bf16:
 *
 *     value[i] = scale[i / GROUP] * code[i]
 *
 *     I8   code in [-127, 127], a byte each
 *     I4   code in [-8, 7], stored as code + 8: byte j of a group holds elements j (its low half) and j + GROUP / 2
 *
 * The scale of I8 maps the largest magnitude to 127. I4 tries several scales and uses the one with the least
 * sum of squared errors. Quantizing dequantized values gives the same values again. */
#pragma once

#include "base/tensor.h"

__BEGIN_DECLS

/* `count` finite values, a multiple of GROUP; codes and scales in host memory. */
void groups_quantize(Dtype dtype, const float *values, int64_t count, void *codes, uint16_t *scales);

/* The codes of the tensor's group number `group`. */
void groups_codes(Dtype dtype, const void *codes, int64_t group, int8_t unpacked[GROUP]);

__END_DECLS
