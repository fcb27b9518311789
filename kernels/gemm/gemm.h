/* gemm: the matrix product, a primitive that the rooms share (it has no slot of its own at the door).
 *
 *     C[b] = alpha * op(A[b]) op(B[b]) + beta * C[b]        b = 0 .. batch-1, row-major
 *
 * op(A) is (m, k), op(B) is (k, n), C is (m, n). A is stored (m, k) with rows `lda` elements apart, or (k, m)
 * when transpose_a; B (k, n) with rows `ldb` apart, or (n, k) when transpose_b. Batches lie `a_step` ...
 * elements apart. All are F32 (tf32 on CUDA where ctx->tf32), or F64 (on the CPU alone), or BF16 with C of
 * BF16 or F32, or on GPUs that multiply them E4M3, with both operands' rows along k, where alpha stands for
 * alpha * *a_scale * *b_scale; sums are kept in fp32 at least. beta = 0 never reads C, and may find anything there. Empty
 * products (m, n or batch 0) do nothing; k = 0 scales C by beta. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    const void *a, *b;
    void *c;
    Dtype a_dtype, b_dtype, c_dtype;
    int64_t m, n, k;
    int64_t lda, ldb, ldc; // elements
    bool transpose_a, transpose_b;
    int64_t batch, a_step, b_step, c_step; // batch 0 means 1
    double alpha, beta;
    const float *a_scale, *b_scale; // of E4M3 alone, in device memory
    bool fast; // of E4M3: sums may be kept in fewer bits than fp32's for some hundred terms
} Gemm;

CHECKED Status gemm(Ctx *ctx, const Gemm *g);
CHECKED Status gemm_cpu(Ctx *ctx, const Gemm *g);
__attribute__((weak)) CHECKED Status gemm_cuda(Ctx *ctx, const Gemm *g);

/* Y (rows, out) = beta*Y + X (rows, in) W(out, in)^T: the forward product of a linear layer. Tensors may have
 * strides. */
Gemm gemm_forward(Tensor x, Tensor weight, Tensor y, double beta);
/* dX (rows, in) = beta*dX + dY (rows, out) W (out, in). */
Gemm gemm_dinput(Tensor dy, Tensor weight, Tensor dx, double beta);
/* dW (out, in) = beta*dW + dY (rows, out)^T X (rows, in). */
Gemm gemm_dweight(Tensor dy, Tensor x, Tensor dweight, double beta);

__END_DECLS
