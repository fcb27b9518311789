#include "kernels/decode/cuda_ordered.cuh"

#include "kernels/linear/cuda_activation.cuh"

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
namespace ordered {

/* ---- products ---- */

/* The weights of a block. A gated layer has 8 rows of the gate and the same 8 of up in turns. */
template <bool GATED, Way WAY>
struct Weights {
    const Product<bf16> &p;
    const Place &place;
    bf16 *ring;
    int output; // this warp's first

    /* A lane copies one pack of every fourth row; beyond the slice, zeros. */
    __device__ void start(int stage, int step) const {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP, pack = lane % 8;
        const int at = place.begin + step * DEPTH + pack * N;
        bf16 *const to = ring + (stage * WARPS + warp) * TILE<WAY>;
#pragma unroll
        for (int i = 0; i < ROWS<WAY>; i += 4) {
            const int row = i + lane / 8, last = p.out - 1;
            const int of_weight = GATED ? min(output + row % 8, last) + (i < ROWS<WAY> / 2 ? 0 : p.out)
                                        : min(output + row, last);
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
    typedef ordered::Weights<GATED, RESIDENT> Weights;

    uint64_t weights, x; // operands
    int odd;             // whether the slice is the lane's second column

    __device__ Resident(const Weights &of, const bf16 *x, const Place &place)
        : weights(rows_operand(of.ring)), x(rows_operand(x)), odd(place.slice % 2) {
        settle(odd);
    }
    __device__ void multiply(int steps, float (&sums)[2]) const {
        float c[1][4] = {};
        copy_async_wait();
        fence_async();
        __syncthreads();
        uint64_t a = weights, b = x;
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            hold(c);
            products_begin();
#pragma unroll
            for (int k = 0; k < DEPTH; k += INPUTS)
                multiply_async<false, false>(c, advance(a, k * int(sizeof(bf16))),
                                             advance(b, k * int(sizeof(bf16))), true);
            a = advance(a, WARPS * TILE<RESIDENT> * int(sizeof(bf16)));
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
template <bool GATED, Way WAY>
struct Stream {
    typedef ordered::Weights<GATED, WAY> Weights;
    const Weights &of;
    uint32_t weights, x; // the lane's row of the first stage, and its part of x

    __device__ Stream(const Weights &of, const bf16 *row, const Place &place) : of(of) {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        weights =
            shared_address(of.ring + warp * TILE<WAY> + eight_columns<DEPTH>(lane % ROWS<WAY>, lane / 16));
        x = shared_address(row + place.begin + lane / 8 * N);
        settle(weights, x);
    }
    __device__ void multiply(int steps, float (&sums)[2]) const {
        float c[4] = {};
        for (int step = 0, stage = 0; step < steps; step++) {
            const uint32_t a = weights + stage * WARPS * TILE<WAY> * int(sizeof(bf16));
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

/* ---- outputs ---- */

/* The slices' sums of a block, and the output that a thread adds up from them. */
template <bool GATED, Way WAY>
struct Output {
    static constexpr int EACH = GATED ? OUTPUTS / 2 : ROWS<WAY>; // of a warp

    uint32_t own, parts; // where this lane puts its sums, or 0; the first slice's sum of the output
    int slices, activation, logits;
    void *y; // NULL: none
    const bf16 *skips;
    float biases[2];
    bf16 skip; // becomes a float where it is needed, or else its load would be awaited earlier

    /* Reads only parameters. */
    __device__ Output(const Product<bf16> &p, const Division &division, int slice)
        : activation(p.activation) {
        __shared__ float sums[WARPS][OUTPUTS];
        const int thread = int(threadIdx.x), lane = thread % WARP;
        const int at = int(blockIdx.x) * division.outputs + thread;
        const bool writes = thread < division.outputs && at < p.out;
        own = lane % 4 == slice / 2 ? shared_address(sums[thread / WARP] + lane / 4) : 0;
        parts = shared_address(sums[thread / EACH << division.slices_log2 & WARPS - 1] + thread % EACH);
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
template <bool GATED, Norming NORM, int EACH, int HALVES, Way WAY>
__global__ void __launch_bounds__(THREADS, 2)
    ordered_kernel(const __grid_constant__ Product<bf16> p, const __grid_constant__ Division division) {
    typedef std::conditional_t<WAY == RESIDENT, Resident<GATED>, Stream<GATED, WAY>> Products;
    typedef std::conditional_t<NORM == PLAIN, Slice<WAY>, Normed<NORM, EACH, HALVES>> Input;
    typedef Output<GATED, WAY> Outputs;
    if constexpr (HOPPER) {
        extern __shared__ __align__(1024) uint8_t shared_memory[];
        const bool last_to_start = p.last_to_start();
        if (!last_to_start && division.large) let_next_start();
        const Place place(division, p.in);
        const Layout<NORM, WAY> layout(shared_memory, division, place);
        const Weights<GATED, WAY> weights = {p, place, layout.ring,
                                             int(blockIdx.x) * division.outputs + place.tile * Outputs::EACH};
        weights.start_ring(division.stages);
        clear_rest(division, place, layout);
        const Products products(weights, layout.x, place);
        const Input input(p, division, place, layout);
        Outputs output(p, division, WAY == RESIDENT ? place.slice : 0);
        int steps = division.steps;
        settle(steps);
        if (!last_to_start && !division.large) let_next_start();
        wait_for_previous();
        if (last_to_start) let_next_start();
        if constexpr (NORM == PLAIN) output.load_skip();
        input.fetch();
        if constexpr (Layout<NORM, WAY>::OWN)
            __syncwarp();
        else if constexpr (WAY != RESIDENT)
            __syncthreads();
        float sums[2];
        products.multiply(steps, sums);
        output.write(sums);
    }
}

/* The least shared memory that a block asks for, so that the blocks of a kernel come to different
 * multiprocessors. Kernels start long before their turn, as soon as earlier ones leave room. Without this limit,
 * several blocks of a kernel fill a multiprocessor that becomes free, and slow each other down in their turn,
 * while other multiprocessors have none. Where a layer's weights leave a third of all shared memory free, a
 * kernel with at most one block for each multiprocessor asks for half of one, and a kernel with two for a sixth.
 * Where the weights just fit, more kernels need room at once. Measured with GPT-2 and SmolLM2 (the first case),
 * Qwen2.5-0.5B (the second) and Llama-3.2-1B (neither). */
int64_t least_bytes(const Product<bf16> &p, int64_t blocks, int multiprocessors) {
    constexpr int64_t EACH = 228 << 10; // bytes of a multiprocessor
    const int64_t all = EACH * multiprocessors, share = divide_up(blocks, multiprocessors);
    if (p.layer_bytes < all * 2 / 3) return share == 1 ? EACH / 2 : share == 2 ? EACH / 6 : 0;
    return p.layer_bytes < all * 4 / 3 && share == 1 ? EACH * 3 / 8 : 0;
}

template <bool GATED, Norming NORM, int EACH, int HALVES, Way WAY>
Status launch(Ctx *ctx, const Product<bf16> &p, const Division &division) {
    const int64_t blocks = divide_up(p.out, division.outputs), own = Layout<NORM, WAY>::bytes(division);
    const int64_t least = least_bytes(p, blocks, cuda_device(ctx)->multiprocessors);
    return LAUNCH_EARLY(ctx, (ordered_kernel<GATED, NORM, EACH, HALVES, WAY>), unsigned(blocks), THREADS,
                        size_t(own > least ? own : least), p, division);
}

template <bool GATED, Norming NORM, int EACH, int HALVES>
Status launch_way(Ctx *ctx, const Product<bf16> &p, const Division &division) {
    if constexpr (NORM == PLAIN)
        if (division.way == FEW) return launch<GATED, NORM, EACH, HALVES, FEW>(ctx, p, division);
    return division.way == STREAM ? launch<GATED, NORM, EACH, HALVES, STREAM>(ctx, p, division)
                                  : launch<GATED, NORM, EACH, HALVES, RESIDENT>(ctx, p, division);
}

template <bool GATED, Norming NORM>
Status launch_norm(Ctx *ctx, const Product<bf16> &p, const Division &division) {
    constexpr int BOTH = norm_row::THREADS_MOST / THREADS;
    const norm_row::Order &order = division.norm;
    if (order.each > 1) return launch<GATED, NORM, norm_row::EACH_MOST, BOTH, STREAM>(ctx, p, division);
    return order.threads > THREADS ? launch_way<GATED, NORM, 1, BOTH>(ctx, p, division)
                                   : launch_way<GATED, NORM, 1, 1>(ctx, p, division);
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
                  : launch_way<false, PLAIN, 1, 1>(ctx, p, division);
}

} // namespace decode
