/* finish: the epilogue of a product on the CPU. */
#pragma once

#include "kernels/device/onednn.h"

/* The epilogue of a product P: C = finish(P + bias + added). */
typedef struct {
    const void *bias;  // (n) of A's dtype; NULL: none
    const void *added; // a matrix with C's dtype and layout, elsewhere; NULL: none
    Finish finish;
} GemmFinish;
