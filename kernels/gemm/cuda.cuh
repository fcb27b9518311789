/* gemm on CUDA: cuBLASLt, or on Hopper our own kernel (cuda_hopper.cuh), with an epilogue. A plan
 * (descriptors and the selected algorithm) is made once per set of properties and kept by the device.
 * Products are autotuned: at the first run of a product (except while a graph is captured), cuBLASLt's
 * algorithms and our own kernel are timed on its operands, some milliseconds each. The fastest is cached
 * (products-*.txt in the user's cache folder, one file per GPU, library and driver). With the same file the
 * same algorithms run and compute the same bits. FUSEBOX_TUNE=0 in the environment disables timing and the
 * file, and selects cuBLASLt's first algorithm; the same holds without a cache folder. FUSEBOX_TUNE=library
 * excludes our own kernel (for comparison), FUSEBOX_TUNE=own selects it for every product that it supports
 * (for tests). */
#pragma once

#include "kernels/gemm/cuda_epilogue.cuh"
#include "kernels/gemm/gemm.h"

/* gemm_cuda with an epilogue. ERROR_DEVICE if cuBLASLt has no kernel for it; call gemm_cuda_supports
 * first. */
CHECKED Status gemm_cuda_epilogue(Ctx *ctx, const Gemm *g, const GemmEpilogue *epilogue);

/* Whether gemm_cuda_epilogue supports these properties. Depends only on sizes, dtypes and the alignment of
 * addresses, so it may be called while measuring. GELU's aux needs aux_ld a multiple of 8 and 16-byte
 * alignment; only NONE and BIAS support a batch, an empty product, or k = 0. */
bool gemm_cuda_supports(Ctx *ctx, const Gemm *g, const GemmEpilogue *epilogue);
