#include "kernels/decode/cuda_rows.cuh"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/linear/cuda_activation.cuh"
#include "kernels/norm/cuda_row.cuh"

namespace decode {
namespace {

constexpr int WARP = 32, WARPS = 8, THREADS = WARP * WARPS;
constexpr int LANES = 16, ROWS = 4, FOUR = 4;  // lanes that share a tile; rows and columns of a lane
constexpr int TILES = WARP / LANES;            // tiles, of neighbouring groups, that a warp loads at once
constexpr int TILE_BYTES = GROUP * GROUP_ROWS; // of I8 (base/groups.h)
constexpr int BLOCKS_EACH = 2;                 // most blocks per multiprocessor

/* ROUND loads of a warp: every WARPS-th load of a row of tiles, and the lane's group in each. */
template <int ROUND>
struct Load {
    Words codes[ROUND]; // word r: four codes of the lane's row r
    uint2 scales[ROUND];

    __device__ static int group(int first, int i) {
        return (first + i * WARPS) * TILES + int(threadIdx.x) % WARP / LANES;
    }

    template <class T>
    __device__ void start(const Product<T> &p, int row_of_tiles, int first) {
        const int groups = p.in / GROUP, lane = int(threadIdx.x) % WARP;
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            const int64_t tile = int64_t(row_of_tiles) * groups + group(first, i);
            codes[i] = {};
            scales[i] = {};
            if (group(first, i) >= groups) continue;
            codes[i] = load_words(p.codes + tile * TILE_BYTES + lane % LANES * int(sizeof(Words)));
            scales[i] = *reinterpret_cast<const uint2 *>(p.scales + tile * GROUP_ROWS + lane % 2 * ROWS);
        }
    }
};

/* x, times the norm's weight, rounded to 8 bits by groups, as kernels/linear/cpu_groups.c rounds it. In
 * shared memory. */
struct Rounded {
    uint32_t *words; // (in / FOUR): four codes each
    float *scales;   // (in / GROUP)

    __device__ Rounded(void *memory, int in)
        : words(static_cast<uint32_t *>(memory)), scales(reinterpret_cast<float *>(words + in / FOUR)) {}
};
constexpr size_t rounded_bytes(int in) {
    return size_t(in) + size_t(in) / GROUP * sizeof(float);
}

/* Four values as codes. */
__device__ inline uint32_t codes_of(const float *x, float inverse) {
    uint32_t codes[FOUR];
#pragma unroll
    for (int e = 0; e < FOUR; e++) codes[e] = uint32_t(__float2int_rn(x[e] * inverse));
    return __byte_perm(__byte_perm(codes[0], codes[1], 0x0040), __byte_perm(codes[2], codes[3], 0x0040),
                       0x5410);
}

/* Rounds 8 neighbours of x from `column` on, of which the thread has the values; 4 lanes share a group. */
__device__ inline void round_eight(const float (&values)[8], int column, bool inside, const Rounded &to) {
    float most = 0.f;
#pragma unroll
    for (int e = 0; e < 8; e++) most = fmaxf(most, fabsf(values[e]));
#pragma unroll
    for (int distance = GROUP / 8 / 2; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
    const float inverse = most >= 0x1p-120f ? 127.f / most : 0.f; // because 1 / most would overflow
    if (!inside) return;
    *reinterpret_cast<uint2 *>(to.words + column / FOUR) =
        make_uint2(codes_of(values, inverse), codes_of(values + FOUR, inverse));
    if (column % GROUP == 0) to.scales[column / GROUP] = most / 127.f;
}

/* Rounds x, of which a thread has eight neighbours at a time and AHEAD times as many in flight. Returns the
 * thread's sum of their squares, before the norm. */
template <bool NORM, int AHEAD, class T>
__device__ inline float round_inputs(const Product<T> &p, const Rounded &to) {
    constexpr int STEP = THREADS * 8, PARTS = 8 / VECTOR<T>;
    float squares = 0.f;
    for (int first = 0; first < p.in; first += AHEAD * STEP) {
        Words x[AHEAD][PARTS] = {};
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            const int column = first + a * STEP + int(threadIdx.x) * 8;
#pragma unroll
            for (int k = 0; k < PARTS; k++)
                if (column < p.in) x[a][k] = load_words(p.x + column + k * VECTOR<T>);
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (first + a * STEP >= p.in) break;
            const int column = first + a * STEP + int(threadIdx.x) * 8;
            float values[8], factors[8] = {};
#pragma unroll
            for (int k = 0; k < PARTS; k++) {
                float some[VECTOR<T>];
                unpack<T>(x[a][k], some);
#pragma unroll
                for (int e = 0; e < VECTOR<T>; e++) values[k * VECTOR<T> + e] = some[e];
            }
            if (NORM) {
                if (column < p.in) load_floats<8>(p.norm + column, factors);
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    squares = fmaf(values[e], values[e], squares);
                    values[e] *= factors[e];
                }
            }
            round_eight(values, column, column < p.in, to);
        }
    }
    return squares;
}

/* Adds the products of a lane's codes with its four inputs, each row's times the two scales. */
__device__ inline void add_products(const Words &codes, uint2 scales, uint32_t x, float x_scale,
                                    float (&sums)[ROWS]) {
    constexpr int LARGE = 0x4b400000; // of the float 3 * 2^22, whose last digits the sum becomes
    const float scale[ROWS] = {__uint_as_float(scales.x << 16), __uint_as_float(scales.x & 0xffff0000u),
                               __uint_as_float(scales.y << 16), __uint_as_float(scales.y & 0xffff0000u)};
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int sum = __dp4a(int(codes.w[r]), int(x), LARGE);
        sums[r] = fmaf(__int_as_float(sum) - __int_as_float(LARGE), scale[r] * x_scale, sums[r]);
    }
}

/* A lane's sums of its rows over the warp's groups. */
template <int ROUND, int MATRICES>
__device__ inline void add_round(const Rounded &x, int groups, int first, const Load<ROUND> (&load)[MATRICES],
                                 float (&sums)[MATRICES][ROWS]) {
    const int word = int(threadIdx.x) % LANES / 2;
#pragma unroll
    for (int i = 0; i < ROUND; i++) {
        const int group = min(Load<ROUND>::group(first, i), groups - 1); // codes and scales beyond it are 0
        const uint32_t inputs = x.words[group * (GROUP / FOUR) + word];
        const float x_scale = x.scales[group];
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
            add_products(load[m].codes[i], load[m].scales[i], inputs, x_scale, sums[m]);
    }
}

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

/* Writes an output from its sum, or its sums of gate and up. */
template <class T, bool GATED>
__device__ inline void write(const Product<T> &p, int own, float rstd, const float (&sums)[2]) {
    float y[2];
    for (int m = 0; m < (GATED ? 2 : 1); m++)
        y[m] = fmaf(sums[m], rstd, p.bias ? to_float(p.bias[own + m * p.out]) : 0.f);
    if (GATED) {
        const float gate = to_float(from_float<T>(y[0])), up = to_float(from_float<T>(y[1]));
        p.y[own] = from_float<T>(silu(gate) * up);
        return;
    }
    if (p.skip) y[0] += to_float(p.skip[own]);
    if (p.logits)
        p.logits[own] = y[0];
    else
        p.y[own] = from_float<T>(y[0]);
}

/* Floor: out * in bytes of codes and 1/16 of it for scales. */
/* Anatomy. Parallel: over tiles of 8 outputs, one or more per block; warps over the inputs. Launch: outputs /
 * 8 blocks of 256, at most 2 per multiprocessor. Holds: 70 to 108 registers, inputs * 9 / 8 + 544 or 1056
 * bytes shared. Occupancy: its bounds; 25% of the warps. Reads: 16 bytes of codes and 8 of scales per load,
 * coalesced, 4 or 8 in flight, the first before the wait. Syncs: a barrier of the block, and one per tile.
 * Fusion: the next product, by a barrier of the grid. */
template <class T, int ROUND, bool GATED>
__global__ void __launch_bounds__(THREADS, 2) groups_kernel(const __grid_constant__ Product<T> p) {
    constexpr int MATRICES = GATED ? 2 : 1;
    extern __shared__ uint4 shared_memory[];
    __shared__ float of_warps[2][WARPS][MATRICES][GROUP_ROWS], squares_of_warps[WARPS];
    const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
    const int groups = p.in / GROUP, tiles = p.out / GROUP_ROWS, loads = (groups + TILES - 1) / TILES;
    Load<ROUND> load[MATRICES];
#pragma unroll
    for (int m = 0; m < MATRICES; m++) load[m].start(p, int(blockIdx.x) + m * tiles, warp);
    if (!p.first && !p.logits) let_next_start();
    wait_for_previous();
    if (p.first || p.logits) let_next_start();
    const Rounded x(shared_memory, p.in);
    const float squares = warp_sum(p.norm ? round_inputs<true, 1>(p, x) : round_inputs<false, 4>(p, x));
    if (lane == 0) squares_of_warps[warp] = squares;
    __syncthreads();
    float square = 0.f;
    for (int w = 0; w < WARPS; w++) square += squares_of_warps[w];
    const float rstd = p.norm ? norm_row::rstd_of(square, p.inverse, p.eps) : 1.f;
    int buffer = 0;
    for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x), buffer ^= 1) {
        float sums[MATRICES][ROWS] = {};
        for (int first = warp; first < loads; first += ROUND * WARPS) {
            if (first != warp)
#pragma unroll
                for (int m = 0; m < MATRICES; m++) load[m].start(p, tile + m * tiles, first);
            add_round(x, groups, first, load, sums);
        }
        if (tile + int(gridDim.x) < tiles)
#pragma unroll
            for (int m = 0; m < MATRICES; m++) load[m].start(p, tile + int(gridDim.x) + m * tiles, warp);
#pragma unroll
        for (int m = 0; m < MATRICES; m++) {
            const float sum = sum_rows(sums[m]);
            if ((lane & 6) == 0) of_warps[buffer][warp][m][row_of(lane)] = sum;
        }
        __syncthreads();
        if (threadIdx.x >= GROUP_ROWS) continue;
        float all[2] = {};
        for (int w = 0; w < WARPS; w++)
            for (int m = 0; m < MATRICES; m++) all[m] += of_warps[buffer][w][m][threadIdx.x];
        write<T, GATED>(p, tile * GROUP_ROWS + int(threadIdx.x), rstd, all);
    }
}

template <class T, int ROUND, bool GATED>
Status launch(Ctx *ctx, const Product<T> &p) {
    const int tiles = p.out / GROUP_ROWS, most = cuda_device(ctx)->multiprocessors * BLOCKS_EACH;
    return LAUNCH_EARLY(ctx, (groups_kernel<T, ROUND, GATED>), unsigned(tiles < most ? tiles : most), THREADS,
                        rounded_bytes(p.in), p);
}

template <class T>
Status choose(Ctx *ctx, const Product<T> &p, bool gated) {
    if (gated) return launch<T, 4, true>(ctx, p);
    const bool wide = p.in > 4 * WARPS * TILES * GROUP; // more than four loads a warp
    return wide ? launch<T, 8, false>(ctx, p) : launch<T, 4, false>(ctx, p);
}

} // namespace

Status product_by_groups(Ctx *ctx, const Product<float> &p, bool gated) {
    return choose(ctx, p, gated);
}
Status product_by_groups(Ctx *ctx, const Product<bf16> &p, bool gated) {
    return choose(ctx, p, gated);
}

} // namespace decode
