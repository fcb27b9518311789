/* groups: matrices of integers of 8 or 4 bits. GROUP neighbours of a row share a scale, which is a bf16:
 *
 *     value = scale * code
 *
 *     I8   code in [-127, 127], a byte each
 *     I4   code one of 16 levels, whose number takes half a byte
 *
 * The levels, those of llama.cpp's IQ4_NL, are denser near 0, where most weights are. The scale of I8 maps
 * the largest magnitude to 127. I4 tries several scales and uses the one with the least sum of squared
 * errors, each weighted by its column's importance.
 *
 * A product reads the same group of GROUP_ROWS neighbouring rows at once. Therefore these form a tile, in
 * which four codes of each row alternate. Tiles and their scales are in the order of rows, then of groups.
 *
 *     I8   byte (w * GROUP_ROWS + row) * 4 + i of a tile holds code 4 w + i of the row
 *     I4   the low half of that byte holds the same code; the high half holds code GROUP / 2 + 4 w + i */
#pragma once

#include "base/tensor.h"

__BEGIN_DECLS

enum { LEVELS = 16 };
extern const int8_t groups_levels[LEVELS];

/* Quantizes `count` finite values to the elements of a matrix from `first` on: whole groups, in host memory.
 * `importance` has the weight of an error in each column, or is NULL: all are equal. */
void groups_quantize(Tensor matrix, int64_t first, int64_t count, const float *values,
                     const float *importance);

/* Reads the codes of a row's group; returns their scale. */
float groups_codes(Tensor matrix, int64_t row, int64_t group, int8_t codes[GROUP]);

/* Copies `count` groups from `first` on, in the order of rows, between a matrix and memory without tiles: to
 * the matrix if `set`. Byte i of a group holds code i of I8; of I4 code i in its low half, code
 * GROUP / 2 + i in its high half. Codes, dtype_bytes(GROUP) of each group, or scales may be NULL. */
void groups_copy(Tensor matrix, int64_t first, int64_t count, uint8_t *codes, uint16_t *scales, bool set);

__END_DECLS
