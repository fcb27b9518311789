/* plans: which library computes a product on the CPU, decided once per set of properties. */
#pragma once

#include "kernels/device/cpu.h"
#include "kernels/gemm/cpu_amx.h"

/* Who computes a product; the first two values are stored in the file of choices. */
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
