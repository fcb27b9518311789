/* plans: who computes a product on the CPU, decided once for each set of properties. */
#pragma once

#include "kernels/device/cpu.h"
#include "kernels/gemm/gemm.h"

/* What is done to a product P before it is stored: C = finish(P + bias + added). */
typedef struct {
    const void *bias;  // (n) of A's dtype; NULL: none
    const void *added; // a matrix of C's dtype that lies as C does, elsewhere; NULL: none
    Finish finish;
} GemmFinish;

typedef struct {
    OnednnProduct product;
    OnednnKernel *kernel; // NULL: OpenBLAS does it
} CpuPlan;

/* The plan of a product, raced and kept if it is new; NULL where oneDNN is not, or cannot serve it at all. It
 * stays until the next call. */
CpuPlan *cpu_plan(Ctx *ctx, const Gemm *g, const GemmFinish *finish);
