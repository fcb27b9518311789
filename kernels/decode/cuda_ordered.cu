#include "kernels/decode/cuda_rows.cuh"

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/linear/cuda_activation.cuh"
#include "kernels/linear/cuda_fused.cuh"
#include "kernels/norm/cuda_row.cuh"

#include <type_traits>

/* Products of one row in bf16 by tensor cores, with the bits that the row has among others, which
 * FUSE_INVARIANT requires: x is normalized and rounded as kernels/norm does it, and sums have the order of
 * kernels/linear/cuda_tiles.cu. A tensor core adds 16 inputs at once to a sum. A warp has 16 outputs of one
 * slice of the inputs, and the same warps of a block the other slices.
 *
 * Weights wait in a ring of stages for x. Where the ring has all weights of a slice, the block is a warpgroup:
 * its four times 16 rows of weights are the rows of one product by wgmma, and the slices of x its columns, of
 * which each warp uses its own slice's. A longer slice streams through the ring, each warp's at its own pace,
 * by mma.sync, which adds in the same order.
 *
 * What follows the wait for the previous kernel is one chain of instructions, and no other warp hides its
 * latencies. So all that does not depend on x comes before the wait, and `settle` keeps it there. */
namespace decode {
namespace ordered { // a named namespace, because much of it is unused in builds for other GPUs

using namespace gpu;

constexpr int WARP = 32, WARPS = 4, THREADS = WARP * WARPS;
constexpr int OUTPUTS = 16, INPUTS = 16;              // of a warp's instruction
constexpr int DEPTH = LINEAR_SLICE_STEP, STAGES = 12; // inputs of a stage; most stages of a ring
constexpr int N = VECTOR<bf16>;                       // elements of a pack
constexpr int TILE = OUTPUTS * DEPTH;                 // a warp's part of a stage, in elements
constexpr int CHUNK = 8 * DEPTH;                      // DEPTH inputs of 8 slices of x: a right operand

static_assert(DEPTH == BLOCK_COLUMNS, "a row of a stage is a row of an operand");
static_assert(WARPS * WARP == WARPGROUP, "a block is a warpgroup");
static_assert(DEPTH % (2 * INPUTS) == 0, "a stage is whole pairs of instructions");

/* How a product is divided: its row's norm, the slices of its inputs, and its outputs. */
struct Division {
    norm_row::Order norm;
    int slices_log2, inputs, steps; // inputs of a slice, and its stages
    int stages;                     // of the ring
    int outputs_log2;               // of a warp: 16, or 8 and as many unused rows
    bool large;                     // the weights: the next kernel starts early to fetch its own

    Division(const Product<bf16> &p, bool gated, int multiprocessors)
        : norm(p.in / N), slices_log2(0), outputs_log2(3) {
        constexpr int64_t LARGE = 4 << 20; // bytes; measured
        const int all_steps = int(divide_up(p.in, DEPTH)), all_outputs = (gated ? 2 : 1) * p.out;
        const int slices = linear_slices(all_outputs, all_steps);
        while (1 << slices_log2 < slices) slices_log2++;
        steps = int(divide_up(all_steps, slices));
        inputs = steps * DEPTH;
        stages = steps < STAGES ? steps : STAGES;
        large = int64_t(all_outputs) * p.in * int64_t(sizeof(bf16)) >= LARGE;
        // the long rows of few outputs are spread over twice as many multiprocessors, which fetch them sooner
        const bool spread = streams() && blocks(p.out) <= multiprocessors;
        if (!gated && !spread) outputs_log2 = 4;
    }
    bool streams() const { return steps > STAGES; }
    int64_t blocks(int out) const { return divide_up(out, WARPS >> slices_log2 << outputs_log2); }

    /* outputs_log2, which most kernels know. */
    template <bool GATED, bool STREAM>
    __device__ int known_log2() const {
        return GATED ? 3 : STREAM ? outputs_log2 : 4;
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

/* Shared memory of a block: the ring, and x. With STREAM, x as it is; without a norm each warp then has its
 * own slice, so that it need not wait for other warps. Else x as right operands, of which row s is a chunk of
 * slice s. */
template <Norming NORM, bool STREAM>
struct Layout {
    static constexpr bool OWN = STREAM && NORM == PLAIN;
    bf16 *ring, *x;

    __device__ Layout(void *memory, const Division &division, const Place &place) {
        ring = static_cast<bf16 *>(memory);
        x = ring + division.stages * WARPS * TILE;
        if (OWN) x += int(threadIdx.x) / WARP * division.inputs - place.begin;
    }
    /* The place of an input, of this slice or of any. */
    __device__ bf16 *at(const Division &division, int input) const {
        const int inputs = division.inputs;
        return at(division, (input >= inputs) + (input >= 2 * inputs) + (input >= 3 * inputs), input);
    }
    __device__ bf16 *at(const Division &division, int slice, int input) const {
        if (STREAM) return x + input;
        const int within = input - slice * division.inputs;
        return x + within / DEPTH * CHUNK + eight_columns<DEPTH>(slice, within % DEPTH / N);
    }
    static int64_t bytes(const Division &division) {
        const int slices = OWN ? WARPS : 1 << division.slices_log2;
        const int64_t row = STREAM ? slices * division.inputs : int64_t(division.steps) * CHUNK;
        return (int64_t(division.stages) * WARPS * TILE + row) * int64_t(sizeof(bf16));
    }
};

/* ---- products ---- */

/* The weights of a block. A gated layer has 8 rows of the gate and the same 8 of up in turns. */
template <bool GATED>
struct Weights {
    const Product<bf16> &p;
    const Place &place;
    bf16 *ring;
    int output, outputs; // this warp's first, and their number

    /* A lane copies one pack of every fourth row; beyond the slice, zeros. */
    __device__ void start(int stage, int step) const {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP, pack = lane % 8;
        const int at = place.begin + step * DEPTH + pack * N;
        bf16 *const to = ring + (stage * WARPS + warp) * TILE;
#pragma unroll
        for (int i = 0; i < OUTPUTS; i += 4) {
            if (!GATED && i >= outputs) break;
            const int row = i + lane / 8, last = p.out - 1;
            const int of_weight =
                GATED ? min(output + row % 8, last) + (i < OUTPUTS / 2 ? 0 : p.out) : min(output + row, last);
            copy_async_16(to + eight_columns<DEPTH>(row, pack),
                          p.weight + int64_t(of_weight) * p.in + (at < place.end ? at : 0), at < place.end);
        }
    }
    __device__ void start_ring(int stages) const {
        for (int stage = 0; stage < STAGES; stage++) {
            if (stage < stages) start(stage, stage);
            copy_async_commit();
        }
    }
};

/* sums = those of rows g and g + 8 of this warp's weights, in lane 4 g + place.slice / 2, which has the
 * product's column place.slice. All weights are in the ring. */
template <bool GATED>
struct Resident {
    uint64_t weights, x; // operands
    int odd;             // whether the slice is the lane's second column

    __device__ Resident(const Weights<GATED> &of, const bf16 *x, const Place &place)
        : weights(rows_operand(of.ring)), x(rows_operand(x)), odd(place.slice % 2) {
        settle(odd);
    }
    __device__ void multiply(int steps, float (&sums)[2]) const {
        float c[1][4] = {};
        copy_async_wait();
        fence_async();
        __syncthreads();
        hold(c);
        uint64_t a = weights, b = x;
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            hold(c);
            products_begin();
#pragma unroll
            for (int k = 0; k < DEPTH; k += INPUTS)
                multiply_async<false, false>(c, advance(a, k * int(sizeof(bf16))),
                                             advance(b, k * int(sizeof(bf16))), true);
            a = advance(a, WARPS * TILE * int(sizeof(bf16)));
            b = advance(b, CHUNK * int(sizeof(bf16)));
            products_commit();
        }
        products_wait<0>();
        hold(c);
        sums[0] = odd ? c[0][1] : c[0][0];
        sums[1] = odd ? c[0][3] : c[0][2];
    }
};

/* The same for a slice that streams through this warp's part of the ring. All columns are its own. */
template <bool GATED>
struct Stream {
    const Weights<GATED> &of;
    uint32_t weights, x; // the lane's row of the first stage, and its part of x

    __device__ Stream(const Weights<GATED> &of, const bf16 *row, const Place &place) : of(of) {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        weights = shared_address(of.ring + warp * TILE + eight_columns<DEPTH>(lane % 16, lane / 16));
        x = shared_address(row + place.begin + lane / 8 * N);
        settle(weights, x);
    }
    __device__ void multiply(int steps, float (&sums)[2]) const {
        float c[4] = {};
        for (int step = 0, stage = 0; step < steps; step++) {
            const uint32_t a = weights + stage * WARPS * TILE * int(sizeof(bf16));
            const uint32_t b = x + step * DEPTH * int(sizeof(bf16));
            uint32_t left[DEPTH / INPUTS][4], right[DEPTH / INPUTS / 2][4];
            copy_async_wait_group<STAGES - 1>();
            __syncwarp();
#pragma unroll
            for (int k = 0; k < DEPTH / INPUTS; k++) load_matrices(left[k], a ^ 32 * k);
#pragma unroll
            for (int k = 0; k < DEPTH / INPUTS / 2; k++) load_matrices(right[k], b + 64 * k);
#pragma unroll
            for (int k = 0; k < DEPTH / INPUTS; k++)
                gpu::multiply(c, left[k], right[k / 2][k % 2 * 2], right[k / 2][k % 2 * 2 + 1], c);
            __syncwarp(); // until no lane reads the stage that the next copies overwrite
            if (step + STAGES < steps) of.start(stage, step + STAGES);
            copy_async_commit();
            stage = stage == STAGES - 1 ? 0 : stage + 1;
        }
        sums[0] = c[0], sums[1] = c[2];
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
template <bool STREAM>
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
        constexpr int AHEAD = 4, BYTES = STREAM ? int(sizeof(bf16)) : CHUNK / DEPTH * int(sizeof(bf16));
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

/* ---- outputs ---- */

/* The slices' sums of a block, and the output that a thread adds up from them. */
template <bool GATED>
struct Output {
    uint32_t own, parts; // where this lane puts its sums, or 0; the first slice's sum of the output
    int slices, activation, logits;
    void *y; // NULL: none
    const bf16 *skips;
    float biases[2];
    bf16 skip; // becomes a float where it is needed, or else its load would be awaited earlier

    /* Reads only parameters. */
    __device__ Output(const Product<bf16> &p, const Division &division, int log2, int slice, int first)
        : activation(p.activation) {
        __shared__ float sums[WARPS][OUTPUTS];
        const int thread = int(threadIdx.x), lane = thread % WARP, at = first + thread;
        const bool writes = thread < WARPS >> division.slices_log2 << log2 && at < p.out;
        own = lane % 4 == slice / 2 ? shared_address(sums[thread / WARP] + lane / 4) : 0;
        parts = shared_address(sums[thread >> log2 << division.slices_log2 & WARPS - 1] +
                               (thread & (1 << log2) - 1));
        slices = 1 << division.slices_log2;
        logits = p.logits != nullptr;
        y = !writes ? nullptr : logits ? static_cast<void *>(p.logits + at) : p.y + at;
        skips = writes && p.skip ? p.skip + at : nullptr;
        skip = from_float<bf16>(-0.f); // which changes no sum
        settle(own, parts, slices, activation, logits, y, skips);
        for (int m = 0; m < 2; m++)
            biases[m] = writes && p.bias && m <= GATED ? to_float(p.bias[at + m * p.out]) : -0.f;
    }

    __device__ void load_skip() {
        if (skips) skip = *skips;
    }

    /* From the sums of this warp's slice, writes the output with bias, activation and skip. The skip is added
     * as the next norm would add it. */
    __device__ void write(const float (&own_sums)[2]) const {
        constexpr int ROW = OUTPUTS * int(sizeof(float)), HALF = ROW / 2;
        if (own) store_shared(own, own_sums[0]), store_shared(own + HALF, own_sums[1]);
        __syncthreads();
        if (!y) return;
        float z[2][WARPS];
#pragma unroll
        for (int s = 0; s < WARPS; s++)
            if (s < slices)
                for (int m = 0; m <= GATED; m++) z[m][s] = load_shared(parts + s * ROW + m * HALF);
#pragma unroll
        for (int s = 1; s < WARPS; s++)
            if (s < slices)
                for (int m = 0; m <= GATED; m++) z[m][0] += z[m][s];
        float sum = z[0][0] + biases[0];
        if constexpr (GATED)
            sum = gated(sum, z[1][0] + biases[1]);
        else
            sum = activated_by(activation, sum);
        if (logits)
            *static_cast<float *>(y) = sum;
        else
            *static_cast<bf16 *>(y) = from_float<bf16>(to_float(from_float<bf16>(sum)) + to_float(skip));
    }
};

/* Floor: out * in * sizeof(bf16) bytes. */
/* Anatomy. Parallel: over 16 outputs per warp and up to 4 slices of the inputs. Launch: outputs * slices / 64
 * blocks of 128. Holds: 38 to 80 registers, for wide norms 255 and some spill, 9 to 224 KiB shared.
 * Occupancy: shared memory; 2 to 12 blocks per multiprocessor. Reads: 16 bytes per copy, 128 bytes of each of
 * 4 rows, up to 24 KiB per warp in flight before the wait. Syncs: 2 to 4 barriers of the block. Fusion: the
 * next product, by a barrier of the grid. */
template <bool GATED, Norming NORM, int EACH, int HALVES, bool STREAM>
__global__ void __launch_bounds__(THREADS, 2)
    ordered_kernel(const __grid_constant__ Product<bf16> p, const __grid_constant__ Division division) {
    typedef std::conditional_t<STREAM, Stream<GATED>, Resident<GATED>> Products;
    typedef std::conditional_t<NORM == PLAIN, Slice<STREAM>, Normed<NORM, EACH, HALVES>> Input;
    if constexpr (HOPPER) {
        extern __shared__ __align__(1024) uint8_t shared_memory[];
        const bool last_to_start = p.first || p.logits; // the next kernel only after this one's wait
        if (!last_to_start && division.large) let_next_start();
        const Place place(division, p.in);
        const Layout<NORM, STREAM> layout(shared_memory, division, place);
        const int log2 = division.known_log2<GATED, STREAM>(); // of a warp's outputs
        const int first = int(blockIdx.x) * (WARPS >> division.slices_log2 << log2);
        const Weights<GATED> weights = {p, place, layout.ring, first + (place.tile << log2), 1 << log2};
        weights.start_ring(division.stages);
        clear_rest(division, place, layout);
        const Products products(weights, layout.x, place);
        const Input input(p, division, place, layout);
        Output<GATED> output(p, division, log2, STREAM ? 0 : place.slice, first);
        int steps = division.steps;
        settle(steps);
        if (!last_to_start && !division.large) let_next_start();
        wait_for_previous();
        if (last_to_start) let_next_start();
        if constexpr (NORM == PLAIN) output.load_skip();
        input.fetch();
        if constexpr (Layout<NORM, STREAM>::OWN)
            __syncwarp();
        else if constexpr (STREAM)
            __syncthreads();
        float sums[2];
        products.multiply(steps, sums);
        output.write(sums);
    }
}

template <bool GATED, Norming NORM, int EACH, int HALVES, bool STREAM>
Status launch(Ctx *ctx, const Product<bf16> &p, const Division &division) {
    return LAUNCH_EARLY(ctx, (ordered_kernel<GATED, NORM, EACH, HALVES, STREAM>),
                        unsigned(division.blocks(p.out)), THREADS,
                        size_t(Layout<NORM, STREAM>::bytes(division)), p, division);
}

template <bool GATED, Norming NORM, int EACH, int HALVES>
Status launch_steps(Ctx *ctx, const Product<bf16> &p, const Division &division) {
    return division.streams() ? launch<GATED, NORM, EACH, HALVES, true>(ctx, p, division)
                              : launch<GATED, NORM, EACH, HALVES, false>(ctx, p, division);
}

template <bool GATED, Norming NORM>
Status launch_norm(Ctx *ctx, const Product<bf16> &p, const Division &division) {
    constexpr int BOTH = norm_row::THREADS_MOST / THREADS;
    const norm_row::Order &order = division.norm;
    if (order.each > 1) return launch<GATED, NORM, norm_row::EACH_MOST, BOTH, true>(ctx, p, division);
    return order.threads > THREADS ? launch_steps<GATED, NORM, 1, BOTH>(ctx, p, division)
                                   : launch_steps<GATED, NORM, 1, 1>(ctx, p, division);
}

} // namespace ordered
using namespace ordered;

bool product_has_order(int64_t in) {
    constexpr int64_t MOST = 16384; // of which each warp of a block has a row
    return in % N == 0 && in <= MOST && norm_row::Order(int(in / N)).fits();
}

Status product_in_order(Ctx *ctx, const Product<bf16> &p, bool gated) {
    const Division division(p, gated, cuda_device(ctx)->multiprocessors);
    if (gated) return launch_norm<true, RMS>(ctx, p, division);
    if (p.norm_bias) return launch_norm<false, LAYER>(ctx, p, division);
    return p.norm ? launch_norm<false, RMS>(ctx, p, division)
                  : launch_steps<false, PLAIN, 1, 1>(ctx, p, division);
}

} // namespace decode
