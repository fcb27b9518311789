/* blas: products by OpenBLAS, one call per matrix of a batch, for every contract of gemm.h. bf16 operands are
 * widened to fp32, and if C is bf16 the sum is rounded once. */
#pragma once

#include "kernels/gemm/gemm.h"

CHECKED Status gemm_cpu_openblas(Ctx *ctx, const Gemm *g);
