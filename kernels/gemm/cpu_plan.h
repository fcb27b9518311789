/* plans: who computes a product on the CPU, decided once for each set of properties. */
#pragma once

#include "kernels/device/cpu.h"
#include "kernels/gemm/cpu_amx.h"

/* Who computes a product; the first two as they stand in the file of choices. */
typedef enum { PLAN_OPENBLAS = 1, PLAN_ONEDNN, PLAN_AMX } PlanWinner;

typedef struct {
    OnednnProduct product;
    PlanWinner winner;
    OnednnKernel *kernel; // of PLAN_ONEDNN
    AmxPacked *packed;    // of PLAN_AMX
} CpuPlan;

/* The plan of a product, raced and kept if it is new; NULL where OpenBLAS alone can serve it. It stays until
 * the next call. */
CHECKED Status cpu_plan(Ctx *ctx, const Gemm *g, const GemmFinish *finish, const CpuPlan **plan);

/* Runs a plan, but OpenBLAS's. */
CHECKED Status cpu_plan_run(Ctx *ctx, const CpuPlan *plan, const Gemm *g, const GemmFinish *finish);
