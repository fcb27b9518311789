/* finish: what follows a product on the CPU, in its own pass. */
#pragma once

#include "kernels/device/onednn.h"

/* What is done to a product P before it is stored: C = finish(P + bias + added). */
typedef struct {
    const void *bias;  // (n) of A's dtype; NULL: none
    const void *added; // a matrix of C's dtype that lies as C does, elsewhere; NULL: none
    Finish finish;
} GemmFinish;
