#include "kernels/decode/cuda_rows.cuh"

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/linear/cuda_activation.cuh"
#include "kernels/norm/cuda_row.cuh"

/* Products of one row by codes of 8 bits. Every block rounds x to codes, too, in shared memory, while weights
 * wait in a ring of stages. A lane reads only codes of weights that it has copied itself. */
namespace decode {
namespace {

using namespace gpu;

constexpr int WARP = 32, WARPS = 8, THREADS = WARP * WARPS;
constexpr int LANES = 16, ROWS = 4, FOUR = 4;  // lanes that share a tile; rows and columns of a lane
constexpr int TILES = WARP / LANES;            // tiles, of neighbouring groups, that a warp reads at once
constexpr int TILE_BYTES = GROUP * GROUP_ROWS; // of I8 (base/groups.h)
constexpr int READS = 4, STAGES = 4;           // of a stage; of a warp's ring
constexpr int BLOCKS_EACH = 2;                 // most blocks per multiprocessor

/* A warp's part of a row of tiles, or a piece of this part: every WARPS-th TILES of the row, with scales. */
struct Stage {
    Words codes[READS][WARP]; // word r: four codes of the lane's row r
    bf16 scales[READS * TILES][GROUP_ROWS];
};
constexpr int READ_GROUPS = WARPS * TILES, STEP_GROUPS = READS * READ_GROUPS; // of all warps

/* How a product is divided. */
struct Division {
    int steps, stages, blocks; // stages of a row of tiles; of a ring, for each matrix

    Division(int in, int out, int matrices, int multiprocessors) {
        const int tiles = out / GROUP_ROWS, most = multiprocessors * BLOCKS_EACH;
        blocks = tiles < most ? tiles : most;
        steps = int(divide_up(in / GROUP, STEP_GROUPS));
        const int64_t all = steps * divide_up(tiles, blocks);
        stages = int(all < STAGES / matrices ? all : STAGES / matrices);
    }
};

/* The weights of a block: each warp's stages in the order of their use. */
template <int MATRICES>
struct Weights {
    static constexpr int DEPTH = STAGES / MATRICES; // of the ring, if it has so many

    Stage *ring;            // of this warp: [stages][MATRICES]
    const int8_t *codes;    // of this lane in row 0 of tiles
    const bf16 *scales;     // the same; only the first READS * TILES lanes copy them
    int group, scale_group; // of these
    int groups, tiles, steps;
    int tile, step; // of the next copy

    template <class T>
    __device__ Weights(const Product<T> &p, const Division &division, Stage *rings)
        : groups(p.in / GROUP), tiles(p.out / GROUP_ROWS), steps(division.steps), tile(int(blockIdx.x)),
          step(0) {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        ring = rings + warp * division.stages * MATRICES;
        group = warp * TILES + lane / LANES;
        scale_group = lane / TILES * READ_GROUPS + warp * TILES + lane % TILES;
        codes = p.codes + group * TILE_BYTES + lane % LANES * int(sizeof(Words));
        scales = p.scales + scale_group * GROUP_ROWS;
        for (int stage = 0; stage < DEPTH; stage++) start(stage);
    }

    /* Starts the next copy, if one is left; beyond the row, zeros. */
    __device__ void start(int stage) {
        const int lane = int(threadIdx.x) % WARP, first = step * STEP_GROUPS;
        if (tile < tiles) {
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                Stage &to = ring[stage * MATRICES + m];
                const int64_t at = int64_t(tile + m * tiles) * groups + first;
#pragma unroll
                for (int i = 0; i < READS; i++)
                    copy_async_16(&to.codes[i][lane], codes + (at + i * READ_GROUPS) * TILE_BYTES,
                                  first + group + i * READ_GROUPS < groups);
                if (lane < READS * TILES)
                    copy_async_16(to.scales[lane], scales + at * GROUP_ROWS, first + scale_group < groups);
            }
            if (++step == steps) step = 0, tile += int(gridDim.x);
        }
        copy_async_commit();
    }
};

/* ---- x ---- */

constexpr int LARGE = 0x4b400000; // of the float 3 * 2^22, whose last digits an integer becomes

/* Four values as codes. */
__device__ inline uint32_t codes_of(const float *x, float inverse) {
    uint32_t codes[FOUR];
#pragma unroll
    for (int e = 0; e < FOUR; e++) codes[e] = __float_as_uint(fmaf(x[e], inverse, __int_as_float(LARGE)));
    return __byte_perm(__byte_perm(codes[0], codes[1], 0x0040), __byte_perm(codes[2], codes[3], 0x0040),
                       0x5410);
}

/* 127 / x; 0 below 2^-120, where 1 / x would overflow. Of a quarter of x, the reciprocal is normal. */
__device__ inline float codes_per_unit(float x) {
    const float inverse = reciprocal(x * 0.25f);
    return x >= 0x1p-120f ? inverse * (127.f / 4) : 0.f;
}

/* x, times the norm's weight, rounded to 8 bits by groups, as kernels/linear/cpu_groups.c rounds it. A thread
 * has eight neighbours at a time, and AHEAD times as many are on their way. Of the first of these, the norm's
 * weights are loaded before the wait. */
template <class T, bool NORM, int AHEAD>
struct Rounding {
    static constexpr int EIGHT = 8, STEP = THREADS * EIGHT, PARTS = EIGHT / VECTOR<T>;
    typedef Words Packs[AHEAD][PARTS];

    const T *x, *norm;           // from this thread's first neighbours on
    uint32_t to_words, to_scale; // their places; the second 0 but in the first thread of a group
    int left;                    // inputs from there on
    Packs weights;

    /* Rounded words are at `words`: (in / FOUR), four codes each; scales, (in / GROUP), at `scales`. */
    __device__ Rounding(const Product<T> &p, uint32_t words, uint32_t scales) {
        const int column = int(threadIdx.x) * EIGHT;
        x = p.x + column, norm = p.norm + column;
        left = p.in - column;
        to_words = words + column;
        to_scale = column % GROUP == 0 ? scales + column / GROUP * int(sizeof(float)) : 0;
        settle(x, to_words, to_scale, left);
        if (NORM) load(weights, norm, 0);
    }
    __device__ void load(Packs &to, const T *from, int first) const {
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
#pragma unroll
            for (int k = 0; k < PARTS; k++) {
                to[a][k] = {};
                if (first + a * STEP < left) to[a][k] = load_words(from + first + a * STEP + k * VECTOR<T>);
            }
    }
    __device__ static void unpack_eight(const Words (&words)[PARTS], float (&values)[EIGHT]) {
#pragma unroll
        for (int k = 0; k < PARTS; k++) {
            float some[VECTOR<T>];
            unpack<T>(words[k], some);
#pragma unroll
            for (int e = 0; e < VECTOR<T>; e++) values[k * VECTOR<T> + e] = some[e];
        }
    }

    /* Rounds all of x; returns the thread's sum of the squares before the norm. */
    __device__ float round(int in) {
        float squares = 0.f;
#pragma unroll 1
        for (int first = 0; first < in; first += AHEAD * STEP) {
            Packs packs;
            float values[AHEAD][EIGHT], most[AHEAD];
            load(packs, x, first);
            if (NORM && first > 0) load(weights, norm, first);
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                unpack_eight(packs[a], values[a]);
                if (NORM) {
                    float factors[EIGHT];
                    unpack_eight(weights[a], factors);
                    squares = norm_row::add_pack<true>(squares, values[a]);
#pragma unroll
                    for (int e = 0; e < EIGHT; e++) values[a][e] *= factors[e];
                }
                most[a] = 0.f;
#pragma unroll
                for (int e = 0; e < EIGHT; e++) most[a] = fmaxf(most[a], fabsf(values[a][e]));
            }
#pragma unroll
            for (int distance = GROUP / EIGHT / 2; distance > 0; distance /= 2)
#pragma unroll
                for (int a = 0; a < AHEAD; a++)
                    most[a] = fmaxf(most[a], __shfl_xor_sync(~0u, most[a], distance));
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const int at = first + a * STEP;
                const float inverse = codes_per_unit(most[a]);
                if (at >= left) break;
                store_shared(to_words + at,
                             {codes_of(values[a], inverse), codes_of(values[a] + FOUR, inverse)});
                if (to_scale) store_shared(to_scale + at / GROUP * int(sizeof(float)), most[a] * (1.f / 127));
            }
        }
        return squares;
    }
};

/* ---- products ---- */

/* Adds the products of a lane's codes with its four inputs, each row's times the two scales. */
__device__ inline void add_products(const uint32_t (&codes)[ROWS], const uint32_t (&scales)[ROWS / 2],
                                    uint32_t x, float x_scale, float (&sums)[ROWS]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float scale = __uint_as_float(r % 2 ? scales[r / 2] & 0xffff0000u : scales[r / 2] << 16);
        const int sum = __dp4a(int(codes[r]), int(x), LARGE);
        sums[r] = fmaf(__int_as_float(sum) - __int_as_float(LARGE), scale * x_scale, sums[r]);
    }
}

/* What a lane reads of shared memory for its sums: of the first stage of the ring, and of the inputs. */
struct Operands {
    uint32_t codes, scales, x, x_scales;

    __device__ Operands(const Stage *ring, uint32_t words, uint32_t x_scales_at) {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        const int tile = lane / LANES, group = warp * TILES + tile;
        codes = shared_address(&ring->codes[0][lane]);
        scales = shared_address(ring->scales[tile] + lane % 2 * ROWS);
        x = words + group * GROUP + lane % LANES / 2 * FOUR;
        x_scales = x_scales_at + group * int(sizeof(float));
        settle(codes, scales, x, x_scales);
    }

    /* Adds stage `step` of a row of tiles. */
    template <int MATRICES>
    __device__ void add(int step, int stage, float (&sums)[MATRICES][ROWS]) const {
        const uint32_t of_ring = uint32_t(stage * MATRICES * int(sizeof(Stage)));
#pragma unroll
        for (int i = 0; i < READS; i++) {
            const int group = step * STEP_GROUPS + i * READ_GROUPS;
            const uint32_t input = load_shared_word(x + group * GROUP);
            const float x_scale = load_shared(x_scales + group * int(sizeof(float)));
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                const uint32_t at = of_ring + m * int(sizeof(Stage));
                uint32_t code[ROWS], scale[ROWS / 2];
                load_shared(codes + at + i * WARP * int(sizeof(Words)), code);
                load_shared(scales + at + i * TILES * GROUP_ROWS * int(sizeof(bf16)), scale);
                add_products(code, scale, input, x_scale, sums[m]);
            }
        }
    }
};

/* Sums each row over the lanes that share it; afterwards a lane has one row, and four lanes the same one. */
__device__ inline float sum_rows(const float (&sums)[ROWS]) {
    const int lane = int(threadIdx.x) % WARP;
    const bool upper = lane & 16, odd = lane & 8;
    const float first = (upper ? sums[2] : sums[0]) + __shfl_xor_sync(~0u, upper ? sums[0] : sums[2], 16);
    const float second = (upper ? sums[3] : sums[1]) + __shfl_xor_sync(~0u, upper ? sums[1] : sums[3], 16);
    float sum = (odd ? second : first) + __shfl_xor_sync(~0u, odd ? first : second, 8);
    sum += __shfl_xor_sync(~0u, sum, 4);
    return sum + __shfl_xor_sync(~0u, sum, 2);
}
/* The row of a tile of which a lane then has the sum. */
__device__ inline int row_of(int lane) {
    return lane % 2 * ROWS + lane / 16 * 2 + lane / 8 % 2;
}

/* ---- outputs ---- */

/* The output of a tile that a thread, one of the first GROUP_ROWS, adds up from the sums of all warps. */
template <class T, bool GATED, bool NORM>
struct Output {
    static constexpr int MATRICES = GATED ? 2 : 1, ROW = GROUP_ROWS * int(sizeof(float));

    const Product<T> &p;
    uint32_t own, own_square; // where this lane puts its sums, or 0
    uint32_t parts, squares;  // the first warp's
    int at;                   // the output, or p.out: none
    const T *skips;           // its skip, or NULL
    T biases[2], skip; // become floats where they are needed, or else their loads would be awaited earlier

    __device__ explicit Output(const Product<T> &p) : p(p) {
        __shared__ float sums[2][MATRICES][WARPS][GROUP_ROWS], of_warps[WARPS];
        const int thread = int(threadIdx.x), warp = thread / WARP, lane = thread % WARP;
        own = (lane & 6) == 0 ? shared_address(&sums[0][0][warp][row_of(lane)]) : 0;
        own_square = lane == 0 ? shared_address(of_warps + warp) : 0;
        parts = shared_address(&sums[0][0][0][thread % GROUP_ROWS]);
        squares = shared_address(of_warps);
        at = thread < GROUP_ROWS ? int(blockIdx.x) * GROUP_ROWS + thread : p.out;
        skips = p.skip && at < p.out ? p.skip + at : nullptr;
        settle(own, own_square, parts, squares, at, skips);
        load_biases();
    }

    __device__ void load_biases() {
        biases[0] = biases[1] = skip = from_float<T>(-0.f); // which changes no sum
        for (int m = 0; m < MATRICES; m++)
            if (p.bias && at < p.out) biases[m] = p.bias[at + m * p.out];
    }
    __device__ void load_skip() {
        if (!GATED && skips) skip = *skips;
    }
    /* On to the block's next tile. */
    __device__ void next() {
        const int step = int(gridDim.x) * GROUP_ROWS;
        at = at < p.out - step ? at + step : p.out;
        skips = skips && at < p.out ? skips + step : nullptr;
        load_biases();
        load_skip();
    }
    __device__ void keep_square(float of_thread) const {
        const float sum = warp_sum(of_thread);
        if (own_square) store_shared(own_square, sum);
    }

    /* From the lanes' sums; `buffer`, 0 or 1, is not that of the tile before. */
    __device__ void write(const float (&sums)[MATRICES][ROWS], int buffer) const {
        const uint32_t first = uint32_t(buffer * MATRICES * WARPS * ROW);
        float y[2] = {}, of_warps[MATRICES][WARPS], rstd = 1.f;
#pragma unroll
        for (int m = 0; m < MATRICES; m++) {
            const float sum = sum_rows(sums[m]);
            if (own) store_shared(own + first + m * WARPS * ROW, sum);
        }
        __syncthreads();
        if (at >= p.out) return;
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                of_warps[m][w] = load_shared(parts + first + (m * WARPS + w) * ROW);
        if (NORM) {
            float square[WARPS], sum = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) square[w] = load_shared(squares + w * int(sizeof(float)));
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += square[w];
            rstd = norm_row::rstd_of(sum, p.inverse, p.eps);
        }
#pragma unroll
        for (int m = 0; m < MATRICES; m++) {
#pragma unroll
            for (int w = 0; w < WARPS; w++) y[m] += of_warps[m][w];
            y[m] = fmaf(y[m], rstd, to_float(biases[m]));
        }
        if (GATED) {
            const float gate = to_float(from_float<T>(y[0])), up = to_float(from_float<T>(y[1]));
            p.y[at] = from_float<T>(silu(gate) * up);
            return;
        }
        y[0] += to_float(skip);
        if (p.logits)
            p.logits[at] = y[0];
        else
            p.y[at] = from_float<T>(y[0]);
    }
};

/* Floor: out * in bytes of codes and 1/16 of it for scales. */
/* Anatomy. Parallel: over tiles of 8 outputs, one or more per block; warps over the inputs. Launch: outputs /
 * 8 blocks of 256, at most 2 per multiprocessor. Holds: 64 to 125 registers, 17 to 68 KiB shared and inputs *
 * 9 / 8 bytes. Occupancy: its bounds; 25% of the warps. Reads: 16 bytes per copy, 512 neighbouring bytes per
 * warp, up to 68 KiB per block before the wait. Syncs: a barrier of the block, and one per tile. Fusion: the
 * next product, by a barrier of the grid. */
template <class T, bool GATED, bool NORM, int AHEAD>
__global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    groups_kernel(const __grid_constant__ Product<T> p, const __grid_constant__ Division division) {
    constexpr int MATRICES = GATED ? 2 : 1;
    typedef Weights<MATRICES> W;
    extern __shared__ uint4 shared_memory[];
    const bool last_to_start = p.last_to_start();
    if (!last_to_start) let_next_start();
    Stage *const rings = reinterpret_cast<Stage *>(shared_memory);
    float *const x_scales = reinterpret_cast<float *>(rings + WARPS * MATRICES * division.stages);
    const uint32_t scales_at = shared_address(x_scales);
    const uint32_t words_at = scales_at + division.steps * STEP_GROUPS * int(sizeof(float));
    // products of what lies beyond the row are 0 times this
    for (int i = p.in / GROUP + int(threadIdx.x); i < division.steps * STEP_GROUPS; i += THREADS)
        x_scales[i] = 0.f;
    Rounding<T, NORM, AHEAD> rounding(p, words_at, scales_at);
    const Operands operands(rings + int(threadIdx.x) / WARP * division.stages * MATRICES, words_at,
                            scales_at);
    Output<T, GATED, NORM> output(p);
    W weights(p, division, rings);
    wait_for_previous();
    if (last_to_start) let_next_start();
    output.load_skip();
    const float squares = rounding.round(p.in);
    if (NORM) output.keep_square(squares);
    __syncthreads();
    int stage = 0, buffer = 0;
    for (int tile = int(blockIdx.x); tile < weights.tiles; tile += int(gridDim.x), buffer ^= 1) {
        float sums[MATRICES][ROWS] = {};
        for (int step = 0; step < weights.steps; step++) {
            copy_async_wait_group<W::DEPTH - 1>();
            __syncwarp(); // until the lanes that copied scales have waited, too
            operands.add(step, stage, sums);
            __syncwarp(); // until no lane reads the stage that the next copies overwrite
            weights.start(stage);
            stage = stage == W::DEPTH - 1 ? 0 : stage + 1;
        }
        output.write(sums, buffer);
        output.next();
    }
}

template <class T, bool GATED, bool NORM, int AHEAD>
Status launch(Ctx *ctx, const Product<T> &p) {
    constexpr int MATRICES = GATED ? 2 : 1;
    const Division division(p.in, p.out, MATRICES, cuda_device(ctx)->multiprocessors);
    const size_t x = size_t(division.steps) * STEP_GROUPS * (GROUP + sizeof(float));
    return LAUNCH_EARLY(ctx, (groups_kernel<T, GATED, NORM, AHEAD>), unsigned(division.blocks), THREADS,
                        sizeof(Stage) * WARPS * MATRICES * size_t(division.stages) + x, p, division);
}

template <class T, bool GATED, bool NORM>
Status launch_inputs(Ctx *ctx, const Product<T> &p) {
    return p.in > Rounding<T, NORM, 1>::STEP ? launch<T, GATED, NORM, 4>(ctx, p)
                                             : launch<T, GATED, NORM, 1>(ctx, p);
}

template <class T>
Status choose(Ctx *ctx, const Product<T> &p, bool gated) {
    if (gated) return launch_inputs<T, true, true>(ctx, p);
    return p.norm ? launch_inputs<T, false, true>(ctx, p) : launch_inputs<T, false, false>(ctx, p);
}

} // namespace

Status product_by_groups(Ctx *ctx, const Product<float> &p, bool gated) {
    return choose(ctx, p, gated);
}
Status product_by_groups(Ctx *ctx, const Product<bf16> &p, bool gated) {
    return choose(ctx, p, gated);
}

} // namespace decode
