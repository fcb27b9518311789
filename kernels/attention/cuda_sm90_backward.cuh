/* cuda_sm90_backward: how the blocks of Hopper's attention backward share the work, and the order in which
 * they add to dq. Blocks draw units (a tile of keys of one head) by number. The units that see a tile of
 * queries add to its dq in the order of their numbers. Each waits only for units drawn earlier, and the
 * earliest unfinished unit never waits, so there is no deadlock.
 *
 * Under a causal mask a head's first tile of keys is seen by all its queries, the last tile by few. Heads are
 * drawn one after another, each from its last tile: units drawn together run in step, because each begins
 * with its diagonal tile of queries, to whose dq it is the first to add. But the blocks that draw the last
 * head's first tiles would finish long after the others. So for the last heads the longest units, about one
 * per block, come first, then the others, with the shortest of all heads at the end. For twelve heads in two
 * groups, B=16 and T=1024 this keeps 132 blocks busy 96% of the time, instead of 62%. */
#pragma once

#include "kernels/attention/cuda_hopper.cuh"

namespace attention {

constexpr int KEYS = 128;       // keys per tile
constexpr int SHARE = 64 * 128; // elements of dq in a tile of queries: 128 x 64 or 64 x 128

struct Maps {
    CUtensorMap q, k, v, dy;
};

/* All units. Tiles of queries are counted per head. */
struct Units {
    int per_head, count, query_tiles;
    int last_heads, long_tiles; // heads at the end that are drawn together; number of their tiles of keys
                                // that come first
};

static inline Units make_units(const Problem &p, int queries, int blocks) {
    const int per_head = int(divide_up(p.keys, KEYS)), heads = p.kv_heads * p.batch;
    const int enough = int(divide_up(5 * blocks, 2 * per_head)); // heads that make two and a half units per
                                                                 // block
    const int last = p.causal ? min(heads, enough) : 0;
    return {per_head, per_head * heads, int(divide_up(p.queries, queries)), last,
            last ? max(1, min(per_head, blocks / last)) : 0};
}

/* Unit `number`: keys [first, first + KEYS) of a key/value head, against the tiles of queries [first_tile,
 * end_tile) of every head of its group. The first `falling` of the head's tiles of keys are drawn in
 * descending order, the others after them in ascending order. */
template <class F>
struct Unit {
    int tile, falling, kv_head, b, first, length, first_tile, end_tile, steps;

    __device__ inline Unit(const Problem &p, const Units &units, int number) {
        const int head = draw(units, number);
        kv_head = head % p.kv_heads;
        b = head / p.kv_heads;
        first = tile * KEYS;
        length = key_length(p, b);
        // the first tile of keys also writes dq of queries that see no key
        first_tile = tile == 0 ? 0 : first_query(p, first) / F::QUERIES;
        end_tile = units.query_tiles;
        if (p.starts)
            end_tile = (document_end(p, b, min(first + KEYS, p.keys) - 1) + F::QUERIES - 1) / F::QUERIES;
        const int passes = tile == 0 || first < length ? max(0, end_tile - first_tile) : 0;
        steps = passes * p.group;
    }

    /* Sets tile and falling; returns the head, counted over all batch rows. */
    __device__ inline int draw(const Units &units, int number) {
        const int earlier = units.count / units.per_head - units.last_heads;
        const int rest = number - earlier * units.per_head;
        falling = rest < 0 ? units.per_head : units.long_tiles;
        if (rest >= units.long_tiles * units.last_heads) {
            tile = rest / units.last_heads;
            return earlier + rest % units.last_heads;
        }
        const int among = rest < 0 ? number : rest;
        tile = falling - 1 - among % falling;
        return (rest < 0 ? 0 : earlier) + among / falling;
    }
};

/* How many units add to a tile's dq before this one, and whether this one is the last. */
struct Turn {
    int before;
    bool last;
};

/* A tile of queries of a head, and the first key that its last query sees. */
struct Place {
    int tile, head, document;
};

/* A unit's current step: a tile of queries of one head. */
template <class F>
struct Step {
    int head, tile;

    __device__ inline Step(const Problem &p, const Unit<F> &unit)
        : head(unit.kv_head * p.group), tile(unit.first_tile) {}

    __device__ inline void advance(const Unit<F> &unit) {
        if (++tile == unit.end_tile) tile = unit.first_tile, head++;
    }
    __device__ inline Turn turn(const Problem &p, const Unit<F> &unit) const {
        const int low = first_key(p, unit.b, tile * F::QUERIES) / KEYS; // the tiles of keys that the tile of
                                                                        // queries sees
        const int high = max(0, (keys_seen(p, unit.length, (tile + 1) * F::QUERIES - 1) - 1) / KEYS);
        const int before =
            unit.tile < unit.falling ? min(high, unit.falling - 1) - unit.tile : unit.tile - low;
        return {before, before == high - low};
    }
    __device__ inline Place place(const Problem &p, const Unit<F> &unit) const {
        return {tile, head, first_key(p, unit.b, (tile + 1) * F::QUERIES - 1)};
    }
    __device__ inline int64_t number(const Problem &p, const Units &units, int b) const {
        return (int64_t(b) * p.heads + head) * units.query_tiles + tile;
    }
};

/* The adder, one thread, moves a unit's share of dq from shared to global memory: the first unit stores it,
 * later ones add. For the last unit the sum so far is copied to shared memory, and the consumers finish
 * it. */
template <class F>
__device__ inline void add_shares(const Problem &p, const Units &units, typename F::Shared &shared) {
    uint32_t parity = 0;
    for (uint32_t keys_parity = 0;; keys_parity ^= 1) {
        wait(&shared.keys_here, keys_parity);
        const int number = shared.unit;
        arrive(&shared.keys_free);
        if (number >= units.count) return;
        const Unit<F> unit(p, units, number);
        Step<F> at(p, unit);
        for (int step = 0; step < unit.steps; step++, at.advance(unit), parity ^= 1) {
            const int64_t tile = at.number(p, units, unit.b);
            const Turn turn = at.turn(p, unit);
            shared.turn = turn;
            float *const sum = p.dq_sums + tile * SHARE;
            if (turn.last && turn.before > 0) {
                wait_flag(p.turns + tile, turn.before);
                arrive_expecting(&shared.dq_free, sizeof(shared.dq));
                load_bytes_async(shared.dq, sum, sizeof(shared.dq), &shared.dq_free);
            } else {
                arrive(&shared.dq_free);
            }
            wait(&shared.dq_here, parity);
            if (turn.last) continue;
            if (turn.before > 0) {
                wait_flag(p.turns + tile, turn.before);
                add_floats_async(sum, shared.dq, sizeof(shared.dq));
            } else {
                store_bytes_async(sum, shared.dq, sizeof(shared.dq));
            }
            commit_stores();
            wait_stores();
            fence_async_global();
            store_release(p.turns + tile, turn.before + 1);
        }
    }
}

/* For each of KEYS keys from `first` on, finds the first query after its document. A warp calls it. */
__device__ inline void find_ends(const Problem &p, int b, int first, int (&ends)[KEYS]) {
    for (int i = int(threadIdx.x) % 32; i < KEYS; i += 32)
        ends[i] = document_end(p, b, min(first + i, p.keys - 1));
    __syncwarp();
}

/* Zeros the probabilities (keys x queries) of queries after their key's document, from end[half] on. */
template <int N>
__device__ inline void part_documents(float (&s)[N][4], const int (&end)[2]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * n + i % 2 >= end[i / 2]) s[n][i] = 0.0f;
}

/* The angles of the two columns from column + 8 n + lane % 4 * 2 on, of rows `row` and `row` + 8. */
template <int N>
__device__ inline void load_angles(const Problem &p, int b, int column, int row, float4 (&angles)[N][2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = min(row + 8 * i, p.queries - 1), position = at - first_key(p, b, at);
        const float2 *const from =
            p.angles + int64_t(position) * (p.width / 2) + column + int(threadIdx.x) % 4 * 2;
#pragma unroll
        for (int n = 0; n < N; n++) angles[n][i] = __ldg(reinterpret_cast<const float4 *>(from + 8 * n));
    }
}

/* Rotates accumulators that are half a head apart back. */
__device__ inline void turn_back(const float4 (&angle)[2], float (&low)[4], float (&high)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 two = angle[i / 2];
        const float cosine = i % 2 ? two.z : two.x, sine = i % 2 ? two.w : two.y;
        const float turned = low[i] * cosine + high[i] * sine;
        high[i] = high[i] * cosine - low[i] * sine;
        low[i] = turned;
    }
}

} // namespace attention
