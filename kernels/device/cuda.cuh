/* cuda: what every .cu file of the rooms stands on: the device behind ctx->device, checked calls and
 * launches, and the small device functions that all kernels share. For .cu files only; device.h is the public
 * side. */
#ifndef KERNELS_DEVICE_CUDA_CUH
#define KERNELS_DEVICE_CUDA_CUH

#include "kernels/op.h"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <initializer_list>

struct GemmPlans;  // kernels/gemm/cuda.cu
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
    GemmPlans *plans;       // made by the first product, freed by gemm_plans_free
    RangeNames *names;
};

static inline CudaDevice *cuda_device(const Ctx *ctx) {
    return reinterpret_cast<CudaDevice *>(ctx->device);
}

/* ---- checked calls ---- */

/* OK, or what failed: ERROR_MEMORY when memory has run out, else ERROR_DEVICE. `what` is the call's text. */
CHECKED Status cuda_status(cudaError_t error, const char *what);
CHECKED Status cublas_status(cublasStatus_t error, const char *what);

#define CUDA_TRY(call)   TRY(cuda_status(call, #call))
#define CUBLAS_TRY(call) TRY(cublas_status(call, #call))

/* Launches `kernel` in the device's stream and counts it; an empty grid launches nothing. More than 48 KiB of
 * dynamic shared memory is asked for here. Yields a Status:
 *     TRY(LAUNCH(ctx, (scale_kernel<T, N>), blocks, 256, 0, scores, count, factor));
 * A kernel with several template arguments stands in parentheses. */
#define LAUNCH(ctx, kernel, grid, block, shared, ...)                                                        \
    cuda_launch(cuda_device(ctx), #kernel, kernel, dim3(grid), dim3(block), shared, __VA_ARGS__)

/* The same for a kernel that may start while the one before it in the stream still runs (Hopper's
 * programmatic dependent launch): it must call wait_for_previous() before it reads what any kernel has
 * written that could still be running, and before it writes anything. Its pointers are not __restrict__: what
 * the compiler then takes for constant it may read early, and past the caches that see the writes. */
#define LAUNCH_EARLY(ctx, kernel, grid, block, shared, ...)                                                  \
    cuda_launch<true>(cuda_device(ctx), #kernel, kernel, dim3(grid), dim3(block), shared, __VA_ARGS__)

/* The same in clusters of so many blocks (a constant; at most 8), on a GPU that has them. */
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

/* Waits until all kernels before this one in the stream are over and what they wrote can be seen. Does
 * nothing in a kernel that was not launched early. */
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* From here on a kernel behind this one that is launched early may take the place that blocks leave free.
 * Only after wait_for_previous(): then all that kernels before the previous one have written can be read
 * before the wait. */
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

/* Of a one-dimensional grid. for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) walks
 * `count` elements in packs of N. */
__device__ inline int64_t thread_index() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() {
    return (int64_t)gridDim.x * blockDim.x;
}

/* ---- dtypes ---- */

typedef __nv_bfloat16 bf16;

template <class T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
    static constexpr Dtype value = F32;
};
template <>
struct DtypeOf<bf16> {
    static constexpr Dtype value = BF16;
};

/* Runs the statements with T standing for the type of `dtype` (F32 or BF16). TRY inside returns from the
 * function around:     DISPATCH_FLOAT(x.dtype, T, TRY(scale<T>(ctx, x)));   */
#define DISPATCH_FLOAT(dtype, T, ...)                                                                        \
    do {                                                                                                     \
        if ((dtype) == BF16) {                                                                               \
            using T = bf16;                                                                                  \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            using T = float;                                                                                 \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)

template <class T>
static inline T *data_of(const Tensor &t) {
    return static_cast<T *>(t.data); // NULL where the tensor is empty
}

__device__ inline float to_float(float x) {
    return x;
}
__device__ inline float to_float(bf16 x) {
    return __bfloat162float(x);
}

template <class T>
__device__ inline T from_float(float x) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return x;
    } else {
        return __float2bfloat16_rn(x);
    }
}

/* ---- vector access ---- */

/* N neighbours of one row, moved by accesses of up to 16 bytes. The address must be aligned to the smaller of
 * 16 bytes and the whole. N = 1 is the fallback for odd sizes and addresses. */
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
    T e[N];
};

template <class T>
constexpr int VECTOR = 16 / (int)sizeof(T); // elements in 16 bytes

template <class T>
using Vector = Pack<T, VECTOR<T>>;

template <int Bytes>
struct Word;
template <>
struct Word<16> {
    typedef uint4 type;
};
template <>
struct Word<8> {
    typedef uint2 type;
};
template <>
struct Word<4> {
    typedef unsigned type;
};
template <>
struct Word<2> {
    typedef unsigned short type;
};

template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T *from) {
    typedef typename Word < sizeof(T) * N<16 ? sizeof(T) * N : 16>::type word;
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(pack) / sizeof(word)); i++) {
        reinterpret_cast<word *>(&pack)[i] = reinterpret_cast<const word *>(from)[i];
    }
    return pack;
}

template <int N, class T>
__device__ inline void store_pack(T *to, const Pack<T, N> &pack) {
    typedef typename Word < sizeof(T) * N<16 ? sizeof(T) * N : 16>::type word;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(pack) / sizeof(word)); i++) {
        reinterpret_cast<word *>(to)[i] = reinterpret_cast<const word *>(&pack)[i];
    }
}

/* The same with the arithmetic's floats on this side, whatever T in memory. */
template <int N, class T>
__device__ inline void load_floats(const T *from, float (&x)[N]) {
    Pack<T, N> pack = load_pack<N>(from);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = to_float(pack.e[i]);
}

template <int N, class T>
__device__ inline void store_floats(T *to, const float (&x)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++) pack.e[i] = from_float<T>(x[i]);
    store_pack<N>(to, pack);
}

/* Whether rows can be walked in packs of `n` elements: every extent (widths, strides) is a multiple of n and
 * every pointer is 16-byte aligned (NULL is). */
static inline bool walks_in_packs(int n, std::initializer_list<int64_t> extents,
                                  std::initializer_list<const void *> pointers) {
    for (int64_t extent : extents) {
        if (extent % n != 0) return false;
    }
    for (const void *pointer : pointers) {
        if ((uintptr_t)pointer % 16 != 0) return false;
    }
    return true;
}

/* Runs the statements with N = VECTOR<T> where `packed`, else with N = 1. */
#define DISPATCH_PACK(packed, T, N, ...)                                                                     \
    do {                                                                                                     \
        if (packed) {                                                                                        \
            constexpr int N = VECTOR<T>;                                                                     \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            constexpr int N = 1;                                                                             \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)

/* Launches kernel<T, N>(...), with N = VECTOR<T> where `packed`, else 1. Yields a Status. */
#define LAUNCH_PACKED(ctx, kernel, T, packed, grid, block, ...)                                              \
    ((packed) ? LAUNCH(ctx, (kernel<T, VECTOR<T>>), grid, block, 0, __VA_ARGS__)                             \
              : LAUNCH(ctx, (kernel<T, 1>), grid, block, 0, __VA_ARGS__))

/* The same for a kernel that walks `count` elements with thread_index() and thread_count(). */
#define LAUNCH_ELEMENTS(ctx, kernel, T, packed, count, ...)                                                  \
    LAUNCH_PACKED(ctx, kernel, T, packed,                                                                    \
                  grid_stride_blocks(ctx, divide_up(count, (packed) ? VECTOR<T> : 1), 256), 256,             \
                  __VA_ARGS__)

/* And for one that gives each of `rows` rows to a warp: row = thread_index() / 32, += thread_count() / 32. */
#define LAUNCH_ROWS(ctx, kernel, T, packed, rows, ...)                                                       \
    LAUNCH_PACKED(ctx, kernel, T, packed, grid_stride_blocks(ctx, (rows)*32, 256), 256, __VA_ARGS__)

/* ---- reductions: the same bits in every lane and in every run ---- */

struct Sum {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct Max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class T, class Combine>
__device__ inline T warp_reduce(T x, Combine combine) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
    }
    return x;
}

template <class T>
__device__ inline T warp_sum(T x) {
    return warp_reduce(x, Sum());
}
__device__ inline float warp_max(float x) {
    return warp_reduce(x, Max());
}

/* For a one-dimensional block of Threads threads, a multiple of 32; all of them must call it. */
template <int Threads, class T, class Combine>
__device__ inline T block_reduce(T x, Combine combine) {
    static_assert(Threads % 32 == 0 && Threads <= 1024, "whole warps");
    __shared__ T of_warp[Threads / 32];
    x = warp_reduce(x, combine);
    if constexpr (Threads == 32) return x;
    __syncthreads(); // the last use of of_warp is over
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warp[0];
#pragma unroll
    for (int warp = 1; warp < Threads / 32; warp++) x = combine(x, of_warp[warp]);
    return x;
}

template <int Threads, class T>
__device__ inline T block_sum(T x) {
    return block_reduce<Threads>(x, Sum());
}
template <int Threads>
__device__ inline float block_max(float x) {
    return block_reduce<Threads>(x, Max());
}

#endif
