/* cuda_hopper: our own product for Hopper (sm_90a), one more candidate beside cuBLASLt's algorithms when a
 * plan is timed: bf16 with fp32 sums, c = a b^T with bias and GELU, c = a b with GELU's gradient. The same
 * product has the same bits in every run. */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/gemm/cuda_epilogue.cuh"
#include "kernels/gemm/gemm.h"

/* Whether it takes this product: not on another GPU, nor without code for this one in the build; sizes,
 * strides, alignments and the epilogue must suit. Looks at nothing else. */
bool gemm_hopper_suits(const CudaDevice *device, const Gemm *g, const GemmEpilogue *e);

/* The product, into `c` in place of g->c. */
CHECKED Status gemm_hopper_run(Ctx *ctx, const Gemm *g, const GemmEpilogue *e, void *c);
