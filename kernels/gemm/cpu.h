/* gemm on the CPU: AMX tiles (cpu_amx.h) or oneDNN (kernels/device/onednn.h), both with an epilogue, or
 * OpenBLAS. A fused form's product runs on AMX tiles if they support it. Other products of fused forms are
 * autotuned: at its first run a product is timed with both libraries, several times on cold operands, and the
 * faster one is cached (products-*.txt in the user's cache folder, one file per processor, number of threads
 * and libraries). With the same file the same library runs and computes the same bits. FUSEBOX_TUNE=0 in the
 * environment disables timing and the file, and selects oneDNN wherever it has a kernel; the same holds
 * without a cache folder. Products of naive forms always use OpenBLAS. */
#pragma once

#include "kernels/device/cpu.h"
#include "kernels/gemm/cpu_amx.h"

__BEGIN_DECLS

/* The implementation of a product; the first two values are stored in the autotuning cache. */
typedef enum { PLAN_OPENBLAS = 1, PLAN_ONEDNN, PLAN_AMX } PlanLibrary;

typedef struct {
    OnednnProduct product;
    PlanLibrary library;
    OnednnKernel *kernel; // with PLAN_ONEDNN
    AmxPacked *packed;    // with PLAN_AMX
} CpuPlan;

/* The plan of a product, autotuned and cached if it is new; NULL if only OpenBLAS supports it. Valid until
 * the next call. */
CHECKED Status cpu_plan(Ctx *ctx, const Gemm *g, const GemmFinish *finish, const CpuPlan **plan);

/* Runs a plan other than OpenBLAS's. */
CHECKED Status cpu_plan_run(Ctx *ctx, const CpuPlan *plan, const Gemm *g, const GemmFinish *finish);

/* The plan by which gemm_cpu_finish computes product and epilogue in one pass, valid until the next call;
 * NULL if no library can. A new product is autotuned here, so its operands must exist and ctx must not be
 * measuring. */
CHECKED Status gemm_cpu_finishes(Ctx *ctx, const Gemm *g, const GemmFinish *finish, const CpuPlan **plan);
CHECKED Status gemm_cpu_finish(Ctx *ctx, const CpuPlan *plan, const Gemm *g, const GemmFinish *finish);

/* Whether products in bf16 are faster than in fp32 on this CPU: it needs oneDNN, and bf16 instructions. */
CHECKED Status gemm_cpu_bf16_fast(const Device *device, bool *fast);

/* OpenBLAS's product, one call per matrix of a batch, for every contract of gemm.h. bf16 operands are widened
 * to fp32, and if C is bf16 the sum is rounded once. */
CHECKED Status gemm_cpu_openblas(Ctx *ctx, const Gemm *g);

__END_DECLS
