#include "kernels/cuda/reduce.cuh"
#include "kernels/decode/cuda_token.cuh"
#include "kernels/linear/cuda_activation.cuh"

/* A cluster computes CLUSTER * UNITS units of the hidden layer, from the residual stream to their partial sum
 * of the branch's output. A block has UNITS of them, over all columns of the stream. The cluster's sum of a
 * column is computed by the block whose share contains the column. */
namespace decode {
namespace {

/* Floor: the weights. */
/* Anatomy. Parallel: over units of the hidden layer, 16 (fp32) or 32 (bf16) a block; 8 blocks of a cluster
 * sum. Launch: hidden / units blocks of 256, in clusters of 8. Holds: 79 to 95 registers, the block's weights
 * in shared memory, feed_bytes(). Occupancy: shared memory, by the width; at most 2 blocks per
 * multiprocessor. Reads: asynchronous copies of 16 bytes, all weights of a block at once before the wait.
 * Syncs: barriers of the block; stores between a cluster's blocks that count at the receiver. Fusion: the
 * attention before it, by a barrier of the grid. */
template <class T, Activation A, bool AFTER>
__global__ void __launch_bounds__(THREADS, 2) feed_kernel(const __grid_constant__ Feed<T> f) {
    if constexpr (gpu::HOPPER) {
        constexpr int UNITS = decode::UNITS<T>, EACH = UNITS / WARPS, N = VECTOR<T>, PIECES = UNITS / N;
        constexpr int NEIGHBOURS = 128 / (UNITS * int(sizeof(T))); // rows of `contract` that cover all banks
                                                                   // once
        extern __shared__ uint4 memory[];
        __shared__ float bias[UNITS];
        __shared__ alignas(16) float hidden[UNITS];
        __shared__ uint64_t arrived[1];
        const int C = f.stream.width, share = C / CLUSTER;
        const int part = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER, first_unit = blockIdx.x * UNITS;
        const int warp = threadIdx.x / WARP;
        T *const expand = reinterpret_cast<T *>(memory), *const contract = expand + UNITS * C;
        const Row<T> stream = row_at<T>(contract + C * UNITS, C);
        float *const own = stream.r;           // (C): this block's sums, after the row has been normalized
        float *const sums = stream.r + C;      // (CLUSTER, share), from all blocks
        float *const contract_bias = sums + C; // (share)
        open_exchanges(arrived, {C * int(sizeof(float))});

        fetch(expand, f.expand + int64_t(first_unit) * C, 1, UNITS * C * int(sizeof(T)), 0);
        fetch(contract, f.contract + first_unit, C, UNITS * int(sizeof(T)), int64_t(f.hidden) * sizeof(T));
        fetch_norm<T, AFTER>(f.stream, stream);
        if (threadIdx.x < UNITS) bias[threadIdx.x] = to_float(f.expand_bias[first_unit + threadIdx.x]);
        for (int i = threadIdx.x; i < share; i += THREADS)
            contract_bias[i] = part == 0 ? to_float(f.contract_bias[rank * share + i]) : 0.f;
        gpu::cluster_join();
        norm_stream<T, AFTER>(f.stream, stream, blockIdx.x == 0);

        const T *rows[EACH];
        float products[EACH] = {};
#pragma unroll
        for (int i = 0; i < EACH; i++) rows[i] = expand + (warp * EACH + i) * C;
        multiply_rows<T, EACH>(rows, stream.normed, C, products);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int unit = warp * EACH + i;
            const float pre = warp_sum(products[i]) + bias[unit];
            if (threadIdx.x % WARP == 0) hidden[unit] = to_float(from_float<T>(activated<A>(pre)));
        }
        __syncthreads();

        const int turn = threadIdx.x / NEIGHBOURS % PIECES; // neighbours start at different offsets, to avoid
                                                            // bank conflicts
        float x[PIECES][N];
#pragma unroll
        for (int p = 0; p < PIECES; p++) load_floats(hidden + (turn + p) % PIECES * N, x[p]);
        for (int column = threadIdx.x; column < C; column += THREADS) {
            float sum = 0.f;
#pragma unroll
            for (int p = 0; p < PIECES; p++) {
                float w[N];
                unpack<T>(load_words(contract + column * UNITS + (turn + p) % PIECES * N), w);
#pragma unroll
                for (int e = 0; e < N; e++) sum = fmaf(x[p][e], w[e], sum);
            }
            own[column] = sum;
        }
        __syncthreads();
        for (int column = 4 * threadIdx.x; column < C; column += 4 * THREADS) {
            float four[4];
            load_floats(own + column, four);
            gpu::store_counted(&sums[rank * share + column % share], &arrived[0], column / share, four);
        }
        gpu::wait(&arrived[0], 0);
        for (int i = threadIdx.x; i < share; i += THREADS) {
            float sum = contract_bias[i];
#pragma unroll
            for (int block = 0; block < CLUSTER; block++) sum += sums[block * share + i];
            f.parts[part * C + rank * share + i] = sum;
        }
    }
}

template <class T, bool AFTER>
Status launch(Ctx *ctx, const Feed<T> &f, Activation activation) {
    const unsigned blocks = unsigned(f.hidden / UNITS<T>);
    const size_t bytes = feed_bytes(f.stream.width, sizeof(T), UNITS<T>);
    DISPATCH_ACTIVATION(
        activation, A,
        return LAUNCH_CLUSTERS(ctx, CLUSTER, (feed_kernel<T, A, AFTER>), blocks, THREADS, bytes, f));
    return fail(ERROR_INTERNAL, "decode: an unknown activation");
}

} // namespace

size_t feed_bytes(int width, size_t size, int units) {
    const size_t C = size_t(width);
    return 2 * size_t(units) * C * size + row_bytes(width, size) + (C + C / CLUSTER) * sizeof(float);
}

Status feed(Ctx *ctx, const Feed<float> &f, Activation activation, bool after) {
    return after ? launch<float, true>(ctx, f, activation) : launch<float, false>(ctx, f, activation);
}
Status feed(Ctx *ctx, const Feed<bf16> &f, Activation activation, bool after) {
    return after ? launch<bf16, true>(ctx, f, activation) : launch<bf16, false>(ctx, f, activation);
}

} // namespace decode
