/* gemm: the matrix product, a primitive shared by the operations (it has no dispatch slot of its own).
 *
 *     C[b] = alpha * op(A[b]) op(B[b]) + beta * C[b]        b = 0 .. batch-1, row-major
 *
 * op(A) is (m, k), op(B) is (k, n), C is (m, n). A is stored (m, k) with rows `lda` elements apart, or (k, m)
 * with transpose_a; B is (k, n) with rows `ldb` apart, or (n, k). Batches are `a_step` ... elements apart.
 * Dtypes: all F32 (tf32 on CUDA with ctx->tf32); all F64 (CPU only); BF16 with C of BF16 or F32; or E4M3 on
 * GPUs that multiply it, with both operands' rows along k and alpha replaced by alpha * *a_scale * *b_scale.
 * Sums are at least fp32. With beta = 0, C is never read and may be uninitialized. Empty products (m, n or
 * batch 0) do nothing; k = 0 scales C by beta. */
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
    const float *a_scale, *b_scale; // for E4M3 only, in device memory
    bool fast;                      // for E4M3: sums may have fewer bits than fp32 over some hundred terms
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
