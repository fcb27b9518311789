/* plans: who computes a product on the CPU, decided once for each set of properties. */
#pragma once

#include "kernels/gemm/cpu.h"

typedef struct {
    OnednnProduct product;
    OnednnKernel *kernel; // NULL: OpenBLAS does it
} CpuPlan;

/* The plan of a product, raced and kept if it is new; NULL where oneDNN is not, or cannot serve it at all. It
 * stays until the next call. */
CpuPlan *cpu_plan(Ctx *ctx, const Gemm *g, const GemmFinish *finish);
