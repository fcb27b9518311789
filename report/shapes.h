/* shapes: sizes of tensors as texts. */
#pragma once

#include "base/tensor.h"

/* "[[4, 64, 64], [], [64]]" */
enum { SHAPES_BYTES = 256 };
void shapes_print(const Shape shapes[], int count, char text[SHAPES_BYTES]);
