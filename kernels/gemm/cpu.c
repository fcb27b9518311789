#include "kernels/gemm/cpu_plan.h"

#include <cblas.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

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

static Status run(Ctx *ctx, const CpuPlan *plan, const Gemm *g, const GemmFinish *finish) {
    const OnednnOperands operands = {g->a, g->b, finish->bias, finish->added, g->c};
    library_begin(ctx, onednn_kernel_name(plan->kernel));
    TRY(onednn_run(plan->kernel, &operands));
    library_end(ctx);
    return OK;
}

bool gemm_cpu_finishes(Ctx *ctx, const Gemm *g, const GemmFinish *finish) {
    const CpuPlan *plan = cpu_plan(ctx, g, finish);
    return plan && plan->kernel;
}

Status gemm_cpu_finish(Ctx *ctx, const Gemm *g, const GemmFinish *finish) {
    const CpuPlan *plan = cpu_plan(ctx, g, finish);
    if (plan && plan->kernel) return run(ctx, plan, g, finish);
    return fail(ERROR_INTERNAL, "gemm: nobody finishes this product; gemm_cpu_finishes says so");
}

Status gemm_cpu(Ctx *ctx, const Gemm *g) {
    const GemmFinish none = {0};
    const CpuPlan *plan = ctx->form == FORM_FUSED ? cpu_plan(ctx, g, &none) : NULL;
    return plan && plan->kernel ? run(ctx, plan, g, &none) : gemm_cpu_openblas(ctx, g);
}

/* Without tiles Intel's instructions multiply bf16 at half the rate of fp32. */
bool gemm_cpu_bf16_fast(const Device *device) {
    const CpuDevice *cpu = (const CpuDevice *)device;
    const OnednnProduct usual = {.m = 256,
                                 .n = 256,
                                 .k = 256,
                                 .a_row = 256,
                                 .a_column = 1,
                                 .b_row = 1,
                                 .b_column = 256,
                                 .c_row = 256,
                                 .dtype = BF16,
                                 .c_dtype = BF16};
    OnednnKernel *kernel = cpu->onednn ? onednn_kernel(cpu->onednn, &usual) : NULL;
    if (!kernel) return false;
    const char *name = onednn_kernel_name(kernel);
    bool fast = strstr(name, "amx") || (strstr(name, "bf16") && strstr(device->name, "AMD"));
    onednn_kernel_free(kernel);
    return fast;
}
