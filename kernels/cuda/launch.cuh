/* launch: launches kernels on ctx->device, and thread indices inside kernels. */
#pragma once

#include "kernels/ctx.h"
#include "kernels/device/cuda.cuh"

static inline CudaDevice *cuda_device(const Ctx *ctx) {
    return reinterpret_cast<CudaDevice *>(ctx->device);
}

/* Launches `kernel` in the device's stream and counts it; an empty grid launches nothing. Dynamic shared
 * memory above 48 KiB is enabled here. Returns a Status:
 *     TRY(LAUNCH(ctx, (scale_kernel<T, N>), blocks, 256, 0, scores, count, factor));
 * Parenthesize a kernel with several template arguments. */
#define LAUNCH(ctx, kernel, grid, block, shared, ...)                                                        \
    cuda_launch(cuda_device(ctx), #kernel, kernel, dim3(grid), dim3(block), shared, __VA_ARGS__)

/* The same for a kernel that may start before the previous one ends (Hopper's programmatic dependent
 * launch). It must call wait_for_previous() before it reads what earlier kernels write, and before it
 * writes. Its pointers must not be __restrict__, or the compiler may load early, through caches that do
 * not see the writes. */
#define LAUNCH_EARLY(ctx, kernel, grid, block, shared, ...)                                                  \
    cuda_launch<true>(cuda_device(ctx), #kernel, kernel, dim3(grid), dim3(block), shared, __VA_ARGS__)

/* The same in clusters of `cluster` blocks (a constant; at most 8), on a GPU that supports them. */
#define LAUNCH_CLUSTERS(ctx, cluster, kernel, grid, block, shared, ...)                                      \
    cuda_launch<true, cluster>(cuda_device(ctx), #kernel, kernel, dim3(grid), dim3(block), shared,           \
                               __VA_ARGS__)

enum { SHARED_WITHOUT_ASKING = 48 * 1024 };

template <bool Early = false, int Cluster = 1, class... Formal, class... Actual>
CHECKED Status cuda_launch(CudaDevice *device, const char *name, void (*kernel)(Formal...), dim3 grid,
                           dim3 block, size_t shared, Actual... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return OK;
    if (shared > SHARED_WITHOUT_ASKING) {
        TRY(cuda_status(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), name));
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = device->stream;
    cudaLaunchAttribute attributes[2] = {};
    config.attrs = attributes;
    if (Cluster > 1) {
        cudaLaunchAttribute &cluster = attributes[config.numAttrs++];
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {Cluster, 1, 1};
    }
    if (Early && device->early_launches) {
        cudaLaunchAttribute &early = attributes[config.numAttrs++];
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
    }
    TRY(cuda_status(cudaLaunchKernelEx(&config, kernel, static_cast<Formal>(arguments)...), name));
    device->base.launches++;
    return OK;
}

/* Waits until all earlier kernels in the stream have ended and their writes are visible. No effect in a
 * kernel that was not launched early. */
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next kernel, if launched early, use resources that blocks leave free. Call it only after
 * wait_for_previous(): then the next kernel may read before its own wait what kernels before this one
 * wrote. A chain of kernels that read nothing so recent may call it earlier (decode/cuda_rows.cuh). */
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- sizes ---- */

template <class A, class B>
__host__ __device__ constexpr int64_t divide_up(A a, B b) {
    return ((int64_t)a + (int64_t)b - 1) / (int64_t)b;
}

/* Blocks for a grid-stride loop over `items`: one thread each, up to `waves` times what the device holds. */
static inline unsigned grid_stride_blocks(const Ctx *ctx, int64_t items, int threads, int waves = 4) {
    int64_t most = (int64_t)cuda_device(ctx)->multiprocessors * (2048 / threads) * waves;
    int64_t blocks = divide_up(items, threads);
    return (unsigned)(blocks < most ? blocks : most);
}

/* For one-dimensional grids. for (int64_t i = thread_index() * N; i < count; i += thread_count() * N)
 * visits `count` elements in packs of N. */
__device__ inline int64_t thread_index() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() {
    return (int64_t)gridDim.x * blockDim.x;
}
