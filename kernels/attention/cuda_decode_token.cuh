/* cuda_decode_token: what a block of cuda_decode_token.cu has in shared memory, and how the token's rows come
 * there: normalized, rotated, and appended to the cache. */
#pragma once

#include "kernels/attention/cuda_decode.cuh"
#include "kernels/attention/cuda_order.cuh"
#include "kernels/attention/cuda_rotary.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/norm/cuda_row.cuh"

namespace attention {
namespace token { // a named namespace, because much of it is unused in builds for other GPUs

using namespace gpu;

constexpr int WARP = 32, HEADS = 8, KEYS = ORDER_KEYS; // heads of a block; keys of a tile
constexpr int CLUSTER = 8;                             // most blocks of a cluster
constexpr int N = VECTOR<bf16>;                        // elements of a pack
constexpr int LANES = TENSOR_WIDTH / N;                // that turn a row

/* Few keys have a block, of which each warp has one tile. Many have a cluster of blocks with half as many
 * warps, each of which has the tiles of two rounds in shared memory. */
template <int WIDTH_, bool FEW_>
struct Form {
    static constexpr int WIDTH = WIDTH_, STAGES = FEW_ ? 1 : 2;
    static constexpr int WARPS = (WIDTH <= 64 ? 8 : 4) / STAGES, THREADS = WARP * WARPS;
    static constexpr int PITCH = WIDTH + N;             // of the token's rows
    static constexpr int AHEAD = STAGES * WARPS * KEYS; // keys in a block's shared memory
    static constexpr bool FEW = FEW_;
};

/* The result of a tile, as lanes have it: 8 g + t is a lane's place in an accumulator (cuda/instructions.cuh).
 * A quarter of the probabilities' sum is that of cuda_order.cuh. */
template <int WIDTH>
struct Partial {
    float o[WIDTH / 16][WARP][4]; // columns 16 n + g and + 8 of heads 2t and 2t + 1
    float ends[4][4][4];          // quarter g / 2, t: sums and bases of both heads
};

template <class F>
struct Room {
    bf16 keys[F::STAGES][F::WARPS][KEYS * F::WIDTH], values[F::STAGES][F::WARPS][KEYS * F::WIDTH];
    bf16 rows[(HEADS + 2) * F::PITCH]; // the token's: queries, its key, its value
    float2 angles[F::WIDTH / 2];       // cosines and sines of its position
    uint64_t received;
    alignas(16) Partial<F::WIDTH> partials[CLUSTER][F::WARPS]; // only of the cluster's blocks
};
template <class F>
constexpr size_t shared_bytes(int blocks) {
    return sizeof(Room<F>) - size_t(CLUSTER - blocks) * F::WARPS * sizeof(Partial<F::WIDTH>);
}

/* Starts the copies of a tile's rows of the cache. Rows beyond `past`, the token's own, become zero. Called by
 * a warp. The loop keeps the kernel short, because each instruction is fetched once per launch. */
template <int WIDTH>
__device__ inline void start_tile(bf16 *tile, const Problem &p, const Rows &cached, int head, int first,
                                  int past) {
    constexpr int VECTORS = WIDTH / N, STEP = WARP / VECTORS; // of a row; rows at once
    int lane = int(threadIdx.x) % WARP;
    settle(lane); // so that addresses of later tiles are not computed before the first is multiplied
    const int row = lane / VECTORS, pack = lane % VECTORS;
    const int left = past - first - row, cached_rows = pack * N < p.width ? left : 0;
    const bf16 *const rows = head_rows<bf16>(p, cached, 0, head);
    const bf16 *from = rows + int64_t(first + row) * cached.row + pack * N;
#pragma unroll(8 / STEP)
    for (int i = 0; i < KEYS; i += STEP, from += STEP * cached.row)
        if (i != left)
            copy_async_16(tile + eight_columns<WIDTH>(i + row, pack), i < cached_rows ? from : rows,
                          i < cached_rows);
}

/* ---- the token's rows ---- */

/* A thread's columns of the token's rows: N of every row that it has, of which LANES neighbours have all. */
template <class F>
struct TokenRows {
    static constexpr int AT_ONCE = F::THREADS / LANES, EACH = (HEADS + 2 + AT_ONCE - 1) / AT_ONCE;
    static constexpr int KEY = HEADS, VALUE = HEADS + 1;

    const bf16 *from[EACH];     // NULL: none
    bf16 *appended[EACH];       // a place in the cache; NULL: none
    uint32_t places[EACH];      // in shared memory; 0: none
    Words norms[EACH];          // the norm's weight
    int other;                  // the lane that has the other half of this one's rotated pairs
    float cosines[N], sines[N]; // sines with the sign that they have for this half

    __device__ static int row(int i) { return int(threadIdx.x) / LANES + i * AT_ONCE; }

    /* Reads only parameters, and the angles. Of few keys, the token's own key and value go into their tile. */
    __device__ TokenRows(const Problem &p, const Fresh &fresh, const TokenTurn &turn, int first_head,
                         int heads, int past, bool appends, Room<F> &room) {
        const int kv_head = first_head / p.group, column = int(threadIdx.x) % LANES * N, half = p.width / 2;
        const bool inside = column < p.width, is_low = column < half;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const bool is_query = row(i) < HEADS, is_key = row(i) == KEY, is_value = row(i) == VALUE;
            const bf16 *const norm = is_query ? turn.query_norm : is_key ? turn.key_norm : nullptr;
            const Rows &cached = is_key ? p.k : p.v;
            from[i] = nullptr;
            appended[i] = nullptr;
            bf16 *place = room.rows + row(i) * F::PITCH + column;
            if (F::FEW && (is_key || is_value))
                place = (is_key ? room.keys : room.values)[0][past / KEYS] +
                        eight_columns<F::WIDTH>(past % KEYS, column / N);
            places[i] = row(i) <= VALUE && column < F::WIDTH ? shared_address(place) : 0;
            norms[i] = {};
            if (inside && row(i) < heads) from[i] = head_rows<bf16>(p, p.q, 0, first_head + row(i)) + column;
            if (inside && is_key) from[i] = head_rows<bf16>(p, fresh.k, 0, kv_head) + column;
            if (inside && is_value) from[i] = head_rows<bf16>(p, fresh.v, 0, kv_head) + column;
            if (inside && norm) norms[i] = load_words(norm + column);
            if (appends && inside && (is_key || is_value))
                appended[i] = head_rows<bf16>(p, cached, 0, kv_head) + past * cached.row + column;
            settle(from[i], appended[i], places[i]);
        }
        other = int(threadIdx.x) % WARP + (inside ? (is_low ? half : -half) / N : 0);
        settle(other);
        if (turn.frequencies)
#pragma unroll
            for (int e = 0; e < N; e++) {
                const float2 angle = inside ? room.angles[column - (is_low ? 0 : half) + e] : float2{};
                cosines[e] = angle.x, sines[e] = is_low ? -angle.y : angle.y;
                settle(sines[e]);
            }
    }

    /* The row of a lane's columns, normalized. */
    __device__ static void normalize(const TokenTurn &turn, const Words &norm, Words &words) {
        float x[N], weight[N];
        unpack<bf16>(words, x);
        unpack<bf16>(norm, weight);
        // where a warp has a row, it adds zeros to this sum
        const float squares = lanes_sum<LANES>(norm_row::add_pack<true>(0.0f, x));
        norm_row::normalize<false>(x, 0.0f, norm_row::rstd_of(squares, turn.inverse, turn.eps), weight,
                                   weight);
        words = packed<bf16>(x);
    }
    /* The same, rotated by the token's position, the half of each pair that this lane has. */
    __device__ void rotate(Words &words) const {
        Words others;
        float x[N], y[N];
#pragma unroll
        for (int i = 0; i < 4; i++) others.w[i] = __shfl_sync(~0u, words.w[i], other);
        unpack<bf16>(words, x);
        unpack<bf16>(others, y);
#pragma unroll
        for (int e = 0; e < N; e++) x[e] = rotated(x[e], y[e], cosines[e], sines[e]);
        words = packed<bf16>(x);
    }

    /* Puts the rows in shared memory, and the key and value in the cache. */
    __device__ void load(const TokenTurn &turn) const {
        Words words[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            words[i] = {};
            if (from[i]) words[i] = load_words(from[i]);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            Words turned = words[i];
            if (turn.query_norm) normalize(turn, norms[i], turned);
            if (turn.frequencies) rotate(turned);
            if (row(i) < VALUE) words[i] = turned;
            if (places[i]) store_shared(places[i], words[i].w);
            if (appended[i]) store_words(appended[i], words[i]);
        }
    }
};

/* Puts the token's own key and value, row `row` of the warp's tile, beside those of the cache. */
template <class F>
__device__ inline void put_own_row(Room<F> &room, int stage, int row) {
    constexpr int PACKS = F::WIDTH / N;
    const int warp = int(threadIdx.x) / WARP, lane = int(threadIdx.x) % WARP, pack = lane % PACKS;
    bf16(*const tiles)[KEYS * F::WIDTH] = lane < PACKS ? room.keys[stage] : room.values[stage];
    if (lane < 2 * PACKS)
        store_words(tiles[warp] + eight_columns<F::WIDTH>(row, pack),
                    load_words(room.rows + (HEADS + lane / PACKS) * F::PITCH + pack * N));
}

} // namespace token
} // namespace attention
