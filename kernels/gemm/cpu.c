#include "kernels/gemm/cpu.h"

#include "kernels/gemm/cpu_blas.h"

#include <string.h>

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
