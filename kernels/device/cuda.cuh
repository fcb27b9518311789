/* cuda: one GPU behind device.h: its stream, what it can do, and checked calls of CUDA's libraries. For .cu
 * files only; how kernels are launched on it is in kernels/cuda/launch.cuh. */
#pragma once

#include "kernels/device/device.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace gpu {

/* Whether the code being compiled is for a GPU with Hopper's own instructions (sm_90a). A kernel that uses
 * them has its body in `if constexpr (HOPPER)`, so that it compiles, to nothing, for the others. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool HOPPER = true;
#else
constexpr bool HOPPER = false;
#endif

} // namespace gpu

struct RangeNames; // kernels/device/cuda.cu

enum { TICKETS = 1024 };

struct CudaDevice {
    Device base; // first, so that a Device * is a CudaDevice *
    int index;
    cudaStream_t stream; // all work runs here; never the default stream
    cublasLtHandle_t blas;
    void *workspace; // of cuBLASLt; calls of one stream may share it
    size_t workspace_bytes;
    int *tickets; // (TICKETS) zeros, for blocks that wait for one another's parts; kernels leave them zero
    int multiprocessors;
    int capability;      // 10 * major + minor: 90 for Hopper
    bool hopper;         // it runs code that was built with Hopper's own instructions (hopper.cuh)
    bool early_launches; // LAUNCH_EARLY means something: the GPU has it, and the kernels are built for it
    size_t shared_bytes; // that one block can ask for
    size_t l2_bytes;
    int64_t before_capture; // base.launches when the capture at hand began
    RangeNames *names;
    /* What a library above keeps for this device (gemm's plans), and what frees it when the device closes. */
    void *plans;
    void (*free_plans)(void *plans);
};

/* OK, or what failed: ERROR_MEMORY when memory has run out, else ERROR_DEVICE. `what` is the call's text. */
CHECKED Status cuda_status(cudaError_t error, const char *what);
CHECKED Status cublas_status(cublasStatus_t error, const char *what);

#define CUDA_TRY(call)   TRY(cuda_status(call, #call))
#define CUBLAS_TRY(call) TRY(cublas_status(call, #call))
