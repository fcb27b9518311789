/* gemm on CUDA: cuBLASLt, or on Hopper our own kernel (cuda_hopper.cuh), with an epilogue. Plans (descriptors
 * and the chosen algorithm) are made once for each set of properties and kept by the device. The first time
 * that a product of some size runs (not while a graph is captured), the library's proposals and our own are
 * timed on its operands, some milliseconds each, and the fastest is kept in the user's cache
 * (products-*.txt, one file for a GPU, library and driver): with the same file the same algorithms run, and
 * the same bits come out. FUSEBOX_TUNE=0 in the environment neither times nor reads the file, and takes the
 * library's first proposal; nor is anything timed where there is no cache folder. FUSEBOX_TUNE=library leaves
 * our own kernel out (to compare), FUSEBOX_TUNE=own takes it wherever it can do the product (to test it). */
#pragma once

#include "kernels/gemm/cuda_epilogue.cuh"
#include "kernels/gemm/gemm.h"

/* gemm_cuda with an epilogue. ERROR_DEVICE where cuBLASLt has no kernel for it; ask gemm_cuda_supports
 * first. */
CHECKED Status gemm_cuda_epilogue(Ctx *ctx, const Gemm *g, const GemmEpilogue *epilogue);

/* Whether gemm_cuda_epilogue will run these properties. Looks only at sizes, dtypes and addresses' alignment,
 * so it may be asked while measuring. GELU's aux needs aux_ld a multiple of 8 and 16-byte alignment; no
 * epilogue but NONE and BIAS goes with a batch, with an empty product, or with k = 0. */
bool gemm_cuda_supports(Ctx *ctx, const Gemm *g, const GemmEpilogue *epilogue);
