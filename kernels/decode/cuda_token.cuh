/* cuda_token: code shared by the kernels that take one token through the stack. Each kernel is a branch:
 * `attend` (also cross attention) has a cluster of blocks per head, `feed` one per CLUSTER * UNITS units of
 * the hidden layer. A block's weights do not depend on the token, so it prefetches them to shared memory
 * while the previous kernel still runs. Then every block reads the row of the residual stream and normalizes
 * it redundantly. A head, or a group of units, writes its contribution to the stream as a separate partial
 * sum, (C) fp32; the next kernel's blocks add the partial sums in order as they read the row. So a branch
 * waits for other clusters only once, and all other exchange is within a cluster.
 *
 * With the norm after a branch (AFTER) a kernel applies the norm of the branch before it. This is equivalent,
 * except that the stream that is stored for the next kernel is the normalized row instead of the sum.
 *
 * A block also reads the caches' rows and the position before it waits. They were written by kernels that had
 * finished before the previous one started, because kernels trigger the next launch only after their own
 * wait. */
#pragma once

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/decode/decode.h"

#include <type_traits>

namespace decode {

constexpr int CLUSTER = 8, THREADS = 256, WARP = 32, WARPS = THREADS / WARP;
/* Units of the hidden layer per block: small enough that two blocks of 768 columns share a multiprocessor. */
template <class T>
constexpr int UNITS = sizeof(T) == sizeof(float) ? 16 : 32;

/* The residual stream as a kernel reads it: r = x + sum of parts (rounded to T), or the embedding of a token;
 * then normalized. */
template <class T>
struct Stream {
    const T *x;             // (C); for an embedding (V, C)
    const T *position;      // (P, C), for an embedding only
    const int *id, *past;   // (1), (1) or NULL; past replaces `rows`
    int rows;               // rows in the cache
    const float *parts;     // (count, C)
    int count, width;       // width = C
    const T *weight, *bias; // (C); NULL for an embedding with AFTER, which is not normalized
    float eps, token_scale;
    T *kept; // (C): r, or with AFTER the normalized row, written by one block; NULL: not needed
};

template <class T>
struct Attend {
    Stream<T> stream;
    const T *qkv, *qkv_bias; // ((heads + 2 kv_heads) D, C) and its rows' biases; for cross attention
                             // (heads*D, C), only the queries'
    const T *projection, *projection_bias; // (C, heads*D), (C)
    T *cache_k, *cache_v; // (capacity, kv_heads*D), or for cross attention the first `most` rows of a memory
    int row_stride;       // row stride of the cache, in elements
    const int *length;    // (1): the memory's valid rows, or NULL: all
    int most, heads, kv_heads;
    float scale;  // scale of the scores, in base 2
    float *parts; // (heads, C), written
};

template <class T>
struct Feed {
    Stream<T> stream;
    const T *expand, *expand_bias;     // (hidden, C), (hidden)
    const T *contract, *contract_bias; // (C, hidden), (C)
    int hidden;
    float *parts; // (hidden / (CLUSTER * UNITS<T>), C), written
};

template <class T>
struct Head {
    Stream<T> stream;
    const T *weight; // (Vp, C)
    float *logits;   // (Vp)
    int vocab;       // Vp
};

/* The launchers. D is 32, 64 or 128. */
CHECKED Status attend(Ctx *ctx, const Attend<float> &a, int D, bool across, bool after);
CHECKED Status attend(Ctx *ctx, const Attend<bf16> &a, int D, bool across, bool after);
CHECKED Status feed(Ctx *ctx, const Feed<float> &f, Activation activation, bool after);
CHECKED Status feed(Ctx *ctx, const Feed<bf16> &f, Activation activation, bool after);
CHECKED Status head(Ctx *ctx, const Head<float> &h, bool after);
CHECKED Status head(Ctx *ctx, const Head<bf16> &h, bool after);
size_t attend_bytes(int width, int D, size_t size,
                    bool across); // bytes of shared memory, for elements of this size
size_t feed_bytes(int width, size_t size, int units);
size_t head_bytes(int width, size_t size);

/* Copies a row to shared memory. */
template <class T>
struct Row {
    T *weight, *bias, *normed; // (C)
    float *r;                  // (C)
};
constexpr size_t row_bytes(int width, size_t size) {
    return size_t(width) * (3 * size + sizeof(float));
}
template <class T>
__device__ inline Row<T> row_at(void *memory, int width) {
    T *const first = static_cast<T *>(memory);
    return {first, first + width, first + 2 * width, reinterpret_cast<float *>(first + 3 * width)};
}

/* Copies `count` rows of `bytes` (a multiple of 16), `from_step` bytes apart, to consecutive rows in shared
 * memory, asynchronously. All threads of the block call it. */
__device__ inline void fetch(void *to, const void *from, int count, int bytes, int64_t from_step) {
    const int pieces = bytes / 16;
    for (int i = threadIdx.x; i < count * pieces; i += THREADS) {
        const int row = i / pieces, piece = i % pieces;
        gpu::copy_async_16(static_cast<char *>(to) + i * 16,
                           static_cast<const char *>(from) + row * from_step + piece * 16, true);
    }
}

/* Blocks of a cluster exchange data by stores that count at a barrier of the receiving block. Each barrier
 * serves one exchange of a fixed number of bytes. The first store comes after gpu::cluster_join(), so that
 * the receiving block has started; a block ends only after it has received everything sent to it. */
template <int COUNT>
__device__ inline void open_exchanges(uint64_t (&barriers)[COUNT], const int (&bytes)[COUNT]) {
    if (threadIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) gpu::barrier_init(&barriers[i], 1);
        gpu::fence_barrier_init();
#pragma unroll
        for (int i = 0; i < COUNT; i++) gpu::arrive_expecting(&barriers[i], bytes[i]);
    }
    gpu::cluster_arrive_relaxed();
}

template <class T, bool AFTER>
__device__ inline void fetch_norm(const Stream<T> &s, const Row<T> &row) {
    if (AFTER && !s.weight) return;
    fetch(row.weight, s.weight, 1, s.width * int(sizeof(T)), 0);
    fetch(row.bias, s.bias, 1, s.width * int(sizeof(T)), 0);
}

/* N neighbours of r. */
template <class T, int N>
__device__ inline void load_stream(const Stream<T> &s, int64_t x_start, int64_t position_start, int c,
                                   float (&r)[N]) {
    using Part = std::conditional_t<N == 4, float4, float2>;
    constexpr int BATCH = N == 4 ? 12 : 16; // parts in flight
    load_floats<N>(s.x + x_start + c, r);
    if (s.position) {
        float added[N];
        load_floats<N>(s.position + position_start + c, added);
#pragma unroll
        for (int e = 0; e < N; e++) r[e] = fmaf(s.token_scale, r[e], added[e]);
    }
    for (int first = 0; first < s.count; first += BATCH) {
        Part parts[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (first + i < s.count)
                parts[i] = __ldcg(reinterpret_cast<const Part *>(s.parts + (first + i) * s.width + c));
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            if (first + i >= s.count) break;
            r[0] += parts[i].x, r[1] += parts[i].y;
            if constexpr (N == 4) r[2] += parts[i].z, r[3] += parts[i].w;
        }
    }
}

/* Waits for the previous kernel. Afterwards row.normed and the fetched weights are visible to the whole
 * block. */
template <class T, bool AFTER>
__device__ inline void norm_stream(const Stream<T> &s, const Row<T> &row, bool writes) {
    constexpr int N = AFTER ? 2 : 4; // columns per thread at once: an encoder-decoder is 512 wide
    wait_for_previous();
    let_next_start();
    const int64_t x_start = s.id ? int64_t(*s.id) * s.width : 0;
    const int64_t position_start = s.position ? int64_t(s.past ? *s.past : s.rows) * s.width : 0;
    float sum = 0.f;
    for (int c = N * threadIdx.x; c < s.width; c += N * THREADS) {
        float r[N];
        load_stream(s, x_start, position_start, c, r);
#pragma unroll
        for (int e = 0; e < N; e++) {
            r[e] = to_float(from_float<T>(r[e])); // the statistics are those of r as stored
            sum += r[e];
        }
        store_floats(row.r + c, r);
        if (!AFTER && writes && s.kept) store_floats(s.kept + c, r);
    }
    const float mean = block_sum<THREADS>(sum) / s.width;
    float squares = 0.f;
    for (int c = N * threadIdx.x; c < s.width; c += N * THREADS)
#pragma unroll
        for (int e = 0; e < N; e++) squares += (row.r[c + e] - mean) * (row.r[c + e] - mean);
    gpu::copy_async_wait(); // the barriers of the sum make the copies of all threads visible
    const float rstd = 1.f / sqrtf(block_sum<THREADS>(squares) / s.width + s.eps);
    for (int c = N * threadIdx.x; c < s.width; c += N * THREADS) {
        float r[N], weight[N], bias[N];
        load_floats(row.r + c, r);
        if (!AFTER || s.weight) {
            load_floats<N>(row.weight + c, weight);
            load_floats<N>(row.bias + c, bias);
#pragma unroll
            for (int e = 0; e < N; e++) r[e] = (r[e] - mean) * rstd * weight[e] + bias[e];
        }
        store_floats(row.normed + c, r);
        if (AFTER && writes && s.kept) store_floats(s.kept + c, r);
    }
    __syncthreads();
}

/* Each lane's partial sums of the products of the normalized row with COUNT rows of weights in shared memory,
 * which belong to the warp; the caller sums over the warp. */
template <class T, int COUNT>
__device__ inline void multiply_rows(const T *const (&rows)[COUNT], const T *normed, int width,
                                     float (&sums)[COUNT]) {
    constexpr int N = VECTOR<T>;
    for (int v = threadIdx.x % WARP; v < width / N; v += WARP) {
        float x[N];
        unpack<T>(load_words(normed + v * N), x);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float w[N];
            unpack<T>(load_words(rows[i] + v * N), w);
#pragma unroll
            for (int e = 0; e < N; e++) sums[i] = fmaf(x[e], w[e], sums[i]);
        }
    }
}

/* Sums `x` over groups of LANES neighbouring lanes; every lane gets the sum. */
template <int LANES>
__device__ inline float group_sum(float x) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

} // namespace decode
