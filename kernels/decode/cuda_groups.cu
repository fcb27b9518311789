#include "kernels/decode/cuda_rows.cuh"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/linear/cuda_activation.cuh"

namespace decode {
namespace {

constexpr int WARP = 32, WARPS = 8, THREADS = WARP * WARPS;
constexpr int LANES = 16, ROWS = 4, FOUR = 4;  // lanes that share a tile; rows and columns of a lane
constexpr int TILES = WARP / LANES;            // tiles, of neighbouring groups, that a warp loads at once
constexpr int TILE_BYTES = GROUP * GROUP_ROWS; // of I8 (base/groups.h)
constexpr int BLOCKS_EACH = 8;                 // most blocks per multiprocessor

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

/* A byte's value, which becomes the last digits of 2^23. */
__device__ inline float value_of(uint32_t flipped, int byte) {
    return __uint_as_float(__byte_perm(flipped, 0x4b000000u, 0x7650 + byte)) - 8388736.f; // 2^23 + 128
}

/* Adds the products of a lane's codes with its four inputs, each row's times its scale. */
__device__ inline void add_products(const Words &codes, uint2 scales, const float (&x)[FOUR],
                                    float (&sums)[ROWS]) {
    const float scale[ROWS] = {__uint_as_float(scales.x << 16), __uint_as_float(scales.x & 0xffff0000u),
                               __uint_as_float(scales.y << 16), __uint_as_float(scales.y & 0xffff0000u)};
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const uint32_t flipped = codes.w[r] ^ 0x80808080u; // code + 128
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < FOUR; i++) sum = fmaf(x[i], value_of(flipped, i), sum);
        sums[r] = fmaf(sum, scale[r], sums[r]);
    }
}

/* The sums of a warp over its groups: those of its lanes' rows, and of the squares of x. */
template <class T, int ROUND, int MATRICES>
__device__ inline void add_round(const Product<T> &p, const T *x, int first,
                                 const Load<ROUND> (&load)[MATRICES], float (&sums)[MATRICES][ROWS],
                                 float &squares) {
    const int lane = int(threadIdx.x) % WARP, groups = p.in / GROUP;
    Pack<T, FOUR> inputs[ROUND], factors[ROUND];
#pragma unroll
    for (int i = 0; i < ROUND; i++) {
        const int group = Load<ROUND>::group(first, i), column = group * GROUP + lane % LANES / 2 * FOUR;
        inputs[i] = factors[i] = {};
        if (group >= groups) continue;
        inputs[i] = load_pack<FOUR>(x + column);
        if (p.norm) factors[i] = load_pack<FOUR>(p.norm + column);
    }
#pragma unroll
    for (int i = 0; i < ROUND; i++) {
        float values[FOUR];
#pragma unroll
        for (int e = 0; e < FOUR; e++) {
            values[e] = to_float(inputs[i].e[e]);
            if (!p.norm) continue;
            squares = fmaf(values[e], values[e], squares);
            values[e] *= to_float(factors[i].e[e]);
        }
#pragma unroll
        for (int m = 0; m < MATRICES; m++) add_products(load[m].codes[i], load[m].scales[i], values, sums[m]);
    }
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
    if (p.skip) y[0] += to_float(p.skip[(p.skip_id ? int64_t(*p.skip_id) * p.out : 0) + own]);
    if (p.logits)
        p.logits[own] = y[0];
    else
        p.y[own] = from_float<T>(y[0]);
}

/* Floor: out * in bytes of codes and 1/16 of it for scales. */
/* Anatomy. Parallel: over tiles of 8 outputs, one or more per block; warps over the inputs. Launch: outputs /
 * 8 blocks of 256, at most 8 per multiprocessor. Holds: 119 to 128 registers, 576 or 1088 bytes shared,
 * little spill. Occupancy: registers; 25% of the warps. Reads: 16 bytes of codes and 8 of scales per load,
 * coalesced, 4 or 8 in flight, the first before the wait. Syncs: a barrier of the block per tile. Fusion: the
 * next product, by a barrier of the grid. */
template <class T, int ROUND, bool GATED>
__global__ void __launch_bounds__(THREADS, 2) groups_kernel(const __grid_constant__ Product<T> p) {
    constexpr int MATRICES = GATED ? 2 : 1;
    __shared__ float of_warps[2][WARPS][MATRICES][GROUP_ROWS], squares_of_warps[2][WARPS];
    const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
    const int tiles = p.out / GROUP_ROWS, loads = (p.in / GROUP + TILES - 1) / TILES;
    Load<ROUND> load[MATRICES];
#pragma unroll
    for (int m = 0; m < MATRICES; m++) load[m].start(p, int(blockIdx.x) + m * tiles, warp);
    const bool inside = !p.id && !p.logits; // neither the first nor the last kernel of the token
    if (inside) let_next_start();
    wait_for_previous();
    if (!inside) let_next_start();
    const T *const x = p.x + (p.id ? int64_t(*p.id) * p.in : 0);
    int buffer = 0;
    for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x), buffer ^= 1) {
        float sums[MATRICES][ROWS] = {}, squares = 0.f;
        for (int first = warp; first < loads; first += ROUND * WARPS) {
            if (first != warp)
#pragma unroll
                for (int m = 0; m < MATRICES; m++) load[m].start(p, tile + m * tiles, first);
            add_round(p, x, first, load, sums, squares);
        }
        if (tile + int(gridDim.x) < tiles)
#pragma unroll
            for (int m = 0; m < MATRICES; m++) load[m].start(p, tile + int(gridDim.x) + m * tiles, warp);
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
#pragma unroll
                for (int distance = WARP / 2; distance > 1; distance /= 2)
                    sums[m][r] += __shfl_xor_sync(~0u, sums[m][r], distance);
                if (lane < 2) of_warps[buffer][warp][m][lane * ROWS + r] = sums[m][r];
            }
        if (p.norm) squares = warp_sum(squares) / 2; // two lanes have the same columns
        if (lane == 0) squares_of_warps[buffer][warp] = squares;
        __syncthreads();
        if (threadIdx.x >= GROUP_ROWS) continue;
        float all[2] = {}, square = 0.f;
        for (int w = 0; w < WARPS; w++) {
            square += squares_of_warps[buffer][w];
            for (int m = 0; m < MATRICES; m++) all[m] += of_warps[buffer][w][m][threadIdx.x];
        }
        const float rstd = p.norm ? rsqrtf(square / float(p.in) + p.eps) : 1.f;
        write<T, GATED>(p, tile * GROUP_ROWS + int(threadIdx.x), rstd, all);
    }
}

template <class T, int ROUND, bool GATED>
Status launch(Ctx *ctx, const Product<T> &p) {
    const int tiles = p.out / GROUP_ROWS, most = cuda_device(ctx)->multiprocessors * BLOCKS_EACH;
    return LAUNCH_EARLY(ctx, (groups_kernel<T, ROUND, GATED>), unsigned(tiles < most ? tiles : most), THREADS,
                        0, p);
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
