/* cuda_ordered: how a product of cuda_ordered.cu is divided, its shared memory, and how x comes there:
 * normalized, or as it is. */
#pragma once

#include "kernels/cuda/hopper.cuh"
#include "kernels/decode/cuda_rows.cuh"
#include "kernels/linear/cuda_fused.cuh"
#include "kernels/norm/cuda_row.cuh"

namespace decode {
namespace ordered { // a named namespace, because much of it is unused in builds for other GPUs

using namespace gpu;

constexpr int WARP = 32, WARPS = 4, THREADS = WARP * WARPS;
constexpr int OUTPUTS = 16, INPUTS = 16;              // of a warp's instruction
constexpr int DEPTH = LINEAR_SLICE_STEP, STAGES = 12; // inputs of a stage; most stages of a ring
constexpr int N = VECTOR<bf16>;                       // elements of a pack
constexpr int CHUNK = 8 * DEPTH;                      // DEPTH inputs of 8 slices of x: a right operand

static_assert(DEPTH == BLOCK_COLUMNS, "a row of a stage is a row of an operand");
static_assert(WARPS * WARP == WARPGROUP, "a block is a warpgroup");
static_assert(DEPTH % (2 * INPUTS) == 0, "a stage is whole pairs of instructions");

/* Whether the ring has all weights of a slice, or they stream through it; FEW: a warp has half as many outputs,
 * so that the long rows of few outputs come to twice as many multiprocessors. */
enum Way { RESIDENT, STREAM, FEW };
template <Way WAY>
constexpr int ROWS = WAY == FEW ? OUTPUTS / 2 : OUTPUTS; // of weights, in a warp's part of a stage
template <Way WAY>
constexpr int TILE = DEPTH / (WAY == FEW ? 2 : 1) * OUTPUTS; // this part, in elements

/* How a product is divided: its row's norm, the slices of its inputs, and its outputs. */
struct Division {
    norm_row::Order norm;
    int slices_log2, inputs, steps; // inputs of a slice, and its stages
    int stages;                     // of the ring
    int outputs;                    // of a block
    Way way;
    bool large; // the weights: the next kernel starts early to fetch its own

    Division(const Product<bf16> &p, bool gated, int multiprocessors)
        : norm(p.in / N), slices_log2(0), way(RESIDENT) {
        constexpr int64_t LARGE = 4 << 20; // bytes; measured
        const int all_steps = int(divide_up(p.in, DEPTH)), rows = (gated ? 2 : 1) * p.out;
        const int slices = linear_slices(rows, all_steps);
        while (1 << slices_log2 < slices) slices_log2++;
        steps = int(divide_up(all_steps, slices));
        inputs = steps * DEPTH;
        large = int64_t(rows) * p.in * int64_t(sizeof(bf16)) >= LARGE;
        outputs = (WARPS >> slices_log2) * OUTPUTS / (gated ? 2 : 1);
        if (steps > STAGES) way = STREAM;
        if (way == STREAM && !p.norm && 2 * divide_up(p.out, outputs) <= multiprocessors) {
            way = FEW;
            outputs /= 2;
        }
        stages = steps < STAGES ? steps : STAGES;
    }
};

/* A warp's place in the row: the slice of its inputs [begin, end), and which of the warps with this slice it
 * is. */
struct Place {
    int slice, tile, begin, end;

    __device__ Place(const Division &division, int in) {
        const int warp = int(threadIdx.x) / WARP;
        slice = warp & (1 << division.slices_log2) - 1;
        tile = warp >> division.slices_log2;
        begin = slice * division.inputs;
        end = max(begin, min(begin + division.inputs, in));
    }
};

/* Shared memory of a block: the ring, and x. If weights stream, x as it is; without a norm each warp then has
 * its own slice, so that it need not wait for other warps. Else x as right operands, of which row s is a chunk of
 * slice s. */
template <Norming NORM, Way WAY>
struct Layout {
    static constexpr bool OWN = WAY != RESIDENT && NORM == PLAIN;
    bf16 *ring, *x;

    __device__ Layout(void *memory, const Division &division, const Place &place) {
        ring = static_cast<bf16 *>(memory);
        x = ring + division.stages * WARPS * TILE<WAY>;
        if (OWN) x += int(threadIdx.x) / WARP * division.inputs - place.begin;
    }
    /* The place of an input, of this slice or of any. */
    __device__ bf16 *at(const Division &division, int input) const {
        const int inputs = division.inputs;
        return at(division, (input >= inputs) + (input >= 2 * inputs) + (input >= 3 * inputs), input);
    }
    __device__ bf16 *at(const Division &division, int slice, int input) const {
        if (WAY != RESIDENT) return x + input;
        const int within = input - slice * division.inputs;
        return x + within / DEPTH * CHUNK + eight_columns<DEPTH>(slice, within % DEPTH / N);
    }
    static int64_t bytes(const Division &division) {
        const int slices = OWN ? WARPS : 1 << division.slices_log2;
        const int64_t row = WAY == RESIDENT ? int64_t(division.steps) * CHUNK : slices * division.inputs;
        return (int64_t(division.stages) * WARPS * TILE<WAY> + row) * int64_t(sizeof(bf16));
    }
};

/* ---- x ---- */

/* This thread's packs of a row that has a norm: the thread stands for HALVES threads of its order, of which
 * each has EACH packs. */
template <Norming NORM, int EACH, int HALVES>
struct Normed {
    static constexpr int ALL_WARPS = HALVES * WARPS; // of the order, at most

    const Product<bf16> &p;
    const bf16 *from[EACH][HALVES]; // packs of x; NULL: none
    uint32_t to[EACH][HALVES];      // their places in shared memory
    Words weights[EACH][HALVES], biases[EACH][HALVES];
    uint32_t of_warps, own_sum; // sums of warps; that of this warp, in its first lane, or 0
    bf16 *kept;                 // of the first block, or NULL

    /* Reads only parameters. */
    template <class Layout>
    __device__ Normed(const Product<bf16> &p, const Division &division, const Place &, const Layout &layout)
        : p(p), kept(blockIdx.x == 0 ? p.kept : nullptr) {
        const norm_row::Order &order = division.norm;
        __shared__ alignas(16) float sums[2][ALL_WARPS];
        of_warps = shared_address(sums);
        own_sum = threadIdx.x % WARP == 0 ? shared_address(sums[0] + threadIdx.x / WARP) : 0;
        settle(of_warps, own_sum, kept);
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                const int thread = int(threadIdx.x) + half * THREADS, pack = thread + i * order.threads;
                const bool inside = thread < order.threads && pack < order.packs && i < order.each;
                from[i][half] = inside ? p.x + pack * N : nullptr;
                to[i][half] = shared_address(layout.at(division, pack * N));
                settle(from[i][half], to[i][half]);
                weights[i][half] = biases[i][half] = {};
                if (inside) weights[i][half] = load_words(p.norm + pack * N);
                if (NORM == LAYER && inside) biases[i][half] = load_words(p.norm_bias + pack * N);
            }
    }

    /* The sum over the row, from those of its threads; the first or second of a row. */
    __device__ float sum_threads(const float (&sums)[HALVES], int which) const {
        const uint32_t later = uint32_t(which * ALL_WARPS * sizeof(float));
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            const float sum = warp_sum(sums[half]); // of warps that the order does not have: 0
            if (own_sum) store_shared(own_sum + later + half * WARPS * int(sizeof(float)), sum);
        }
        __syncthreads();
        float all[HALVES][WARPS];
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            load_shared(of_warps + later + half * WARPS * int(sizeof(float)), all[half]);
        float sum = all[0][0];
#pragma unroll
        for (int w = 1; w < ALL_WARPS; w++) sum += all[w / WARPS][w % WARPS];
        return sum;
    }

    /* Puts norm(x) in shared memory. */
    __device__ void fetch() const {
        Words words[EACH][HALVES];
        float sums[HALVES] = {}, mean = 0.f, x[N];
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                words[i][half] = {};
                if (from[i][half]) words[i][half] = load_words(from[i][half]);
            }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                unpack<bf16>(words[i][half], x);
                sums[half] = norm_row::add_pack<NORM == RMS>(sums[half], x);
            }
        float squares = sum_threads(sums, 0);
        if constexpr (NORM == LAYER) {
            mean = squares * p.inverse;
            float centered[HALVES] = {};
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int half = 0; half < HALVES; half++) {
                    unpack<bf16>(words[i][half], x);
                    const float own_mean = from[i][half] ? mean : 0.f; // no pack: x is 0
                    centered[half] = norm_row::add_centered(centered[half], own_mean, x);
                }
            squares = sum_threads(centered, 1);
        }
        const float rstd = norm_row::rstd_of(squares, p.inverse, p.eps);
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int half = 0; half < HALVES; half++) {
                float weight[N], bias[N];
                if (!from[i][half]) continue;
                unpack<bf16>(words[i][half], x);
                unpack<bf16>(weights[i][half], weight);
                unpack<bf16>(biases[i][half], bias);
                norm_row::normalize<NORM == LAYER>(x, mean, rstd, weight, bias);
                const Words normed = packed<bf16>(x);
                store_shared(to[i][half], normed.w);
                if (kept) store_words(kept + (from[i][half] - p.x), normed);
            }
    }
};

/* Without a norm: puts the warp's slice of x in shared memory, or its part if other warps have the slice,
 * too. */
template <Way WAY>
struct Slice {
    static constexpr int STEP = WARP * N; // inputs

    const bf16 *from; // of this lane
    uint32_t to;
    int count; // inputs of the part, from this lane's first on

    template <class Layout>
    __device__ Slice(const Product<bf16> &p, const Division &division, const Place &place,
                     const Layout &layout) {
        const int tiles = Layout::OWN ? 1 : WARPS >> division.slices_log2;
        const int part = ((division.inputs + tiles - 1) / tiles + STEP - 1) / STEP * STEP;
        const int begin = place.begin + (Layout::OWN ? 0 : place.tile * part);
        const int first = begin + int(threadIdx.x) % WARP * N;
        from = p.x + first;
        to = shared_address(layout.at(division, place.slice, first));
        count = min(begin + part, place.end) - first;
        settle(from, to, count);
    }
    __device__ void fetch() const {
        constexpr int AHEAD = 4, BYTES = (WAY == RESIDENT ? CHUNK / DEPTH : 1) * int(sizeof(bf16));
#pragma unroll 1
        for (int first = 0; first < count; first += AHEAD * STEP) {
            Words words[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (first + i * STEP < count) words[i] = load_words(from + first + i * STEP);
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (first + i * STEP < count) store_shared(to + (first + i * STEP) * BYTES, words[i].w);
        }
    }
};

/* Zeros behind x, up to whole steps. */
template <class Layout>
__device__ inline void clear_rest(const Division &division, const Place &place, const Layout &layout) {
    const int end = place.begin + division.inputs;
    if (Layout::OWN || place.tile == 0)
        for (int at = place.end + int(threadIdx.x) % WARP * N; at < end; at += WARP * N)
            store_words(layout.at(division, place.slice, at), Words{});
}

} // namespace ordered
} // namespace decode
