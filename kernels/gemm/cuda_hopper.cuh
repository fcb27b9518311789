/* cuda_hopper: our own product for Hopper (sm_90a), which autotuning times together with cuBLASLt's
 * algorithms: bf16 with fp32 sums, c = a b^T with bias and GELU, c = a b with GELU's gradient. The same
 * product gives the same bits in every run. */
#pragma once

#include "kernels/cuda/packs.cuh"
#include "kernels/gemm/cuda_epilogue.cuh"
#include "kernels/gemm/gemm.h"

/* Whether the kernel supports this product: a Hopper GPU, a build with code for it, and suitable sizes,
 * strides, alignments and epilogue. Nothing else matters. */
bool gemm_hopper_suits(const CudaDevice *device, const Gemm *g, const GemmEpilogue *e);

/* Computes the product into `c` instead of g->c. */
CHECKED Status gemm_hopper_run(Ctx *ctx, const Gemm *g, const GemmEpilogue *e, void *c);
