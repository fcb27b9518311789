/* cuda: one GPU behind device.h: stream, capabilities, and checked calls of CUDA libraries. For .cu files
 * only; kernels/cuda/launch.cuh launches kernels. */
#pragma once

#include "kernels/device/cublaslt.cuh"
#include "kernels/device/device.h"

#include <cuda_runtime.h>

namespace gpu {

/* Whether code is compiled for Hopper's instructions (sm_90a). A kernel that uses them has its body in `if
 * constexpr (HOPPER)`, and is empty on other GPUs. */
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
    CublasLt cublaslt;
    cublasLtHandle_t blas;
    void *workspace; // cuBLASLt's workspace, shared by all calls in the stream
    size_t workspace_bytes;
    int *tickets; // (TICKETS) counters for synchronization between blocks; kernels leave them zero
    int multiprocessors;
    int capability;      // 10 * major + minor: 90 for Hopper
    bool hopper;         // the running code was built for Hopper's instructions (hopper.cuh)
    bool early_launches; // LAUNCH_EARLY is effective: GPU and kernels support it
    size_t shared_bytes; // most shared memory per block
    size_t l2_bytes;
    int64_t before_capture; // base.launches at the start of the capture
    RangeNames *names;
    /* Data that a library on a higher floor caches with this device (gemm's plans), and the function that
     * frees it. */
    void *plans;
    void (*free_plans)(const CublasLt *library, void *plans);
};

/* OK; ERROR_MEMORY if memory has run out; else ERROR_DEVICE. `what` is the call's text. */
CHECKED Status cuda_status(cudaError_t error, const char *what);

#define CUDA_TRY(call) TRY(cuda_status(call, #call))
