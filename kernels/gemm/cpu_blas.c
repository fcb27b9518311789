#include "kernels/gemm/cpu_blas.h"

#include <cblas.h>
#include <inttypes.h>
#include <limits.h>

static bool fits(int64_t value) {
    return value <= INT_MAX;
}

Status gemm_cpu_openblas(Ctx *ctx, const Gemm *g) {
    if (g->a_dtype == BF16 && g->b_dtype == BF16 && (g->c_dtype == BF16 || g->c_dtype == F32))
        return gemm_cpu_converted(ctx, g);
    if (g->a_dtype != g->c_dtype || g->b_dtype != g->c_dtype || (g->c_dtype != F32 && g->c_dtype != F64))
        return fail(ERROR_INTERNAL,
                    "gemm: the CPU multiplies fp32, fp64 or bf16 of one kind, not %s by %s into %s",
                    dtype_name(g->a_dtype), dtype_name(g->b_dtype), dtype_name(g->c_dtype));
    if (!fits(g->m) || !fits(g->n) || !fits(g->k) || !fits(g->lda) || !fits(g->ldb) || !fits(g->ldc))
        return fail(ERROR_INTERNAL,
                    "gemm: a product of (%" PRId64 ", %" PRId64 ") by (%" PRId64 ", %" PRId64
                    ") has more rows or columns than BLAS can count",
                    g->m, g->k, g->k, g->n);
    const CBLAS_TRANSPOSE ta = g->transpose_a ? CblasTrans : CblasNoTrans;
    const CBLAS_TRANSPOSE tb = g->transpose_b ? CblasTrans : CblasNoTrans;
    const int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    /* BLAS refuses a leading dimension of 0, which an empty k has. */
    const int lda = g->lda ? (int)g->lda : 1, ldb = g->ldb ? (int)g->ldb : 1, ldc = (int)g->ldc;
    static const char *const names[2][2][2] = {
        {{"cblas_sgemm NN", "cblas_sgemm NT"}, {"cblas_sgemm TN", "cblas_sgemm TT"}},
        {{"cblas_dgemm NN", "cblas_dgemm NT"}, {"cblas_dgemm TN", "cblas_dgemm TT"}}};
    library_begin(ctx, names[g->c_dtype == F64][g->transpose_a][g->transpose_b]);
    for (int64_t b = 0; b < (g->batch ? g->batch : 1); b++) {
        if (g->c_dtype == F32)
            cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, (float)g->alpha, (const float *)g->a + b * g->a_step,
                        lda, (const float *)g->b + b * g->b_step, ldb, (float)g->beta,
                        (float *)g->c + b * g->c_step, ldc);
        else
            cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, g->alpha, (const double *)g->a + b * g->a_step, lda,
                        (const double *)g->b + b * g->b_step, ldb, g->beta, (double *)g->c + b * g->c_step,
                        ldc);
    }
    library_end(ctx);
    return OK;
}
