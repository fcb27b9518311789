#include "kernels/decode/cuda_rows.cuh"

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/linear/cuda_activation.cuh"
#include "kernels/linear/cuda_fused.cuh"
#include "kernels/norm/cuda_row.cuh"

/* Products of one row with the bits that the row has among others, which FUSE_INVARIANT requires: x is
 * normalized and rounded as kernels/norm does it, and sums have the order of kernels/linear/cuda_tiles.cu. A
 * tensor core adds 16 inputs at once to a sum, by mma.sync as by the wgmma of tiles. A warp has 16 outputs of
 * one slice of the inputs, and the same warps of a block the other slices. */
namespace decode {
namespace ordered { // a named namespace, because much of it is unused in builds for other GPUs

using namespace gpu;

constexpr int WARP = 32, WARPS = 4, THREADS = WARP * WARPS;
constexpr int OUTPUTS = 16, INPUTS = 16;                 // of an instruction
constexpr int DEPTH = LINEAR_SLICE_STEP, STAGES = 12;    // inputs of a stage; stages of a warp's ring
constexpr int N = VECTOR<bf16>;                          // elements of a pack
constexpr int HALVES = norm_row::THREADS_MOST / THREADS; // threads of a norm for which a thread stands

static_assert(DEPTH % INPUTS == 0, "a stage is whole instructions");

/* How the row is divided: its norm, and the 2^log2 slices of its inputs. */
struct Division {
    norm_row::Order norm;
    int log2, inputs; // of a slice
};

/* A stage of a warp's weights. */
typedef bf16 Stage[OUTPUTS * DEPTH];

/* Shared memory of a block; after it, the row: x, then norm(x); and the norm's weight and bias. */
struct alignas(16) Shared {
    Stage weights[WARPS][STAGES];
    float parts[WARPS][OUTPUTS];                                // sums of the slices
    float of_warps[2][norm_row::THREADS_MOST / norm_row::WARP]; // sums of the row
};
struct Row {
    bf16 *x, *weight, *bias; // (in), up to whole steps

    __device__ Row(void *memory, int in)
        : x(static_cast<bf16 *>(memory)), weight(x + (in + DEPTH - 1) / DEPTH * DEPTH), bias(weight + in) {}
};
size_t shared_bytes(const Product<bf16> &p) {
    const int64_t x = divide_up(p.in, DEPTH) * DEPTH;
    return sizeof(Shared) + size_t(x + (p.norm ? p.in : 0) + (p.norm_bias ? p.in : 0)) * sizeof(bf16);
}

/* A warp's weights: a ring of stages. A gated layer has 8 rows of the gate and the same 8 of up. */
template <bool GATED>
struct Weights {
    Stage (&stages)[STAGES];
    const Product<bf16> &p;
    int output, end; // the first; of the slice's inputs

    /* A lane copies one pack of every fourth row. */
    __device__ void start(int stage, int column) const {
        const int lane = int(threadIdx.x) % WARP, pack = lane % 8, at = column + pack * N;
        if (column < end)
#pragma unroll
            for (int i = 0; i < OUTPUTS; i += 4) {
                const int row = i + lane / 8, last = p.out - 1;
                const int of_weight = GATED ? min(output + row % 8, last) + (i < OUTPUTS / 2 ? 0 : p.out)
                                            : min(output + row, last);
                copy_async_16(stages[stage] + eight_columns<DEPTH>(row, pack),
                              p.weight + int64_t(of_weight) * p.in + (at < end ? at : 0), at < end);
            }
        copy_async_commit();
    }

    /* c += the products of the inputs from `column` on with 16 outputs; all 8 columns are x. */
    __device__ void multiply_all(float (&c)[4], int column, const bf16 *x) const {
        const int lane = int(threadIdx.x) % WARP;
        for (int stage = 0; column < end; column += DEPTH) {
            copy_async_wait_group<STAGES - 1>();
            __syncwarp();
#pragma unroll
            for (int k = 0; k < DEPTH; k += INPUTS) {
                uint32_t a[4];
                load_matrices(a, stages[stage] + eight_columns<DEPTH>(lane % 16, k / N + lane / 16));
                const uint32_t *const pairs = reinterpret_cast<const uint32_t *>(x + column + k);
                multiply(c, a, pairs[lane % 4], pairs[lane % 4 + 4], c);
            }
            __syncwarp(); // until no lane reads the stage that the next copies overwrite
            start(stage, column + STAGES * DEPTH);
            stage = stage == STAGES - 1 ? 0 : stage + 1;
        }
    }
};

/* Calls f(pack, half) for each pack of this thread, which stands for HALVES threads of the order. */
template <class F>
__device__ inline void for_packs(const norm_row::Order &order, F f) {
    for (int i = 0; i < order.each; i++)
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const int thread = int(threadIdx.x) + half * THREADS, pack = thread + i * order.threads;
            if (thread < order.threads && pack < order.packs) f(pack, half);
        }
}

/* Starts the copies of the norm's parameters that this thread will need. */
__device__ inline void start_norm(const Product<bf16> &p, const norm_row::Order &order, const Row &row) {
    if (p.norm)
        for_packs(order, [&](int pack, int) {
            copy_async_16(row.weight + pack * N, p.norm + pack * N, true);
            if (p.norm_bias) copy_async_16(row.bias + pack * N, p.norm_bias + pack * N, true);
        });
    copy_async_commit();
}

/* The sum over the row, from those of its threads. `of_warps` must not be in use. */
__device__ inline float sum_threads(const float (&sums)[HALVES], const norm_row::Order &order,
                                    float (&of_warps)[norm_row::THREADS_MOST / WARP]) {
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        const float sum = warp_sum(sums[half]);
        if (threadIdx.x % WARP == 0) of_warps[(int(threadIdx.x) + half * THREADS) / WARP] = sum;
    }
    __syncthreads();
    float sum = of_warps[0];
    for (int w = 1; w < order.threads / WARP; w++) sum += of_warps[w];
    return sum;
}

template <bool LAYER>
__device__ inline void normalize_row(const Product<bf16> &p, const norm_row::Order &order, Shared &shared,
                                     const Row &row) {
    const float inverse = 1.f / float(p.in);
    float sums[HALVES] = {}, mean = 0.f;
    for_packs(order, [&](int pack, int half) {
        const Words words = load_words(p.x + pack * N);
        float x[N];
        unpack<bf16>(words, x);
        sums[half] = norm_row::add_pack<!LAYER>(sums[half], x);
        store_words(row.x + pack * N, words);
    });
    float squares = sum_threads(sums, order, shared.of_warps[0]);
    if constexpr (LAYER) {
        mean = squares * inverse;
        float centered[HALVES] = {};
        for_packs(order, [&](int pack, int half) {
            float x[N];
            unpack<bf16>(load_words(row.x + pack * N), x);
            centered[half] = norm_row::add_centered(centered[half], mean, x);
        });
        squares = sum_threads(centered, order, shared.of_warps[1]);
    }
    const float rstd = norm_row::rstd_of(squares, inverse, p.eps);
    copy_async_wait_group<STAGES>();
    for_packs(order, [&](int pack, int) {
        float x[N], weight[N], bias[N] = {};
        unpack<bf16>(load_words(row.x + pack * N), x);
        unpack<bf16>(load_words(row.weight + pack * N), weight);
        if constexpr (LAYER) unpack<bf16>(load_words(row.bias + pack * N), bias);
        norm_row::normalize<LAYER>(x, mean, rstd, weight, bias);
        const Words words = packed<bf16>(x);
        store_words(row.x + pack * N, words);
        if (p.kept && blockIdx.x == 0) store_words(p.kept + pack * N, words);
    });
}

/* Puts x, or its norm, in shared memory. */
__device__ inline void fetch_row(const Product<bf16> &p, const norm_row::Order &order, Shared &shared,
                                 const Row &row) {
    if (p.norm_bias)
        normalize_row<true>(p, order, shared, row);
    else if (p.norm)
        normalize_row<false>(p, order, shared, row);
    else
#pragma unroll 4
        for (int pack = int(threadIdx.x); pack < p.in / N; pack += THREADS)
            store_words(row.x + pack * N, load_words(p.x + pack * N));
    const int rest = p.in + int(threadIdx.x);
    if (rest < row.weight - row.x) row.x[rest] = from_float<bf16>(0.f);
    __syncthreads();
}

/* Writes an output from its sum, or its sums of gate and up, with bias. The skip is added as the next norm
 * would add it. */
template <bool GATED>
__device__ inline void write(const Product<bf16> &p, int own, const float (&z)[2], float skip) {
    float y = 0.f;
    if constexpr (GATED)
        y = gated(z[0], z[1]);
    else
        DISPATCH_ACTIVATION(p.activation, A, y = activated<A>(z[0]));
    if (p.logits)
        p.logits[own] = y;
    else
        p.y[own] = p.skip ? from_float<bf16>(to_float(from_float<bf16>(y)) + skip) : from_float<bf16>(y);
}

/* Floor: out * in * sizeof(bf16) bytes. */
/* Anatomy. Parallel: over 16 outputs per warp and up to 4 slices of the inputs. Launch: outputs * slices / 64
 * blocks of 128. Holds: 48 registers, 97 KiB and 2 to 6 bytes per input shared. Occupancy: shared memory: two
 * blocks per multiprocessor. Reads: 16 bytes per copy, 128 bytes of each of 4 rows, 24 KiB per warp in flight
 * before the wait. Syncs: of warps; 2 to 4 barriers of the block. Fusion: the next product, by a barrier of
 * the grid. */
template <bool GATED>
__global__ void __launch_bounds__(THREADS)
    ordered_kernel(const __grid_constant__ Product<bf16> p, const __grid_constant__ Division division) {
    constexpr int EACH_TILE = GATED ? OUTPUTS / 2 : OUTPUTS; // outputs of a warp
    if constexpr (HOPPER) {
        extern __shared__ __align__(16) uint8_t shared_memory[];
        Shared &shared = *reinterpret_cast<Shared *>(shared_memory);
        const Row row(&shared + 1, p.in);
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        const int slices = 1 << division.log2, tiles = WARPS >> division.log2;
        const int first_tile = int(blockIdx.x) * tiles, tile = warp >> division.log2;
        const int begin = (warp & (slices - 1)) * division.inputs;
        const Weights<GATED> weights = {shared.weights[warp], p, (first_tile + tile) * EACH_TILE,
                                        min(begin + division.inputs, p.in)};
        start_norm(p, division.norm, row);
        for (int s = 0; s < STAGES; s++) weights.start(s, begin + s * DEPTH);

        const int own = first_tile * EACH_TILE + int(threadIdx.x); // the output that this thread writes
        const bool writes = int(threadIdx.x) < tiles * EACH_TILE && own < p.out;
        float biases[2] = {};
        if (writes && p.bias)
            for (int m = 0; m < (GATED ? 2 : 1); m++) biases[m] = to_float(p.bias[own + m * p.out]);
        if (!p.first && !p.logits) let_next_start();
        wait_for_previous();
        if (p.first || p.logits) let_next_start();
        const float skip = writes && p.skip ? to_float(p.skip[own]) : 0.f;
        fetch_row(p, division.norm, shared, row);
        float c[4] = {};
        weights.multiply_all(c, begin, row.x);
        if (lane % 4 == 0)
            shared.parts[warp][lane / 4] = c[0], shared.parts[warp][lane / 4 + OUTPUTS / 2] = c[2];
        __syncthreads();
        if (!writes) return;
        const float(*const of_tile)[OUTPUTS] = shared.parts + (int(threadIdx.x) / EACH_TILE << division.log2);
        const int column = int(threadIdx.x) % EACH_TILE;
        float sums[2] = {of_tile[0][column], of_tile[0][(column + OUTPUTS / 2) % OUTPUTS]};
        for (int s = 1; s < slices; s++)
            sums[0] += of_tile[s][column], sums[1] += of_tile[s][(column + OUTPUTS / 2) % OUTPUTS];
        if (p.bias) sums[0] += biases[0], sums[1] += biases[1];
        write<GATED>(p, own, sums, skip);
    }
}

template <bool GATED>
Status launch(Ctx *ctx, const Product<bf16> &p, const Division &division) {
    const int64_t tiles = divide_up(p.out, GATED ? OUTPUTS / 2 : OUTPUTS);
    return LAUNCH_EARLY(ctx, ordered_kernel<GATED>, unsigned(divide_up(tiles, WARPS >> division.log2)),
                        THREADS, shared_bytes(p), p, division);
}

} // namespace ordered
using namespace ordered;

bool products_have_order(int64_t width, int64_t hidden) {
    constexpr int64_t MOST = 32768; // of which a block has a row
    return width % N == 0 && hidden % N == 0 && width <= MOST && hidden <= MOST &&
           norm_row::Order(int(width / N)).fits();
}

Status product_in_order(Ctx *ctx, const Product<bf16> &p, bool gated) {
    const int steps = int(divide_up(p.in, DEPTH)), slices = linear_slices((gated ? 2 : 1) * p.out, steps);
    Division division = {norm_row::Order(p.in / N), 0, int(divide_up(steps, slices)) * DEPTH};
    while (1 << division.log2 < slices) division.log2++;
    return gated ? launch<true>(ctx, p, division) : launch<false>(ctx, p, division);
}

} // namespace decode
