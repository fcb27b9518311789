/* cuda_tile: bf16 tiles in shared memory and their products by one warp's tensor cores (sm_80 and later). The
 * fragments are those of mma.m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16"): with g = lane / 4 and t
 * = lane % 4, an accumulator holds c[0], c[1] at row g and c[2], c[3] at row g + 8, columns 2t and 2t + 1, so
 * that two neighbouring accumulators, rounded and packed, are a left operand of 16 x 16. The rows of a tile
 * are WIDTH + 8 elements apart: with an odd number of 16-byte vectors, the eight rows that ldmatrix reads
 * together are in different banks. */
#pragma once

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/reduce.cuh"

namespace attention {

using namespace gpu;

constexpr int WARPS = 4, THREADS = 32 * WARPS;

template <int WIDTH>
constexpr int PITCH = WIDTH + 8;

/* Copies rows [first, first + ROWS) of `from`, with rows `stride` apart, to a tile; rows from `end` and
 * columns from `width` on become zero. Asynchronous if `vector`: the caller commits and waits. */
template <int ROWS, int WIDTH>
__device__ inline void load_tile(bf16 *tile, const bf16 *from, int64_t stride, int first, int end, int width,
                                 bool vector) {
    if (vector) {
        constexpr int VECTORS = WIDTH / 8, STEP = THREADS / VECTORS; // a thread keeps its column
        static_assert(THREADS % VECTORS == 0 && ROWS % STEP == 0, "every thread copies as many vectors");
        const int row = int(threadIdx.x) / VECTORS, column = int(threadIdx.x) % VECTORS * 8;
        const int rows = column < width ? end - first - row : 0;
        const bf16 *source = from + (first + row) * stride + column;
        bf16 *const to = tile + row * PITCH<WIDTH> + column;
#pragma unroll
        for (int i = 0; i < ROWS; i += STEP, source += STEP * stride)
            copy_async_16(to + i * PITCH<WIDTH>, source, i < rows);
        return;
    }
#pragma unroll 1
    for (int index = int(threadIdx.x); index < ROWS * WIDTH; index += THREADS) {
        int row = index / WIDTH, column = index % WIDTH;
        bool inside = first + row < end && column < width;
        tile[row * PITCH<WIDTH> + column] =
            inside ? from[(first + row) * stride + column] : __float2bfloat16(0.0f);
    }
}

/* Writes a warp's accumulators of 16 * M rows to rows [first, end) of `to`, staged in the warp's own rows of
 * shared memory, so that stores are whole vectors. */
template <int M, int WIDTH>
__device__ inline void store_rows(const float (&rows)[M][WIDTH / 8][4], bf16 *staging, bf16 *to,
                                  int64_t stride, int first, int end, int width, bool vector) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<uint32_t *>(staging + (16 * m + 8 * half + g) * PITCH<WIDTH> + 8 * n +
                                              2 * t) = pack(rows[m][n][2 * half], rows[m][n][2 * half + 1]);
    __syncwarp();
    const int step = vector ? 8 : 1;
#pragma unroll 1
    for (int index = lane * step; index < 16 * M * WIDTH; index += 32 * step) {
        int row = index / WIDTH, column = index % WIDTH;
        if (first + row >= end || column >= width) continue;
        const bf16 *from = staging + row * PITCH<WIDTH> + column;
        bf16 *target = to + (first + row) * stride + column;
        if (vector)
            *reinterpret_cast<uint4 *>(target) = *reinterpret_cast<const uint4 *>(from);
        else
            *target = *from;
    }
}

/* Loads the 16 x 16 left operand at `tile`. */
template <int WIDTH>
__device__ inline void load_left(uint32_t (&left)[4], const bf16 *tile) {
    const int lane = int(threadIdx.x) % 32;
    load_matrices(left, tile + lane % 16 * PITCH<WIDTH> + lane / 16 * 8);
}

/* A warp's left operand of several products: 16 * M rows of a tile, kept in registers or loaded again for
 * each product. */
template <int M, int WIDTH, bool IN_REGISTERS>
struct Left {
    uint32_t fragments[IN_REGISTERS ? M : 1][IN_REGISTERS ? WIDTH / 16 : 1][4];
    const bf16 *rows;

    Left() = default; // the caller sets the fragments

    /* Loads the rows to registers if they are kept there; they must have arrived. */
    __device__ inline Left(const bf16 *rows) : rows(rows) {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int k = 0; k < WIDTH / 16; k++)
                    load_left<WIDTH>(fragments[m][k], rows + 16 * m * PITCH<WIDTH> + 16 * k);
        }
    }

    __device__ inline void get(uint32_t (&left)[M][4], int k) const {
#pragma unroll
        for (int m = 0; m < M; m++) {
            if constexpr (IN_REGISTERS) {
#pragma unroll
                for (int i = 0; i < 4; i++) left[m][i] = fragments[m][k][i];
            } else {
                load_left<WIDTH>(left[m], rows + 16 * m * PITCH<WIDTH> + 16 * k);
            }
        }
    }
};

/* Starts every accumulator m, n at zero. */
struct FromZero {
    __device__ inline void operator()(int, int, float (&start)[4]) const {
        start[0] = start[1] = start[2] = start[3] = 0.0f;
    }
};

/* c = start + a b^T: a has 16 * M rows, b 8 * N rows, both WIDTH columns. */
template <int M, int N, int WIDTH, bool IN_REGISTERS, class Start>
__device__ inline void multiply_transposed(float (&c)[M][N][4], const Left<M, WIDTH, IN_REGISTERS> &a,
                                           const bf16 *b, Start start) {
    const int lane = int(threadIdx.x) % 32;
    const bf16 *b_lane = b + (lane % 8 + lane / 16 * 8) * PITCH<WIDTH> + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < WIDTH / 16; k++) {
        uint32_t left[M][4];
        a.get(left, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t right[4];
            load_matrices(right, b_lane + 8 * n * PITCH<WIDTH> + 16 * k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                float first[2][4];
                start(m, n, first[0]);
                start(m, n + 1, first[1]);
                multiply(c[m][n], left[m], right[0], right[1], k == 0 ? first[0] : c[m][n]);
                multiply(c[m][n + 1], left[m], right[2], right[3], k == 0 ? first[1] : c[m][n + 1]);
            }
        }
    }
}

/* Rounds accumulators of 16 * M rows and 8 * N columns to left operands. */
template <int M, int N>
__device__ inline void pack_left(uint32_t (&left)[M][N / 2][4], const float (&c)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int k = 0; k < N / 2; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                left[m][k][i] = pack(c[m][2 * k + i / 2][2 * (i % 2)], c[m][2 * k + i / 2][2 * (i % 2) + 1]);
}

/* c += a b: a is in registers, 16 * M rows and 16 * K columns; b has 16 * K rows and WIDTH columns. */
template <int M, int K, int WIDTH>
__device__ inline void multiply_rows(float (&c)[M][WIDTH / 8][4], const uint32_t (&left)[M][K][4],
                                     const bf16 *b) {
    const int lane = int(threadIdx.x) % 32;
    const bf16 *b_lane = b + lane % 16 * PITCH<WIDTH> + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            uint32_t right[4];
            load_matrices_transposed(right, b_lane + 16 * k * PITCH<WIDTH> + 8 * n);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(c[m][n], left[m][k], right[0], right[1], c[m][n]);
                multiply(c[m][n + 1], left[m][k], right[2], right[3], c[m][n + 1]);
            }
        }
}

template <int M, int N>
__device__ inline void clear(float (&c)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] = 0.0f;
}

/* Online softmax of the rows that this thread holds: row 16 m + 8 half + g. Until the end `sum` covers only
 * this thread's columns. */
template <int M>
struct Softmax {
    float maximum[M][2], sum[M][2];
};

/* Replaces scores by exp(score - maximum) and rescales earlier sums to the new maximum. */
template <int WIDTH, int M, int N>
__device__ inline void softmax_step(Softmax<M> &state, float (&s)[M][N][4], float (&o)[M][WIDTH / 8][4],
                                    float scale) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float maximum = state.maximum[m][half];
#pragma unroll
            for (int n = 0; n < N; n++)
                maximum = fmaxf(maximum, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            maximum = quad_max(maximum);
            // A row that has seen no key has maximum -inf, and all its exponentials must be 0. The factor of
            // an unchanged maximum must be 1, which a fused multiply-add would miss by base's rounding: or
            // else the bits of a row would depend on the tiles that it does not see.
            const float base = maximum == -INFINITY ? 0.0f : __fmul_rn(maximum, scale);
            const float correction = power_of_two(__fmul_rn(state.maximum[m][half], scale) - base);
            state.maximum[m][half] = maximum;
            float sum = state.sum[m][half] * correction;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = power_of_two(s[m][n][i] * scale - base);
                    sum += s[m][n][i];
                }
            state.sum[m][half] = sum;
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                o[m][n][2 * half] *= correction;
                o[m][n][2 * half + 1] *= correction;
            }
        }
}

} // namespace attention
