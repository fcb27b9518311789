/* gemm on the CPU: AMX's tiles (cpu_amx.h) or oneDNN (kernels/device/onednn.h), both with what follows the
 * product, or OpenBLAS. A fused form's product goes to the tiles if they serve it. Any other is timed at its
 * first run with both libraries, some laps each on cold operands, and the faster is kept in the user's cache
 * (products-*.txt, one file for a processor, its threads and libraries): with the same file the same one
 * runs, and the same bits come out. FUSEBOX_TUNE=0 in the environment neither times nor reads the file, and
 * takes oneDNN wherever it has a kernel; nor is anything timed where there is no cache folder. A naive form's
 * product is OpenBLAS's. */
#pragma once

#include "kernels/gemm/cpu_plan.h"

__BEGIN_DECLS

/* The plan by which gemm_cpu_finish does these in one pass, good until the next; NULL where nobody does. It
 * races where the product is new, so it is asked with the operands there, and not while measuring. */
CHECKED Status gemm_cpu_finishes(Ctx *ctx, const Gemm *g, const GemmFinish *finish, const CpuPlan **plan);
CHECKED Status gemm_cpu_finish(Ctx *ctx, const CpuPlan *plan, const Gemm *g, const GemmFinish *finish);

/* Whether products in bf16 are faster on this CPU than in fp32: oneDNN, and instructions for them. */
CHECKED Status gemm_cpu_bf16_fast(const Device *device, bool *fast);

__END_DECLS
