/* onednn: matrix products with epilogues by oneDNN. In a build without it (DNNL=0) these functions are
 * NULL, and callers use OpenBLAS. onednn/onednn.c hides the version of the interface. ERROR_MEMORY if
 * oneDNN reports a lack of memory; SECURITY.md says what happens if it crashes instead. */
#pragma once

#include "base/status.h"
#include "base/tensor.h"

#include <stdbool.h>

typedef enum { FINISH_PLAIN, FINISH_GELU_TANH, FINISH_GELU, FINISH_RELU, FINISH_TANH } Finish;

/* C = finish(A B + bias + added), or C += A B: A is (m, k), B (k, n), C (m, n). Strides are in elements.
 * The struct has no padding, so its bytes can serve as a key. */
typedef struct {
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column, c_row;
    int32_t dtype, c_dtype; // dtype of a, b and bias; c_dtype: of c and added, F32 or, with dtype BF16,
                            // either
    int32_t finish;         // Finish
    uint8_t bias;           // (n)
    uint8_t added;          // a matrix with the layout of C
    uint8_t accumulates;    // C += A B, without bias, added and finish
    uint8_t zero;
} OnednnProduct;

typedef struct Onednn Onednn;
typedef struct OnednnKernel OnednnKernel; // the kernel of one product

/* NULL with FUSEBOX_ONEDNN=none in the environment. Uses OpenMP's number of threads. */
__attribute__((weak)) CHECKED Status onednn_open(Onednn **onednn);
__attribute__((weak)) void onednn_close(Onednn *onednn);
__attribute__((weak)) const char *onednn_name(const Onednn *onednn); // "oneDNN 2.6.0"

/* Generates the kernel of a product in a few tenths of a millisecond; NULL if oneDNN has no fast kernel. */
__attribute__((weak)) CHECKED Status onednn_kernel(const Onednn *onednn, const OnednnProduct *product,
                                                   OnednnKernel **kernel);
__attribute__((weak)) void onednn_kernel_free(OnednnKernel *kernel);
__attribute__((weak)) const char *onednn_kernel_name(const OnednnKernel *kernel); // "brg:avx512_core"

typedef struct {
    const void *a, *b, *bias, *added; // NULL if the product has no such operand
    void *c;
} OnednnOperands;
__attribute__((weak)) CHECKED Status onednn_run(OnednnKernel *kernel, const OnednnOperands *operands);
