/* cuda_sm90_backward: how the blocks of Hopper's attention backward share the work, and the order in which
 * they add to dq. Blocks draw units (a tile of keys of one head) by number, the last tile of keys of a head
 * first. The units that see a tile of queries add to its dq in that same order, so each waits only for units
 * drawn earlier: the earliest unfinished one never waits, and none does forever. Under a causal mask a unit
 * begins with its diagonal tile of queries, to whose dq it is the first to add: units drawn together go in
 * step, and each finds its predecessor's share already there. */
#pragma once

#include "kernels/attention/cuda_hopper.cuh"

namespace attention {

constexpr int KEYS = 128;       // of a tile
constexpr int SHARE = 64 * 128; // numbers of dq in a tile of queries: 128 x 64 or 64 x 128

/* All units; tiles of queries are those of one head. */
struct Units {
    int per_head, count, query_tiles;
};

/* Unit `number`: keys [first, first + KEYS) of a key/value head, against the tiles of queries from first_tile
 * on of every head of its group. */
template <class F>
struct Unit {
    int tile, kv_head, b, first, length, first_tile, steps;

    __device__ inline Unit(const Problem &p, const Units &units, int number) {
        tile = units.per_head - 1 - number % units.per_head;
        kv_head = number / units.per_head % p.kv_heads;
        b = number / units.per_head / p.kv_heads;
        first = tile * KEYS;
        length = key_length(p, b);
        // the first tile of keys also writes dq of queries that see none
        first_tile = tile == 0 ? 0 : first_query(p, first) / F::QUERIES;
        const int passes = tile == 0 || first < length ? max(0, units.query_tiles - first_tile) : 0;
        steps = passes * p.group;
    }
};

/* A unit's present step: a tile of queries of one head. */
template <class F>
struct Step {
    int head, tile;

    __device__ inline Step(const Problem &p, const Unit<F> &unit)
        : head(unit.kv_head * p.group), tile(unit.first_tile) {}

    __device__ inline void advance(const Units &units, const Unit<F> &unit) {
        if (++tile == units.query_tiles) tile = unit.first_tile, head++;
    }
    /* Units that add to this tile's dq before the unit of tile 0 does. */
    __device__ inline int others(const Problem &p, int length) const {
        return max(0, (keys_seen(p, length, (tile + 1) * F::QUERIES - 1) - 1) / KEYS);
    }
    __device__ inline int64_t number(const Problem &p, const Units &units, int b) const {
        return (int64_t(b) * p.heads + head) * units.query_tiles + tile;
    }
};

/* Columns n of two accumulators' rows `row` and `row` + 8, half a head apart, turned back by the angles of
 * column 8 n + 2 t (attention.h), of rows below `end`. */
template <int N, int M>
__device__ inline void turn_back(const Problem &p, float (&c)[N][4], int low, float (&d)[M][4], int high,
                                 int column, int row) {
    const int half = p.width / 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int position = min(row + 8 * i, p.queries - 1);
        const float4 angle = __ldg(reinterpret_cast<const float4 *>(p.angles + int64_t(position) * half +
                                                                    column + int(threadIdx.x) % 4 * 2));
        const float cosines[2] = {angle.x, angle.z}, sines[2] = {angle.y, angle.w};
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float &x = c[low][2 * i + e], &y = d[high][2 * i + e];
            const float turned = x * cosines[e] + y * sines[e];
            y = y * cosines[e] - x * sines[e];
            x = turned;
        }
    }
}

} // namespace attention
