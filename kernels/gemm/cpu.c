#include "kernels/gemm/cpu.h"

#include <string.h>

Status gemm_cpu_finish(Ctx *ctx, const CpuPlan *plan, const Gemm *g, const GemmFinish *finish) {
    static const char *const names[2][2][2] = {
        {{"onednn_sgemm NN", "onednn_sgemm NT"}, {"onednn_sgemm TN", "onednn_sgemm TT"}},
        {{"onednn_bf16gemm NN", "onednn_bf16gemm NT"}, {"onednn_bf16gemm TN", "onednn_bf16gemm TT"}}};
    static const char *const own[2][2] = {{"amx_bf16x3gemm NN", "amx_bf16x3gemm NT"},
                                          {"amx_bf16x3gemm TN", "amx_bf16x3gemm TT"}};
    library_begin(ctx, plan->library == PLAN_AMX ? own[g->transpose_a][g->transpose_b]
                                                 : names[g->a_dtype == BF16][g->transpose_a][g->transpose_b]);
    TRY(cpu_plan_run(ctx, plan, g, finish));
    library_end(ctx);
    return OK;
}

Status gemm_cpu_finishes(Ctx *ctx, const Gemm *g, const GemmFinish *finish, const CpuPlan **plan) {
    *plan = NULL;
    if (ctx->blas_only) return OK;
    TRY(cpu_plan(ctx, g, finish, plan));
    if (*plan && (*plan)->library == PLAN_OPENBLAS) *plan = NULL;
    return OK;
}

Status gemm_cpu(Ctx *ctx, const Gemm *g) {
    const GemmFinish none = {0};
    const CpuPlan *plan = NULL;
    if (ctx->form == FORM_FUSED) TRY(gemm_cpu_finishes(ctx, g, &none, &plan));
    return plan ? gemm_cpu_finish(ctx, plan, g, &none) : gemm_cpu_openblas(ctx, g);
}

/* Without AMX, Intel's bf16 instructions have half the throughput of fp32. */
static bool kernel_is_fast(const OnednnKernel *kernel) {
    const char *name = onednn_kernel_name(kernel);
    char processor[PROCESSOR_BYTES];
    device_processor(processor);
    return strstr(name, "amx") || (strstr(name, "bf16") && strstr(processor, "AMD"));
}

Status gemm_cpu_bf16_fast(const Device *device, bool *fast) {
    enum { SIZE = 256 };
    const OnednnProduct usual = {.m = SIZE,
                                 .n = SIZE,
                                 .k = SIZE,
                                 .a_row = SIZE,
                                 .a_column = 1,
                                 .b_row = 1,
                                 .b_column = SIZE,
                                 .c_row = SIZE,
                                 .dtype = BF16,
                                 .c_dtype = BF16};
    Onednn *onednn = ((const CpuDevice *)device)->onednn;
    OnednnKernel *kernel = NULL;
    *fast = false;
    if (onednn) TRY(onednn_kernel(onednn, &usual, &kernel));
    if (!kernel) return OK;
    *fast = kernel_is_fast(kernel);
    onednn_kernel_free(kernel);
    return OK;
}
