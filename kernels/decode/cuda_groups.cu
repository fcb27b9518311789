#include "kernels/decode/cuda_rows.cuh"

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/linear/cuda_activation.cuh"
#include "kernels/norm/cuda_row.cuh"

/* Products of one row by codes of 8 bits. Every block rounds x to codes, too, in shared memory, while weights
 * wait in a ring of stages. */
namespace decode {
namespace {

using namespace gpu;

constexpr int WARP = 32, WARPS = 8, THREADS = WARP * WARPS;
constexpr int FOUR = 4, WORDS = GROUP / FOUR;  // codes of a word, words of a row's group
constexpr int TILES = WARP / GROUP_ROWS;       // that a warp reads at once, of neighbouring groups
constexpr int TILE_BYTES = GROUP * GROUP_ROWS; // of I8 (base/groups.h)
constexpr int READS = 2, STAGES = 4;           // of a stage; of a warp's ring
constexpr int BLOCKS_EACH = 2;                 // most blocks per multiprocessor
constexpr int READ_GROUPS = WARPS * TILES, STEP_GROUPS = READS * READ_GROUPS; // of all warps

/* A warp's part of a row of tiles, or a piece of this part: every WARPS-th TILES of the row. */
typedef uint32_t Codes[READS][TILES][WORDS][GROUP_ROWS]; // four codes each
typedef bf16 Scales[READS * TILES][GROUP_ROWS];

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

/* Shared memory of a block: the rings of all warps, [WARPS][stages][MATRICES]; the scales of x and its words,
 * up to whole steps. */
template <int MATRICES>
struct Layout {
    Codes *codes;
    Scales *scales;
    float *x_scales;
    uint32_t *x_words;

    __device__ Layout(void *memory, const Division &division) {
        const int stages = WARPS * division.stages * MATRICES;
        codes = static_cast<Codes *>(memory);
        scales = reinterpret_cast<Scales *>(codes + stages);
        x_scales = reinterpret_cast<float *>(scales + stages);
        x_words = reinterpret_cast<uint32_t *>(x_scales + division.steps * STEP_GROUPS);
        const int own = int(threadIdx.x) / WARP * division.stages * MATRICES; // this warp's ring
        codes += own, scales += own;
    }
    static size_t bytes(const Division &division) {
        return size_t(WARPS * division.stages * MATRICES) * (sizeof(Codes) + sizeof(Scales)) +
               size_t(division.steps) * STEP_GROUPS * (GROUP + sizeof(float));
    }
};

/* The weights of a block: each warp's stages in the order of their use. */
template <int MATRICES>
struct Weights {
    static constexpr int DEPTH = STAGES / MATRICES; // of the ring, if it has so many
    static constexpr int PACK = int(sizeof(Words)), PACKS = WARP * PACK / TILE_BYTES; // tiles of a copy

    Codes *to_codes; // [stages][MATRICES]
    Scales *to_scales;
    const int8_t *codes;    // of this lane in row 0 of tiles
    const bf16 *scales;     // the same; only the first READS * TILES lanes copy them
    int group, scale_group; // of these
    int groups, tiles, steps;
    int tile, step; // of the next copy

    template <class T>
    __device__ Weights(const Product<T> &p, const Division &division, const Layout<MATRICES> &layout)
        : to_codes(layout.codes), to_scales(layout.scales), groups(p.in / GROUP), tiles(p.out / GROUP_ROWS),
          steps(division.steps), tile(int(blockIdx.x)), step(0) {
        const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP;
        group = warp * TILES + lane * PACK / TILE_BYTES;
        scale_group = lane / TILES * READ_GROUPS + warp * TILES + lane % TILES;
        codes = p.codes + warp * TILES * TILE_BYTES + lane * PACK;
        scales = p.scales + scale_group * GROUP_ROWS;
        for (int stage = 0; stage < DEPTH; stage++) start(stage);
    }

    /* Starts the next copy, if one is left; beyond the row, zeros. */
    __device__ void start(int stage) {
        const int lane = int(threadIdx.x) % WARP, first = step * STEP_GROUPS;
        if (tile < tiles) {
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                const int64_t at = int64_t(tile + m * tiles) * groups + first;
#pragma unroll
                for (int i = 0; i < READS; i++)
#pragma unroll
                    for (int t = 0; t < TILES; t += PACKS)
                        copy_async_16(to_codes[stage * MATRICES + m][i][t][0] + lane * FOUR,
                                      codes + (at + i * READ_GROUPS + t) * TILE_BYTES,
                                      first + group + i * READ_GROUPS + t < groups);
                if (lane < READS * TILES)
                    copy_async_16(to_scales[stage * MATRICES + m][lane], scales + at * GROUP_ROWS,
                                  first + scale_group < groups);
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
    int left, odd;               // inputs from there on; whether the two words are swapped
    Packs weights;

    /* Rounded words, four codes each, are at `words`, those of a group in the order of Operands; scales,
     * (in / GROUP), at `scales`. */
    __device__ Rounding(const Product<T> &p, uint32_t words, uint32_t scales) {
        const int column = int(threadIdx.x) * EIGHT, group = column / GROUP;
        x = p.x + column, norm = p.norm + column;
        left = p.in - column;
        odd = group % 2;
        to_words = words + (column ^ group % TILES / 2 * EIGHT);
        to_scale = column % GROUP == 0 ? scales + group * int(sizeof(float)) : 0;
        settle(x, to_words, to_scale, left, odd);
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
                const uint32_t low = codes_of(values[a], inverse), high = codes_of(values[a] + FOUR, inverse);
                store_shared(to_words + at, {odd ? high : low, odd ? low : high});
                if (to_scale) store_shared(to_scale + at / GROUP * int(sizeof(float)), most[a] * (1.f / 127));
            }
        }
        return squares;
    }
};

/* ---- products ---- */

/* What a lane reads of shared memory for its sums: of the first stage of the ring, and of the inputs. It has a
 * row of a tile, word by word. At once the lanes of different tiles read different words, k ^ tile, because the
 * same ones are in the same banks; the words of x are in this order. */
struct Operands {
    uint32_t codes, scales, x, x_scales;

    template <class Layout>
    __device__ explicit Operands(const Layout &layout) {
        const int lane = int(threadIdx.x) % WARP, tile = lane / GROUP_ROWS, row = lane % GROUP_ROWS;
        const int group = int(threadIdx.x) / WARP * TILES + tile;
        codes = shared_address(&(*layout.codes)[0][tile][tile][row]);
        scales = shared_address(&(*layout.scales)[tile][row]);
        x = shared_address(layout.x_words + group * WORDS);
        x_scales = shared_address(layout.x_scales + group);
        settle(codes, scales, x, x_scales);
    }

    /* Adds stage `step` of a row of tiles. */
    template <int MATRICES>
    __device__ void add(int step, int stage, float (&sums)[MATRICES]) const {
        constexpr int WORD = GROUP_ROWS * int(sizeof(uint32_t)); // bytes of a word of all rows
#pragma unroll
        for (int i = 0; i < READS; i++) {
            const uint32_t group = uint32_t(step * STEP_GROUPS + i * READ_GROUPS);
            uint32_t inputs[2][WORDS / 2];
            const float x_scale = load_shared(x_scales + group * uint32_t(sizeof(float)));
            load_shared(x + group * GROUP, inputs[0]);
            load_shared(x + group * GROUP + GROUP / 2, inputs[1]);
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                const uint32_t at = uint32_t(stage * MATRICES + m);
                const uint32_t tile = codes + at * uint32_t(sizeof(Codes)) + i * TILES * TILE_BYTES;
                int sum = LARGE;
#pragma unroll
                for (int k = 0; k < WORDS; k++)
                    sum = __dp4a(int(load_shared_word(tile ^ k * WORD)), int(inputs[k / 4][k % 4]), sum);
                const float scale = load_shared_bf16(scales + at * uint32_t(sizeof(Scales)) +
                                                     i * uint32_t(sizeof(Scales) / READS));
                sums[m] = fmaf(__int_as_float(sum) - __int_as_float(LARGE), scale * x_scale, sums[m]);
            }
        }
    }
};

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
        own = lane < GROUP_ROWS ? shared_address(&sums[0][0][warp][lane]) : 0;
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
    __device__ void write(const float (&sums)[MATRICES], int buffer) const {
        const uint32_t first = uint32_t(buffer * MATRICES * WARPS * ROW);
        float y[2] = {}, of_warps[MATRICES][WARPS], rstd = 1.f;
#pragma unroll
        for (int m = 0; m < MATRICES; m++) {
            float sum = sums[m]; // of a row, of which the lanes of other tiles have parts
            sum += __shfl_xor_sync(~0u, sum, 2 * GROUP_ROWS);
            sum += __shfl_xor_sync(~0u, sum, GROUP_ROWS);
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
 * 8 blocks of 256, at most 2 per multiprocessor. Holds: 70 to 127 registers, 17 to 68 KiB shared and inputs *
 * 9 / 8 bytes. Occupancy: its bounds; 25% of the warps. Reads: 16 bytes per copy, 512 neighbouring bytes per
 * warp, up to 68 KiB per block before the wait. Syncs: a barrier of the block, and one per tile. Fusion: the
 * next product, by a barrier of the grid. */
template <class T, bool GATED, bool NORM, int AHEAD>
__global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    groups_kernel(const __grid_constant__ Product<T> p, const __grid_constant__ Division division) {
    constexpr int MATRICES = GATED ? 2 : 1;
    typedef Weights<MATRICES> W;
    extern __shared__ __align__(TILE_BYTES) uint8_t shared_memory[];
    const bool last_to_start = p.last_to_start();
    if (!last_to_start) let_next_start();
    const Layout<MATRICES> layout(shared_memory, division);
    // products of what lies beyond the row are 0 times this
    for (int i = p.in / GROUP + int(threadIdx.x); i < division.steps * STEP_GROUPS; i += THREADS)
        layout.x_scales[i] = 0.f;
    Rounding<T, NORM, AHEAD> rounding(p, shared_address(layout.x_words), shared_address(layout.x_scales));
    const Operands operands(layout);
    Output<T, GATED, NORM> output(p);
    W weights(p, division, layout);
    wait_for_previous();
    if (last_to_start) let_next_start();
    output.load_skip();
    const float squares = rounding.round(p.in);
    if (NORM) output.keep_square(squares);
    __syncthreads();
    int stage = 0, buffer = 0;
    for (int tile = int(blockIdx.x); tile < weights.tiles; tile += int(gridDim.x), buffer ^= 1) {
        float sums[MATRICES] = {};
        for (int step = 0; step < weights.steps; step++) {
            copy_async_wait_group<W::DEPTH - 1>();
            __syncwarp(); // until the other lanes have waited, too
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
    return LAUNCH_EARLY(ctx, (groups_kernel<T, GATED, NORM, AHEAD>), unsigned(division.blocks), THREADS,
                        Layout<MATRICES>::bytes(division), p, division);
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
