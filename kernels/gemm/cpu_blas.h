/* blas: products by OpenBLAS, one call for each matrix of a batch: any contract of gemm.h. Those in bf16 are widened
 * to fp32, and the sum rounded once where C is bf16. */
#pragma once

#include "kernels/gemm/gemm.h"

CHECKED Status gemm_cpu_openblas(Ctx *ctx, const Gemm *g);
