/* cuda_sm90_backward: how the blocks of Hopper's attention backward share the work, and the order in which
 * they add to dq. Blocks draw units (a tile of keys of one head) by number, and the units that see a tile of
 * queries add to its dq in the order of their numbers: so each waits only for units drawn earlier, the
 * earliest unfinished one never waits, and none does forever.
 *
 * Under a causal mask a head's first tile of keys is passed by all its queries, the last by a few. Heads are
 * drawn one after the other, the last tile first: units drawn together go in step, each beginning with its
 * diagonal tile of queries, to whose dq it is the first to add. But blocks that drew the last head's first
 * tiles would be at work long after the others. So of the last heads the longest units, about one for each
 * block, come first, and the others behind them, the shortest of all heads last: what is left in the end is
 * short. For twelve heads in two groups, B=16 and T=1024 that keeps 132 blocks busy for 96% of the time, not
 * for 62%. */
#pragma once

#include "kernels/attention/cuda_hopper.cuh"

namespace attention {

constexpr int KEYS = 128;       // of a tile
constexpr int SHARE = 64 * 128; // numbers of dq in a tile of queries: 128 x 64 or 64 x 128

struct Maps {
    CUtensorMap q, k, v, dy;
};

/* All units; tiles of queries are those of one head. */
struct Units {
    int per_head, count, query_tiles;
    int last_heads, long_tiles; // the heads drawn together; of their tiles of keys these come first
};

static inline Units make_units(const Problem &p, int queries, int blocks) {
    const int per_head = int(divide_up(p.keys, KEYS)), heads = p.kv_heads * p.batch;
    const int enough = int(divide_up(5 * blocks, 2 * per_head)); // heads: two and a half units for a block
    const int last = p.causal ? min(heads, enough) : 0;
    return {per_head, per_head * heads, int(divide_up(p.queries, queries)), last,
            last ? max(1, min(per_head, blocks / last)) : 0};
}

/* Unit `number`: keys [first, first + KEYS) of a key/value head, against the tiles of queries [first_tile,
 * end_tile) of every head of its group. Of the head's tiles of keys the first `falling` were drawn from the
 * last of them to tile 0, those behind them after that and in their order. */
template <class F>
struct Unit {
    int tile, falling, kv_head, b, first, length, first_tile, end_tile, steps;

    __device__ inline Unit(const Problem &p, const Units &units, int number) {
        const int head = draw(units, number);
        kv_head = head % p.kv_heads;
        b = head / p.kv_heads;
        first = tile * KEYS;
        length = key_length(p, b);
        // the first tile of keys also writes dq of queries that see none
        first_tile = tile == 0 ? 0 : first_query(p, first) / F::QUERIES;
        end_tile = units.query_tiles;
        if (p.starts)
            end_tile = (document_end(p, b, min(first + KEYS, p.keys) - 1) + F::QUERIES - 1) / F::QUERIES;
        const int passes = tile == 0 || first < length ? max(0, end_tile - first_tile) : 0;
        steps = passes * p.group;
    }

    /* Sets tile and falling; the head, of those of all batch rows. */
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

/* How many units add to a tile's dq before this one does, and whether it is the last. */
struct Turn {
    int before;
    bool last;
};

/* A tile of queries of a head, and the first key of its last query. */
struct Place {
    int tile, head, document;
};

/* A unit's present step: a tile of queries of one head. */
template <class F>
struct Step {
    int head, tile;

    __device__ inline Step(const Problem &p, const Unit<F> &unit)
        : head(unit.kv_head * p.group), tile(unit.first_tile) {}

    __device__ inline void advance(const Unit<F> &unit) {
        if (++tile == unit.end_tile) tile = unit.first_tile, head++;
    }
    __device__ inline Turn turn(const Problem &p, const Unit<F> &unit) const {
        const int low = first_key(p, unit.b, tile * F::QUERIES) / KEYS; // the tiles of keys that it sees
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

/* The adder, one thread: a unit's share of dq goes from shared to global memory, stored by the first, added
 * by the later ones. For the last the sum so far comes to shared memory, and the consumers finish it. */
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

/* The first query behind the document of each of KEYS keys from `first` on. A warp calls it. */
__device__ inline void find_ends(const Problem &p, int b, int first, int (&ends)[KEYS]) {
    for (int i = int(threadIdx.x) % 32; i < KEYS; i += 32)
        ends[i] = document_end(p, b, min(first + i, p.keys - 1));
    __syncwarp();
}

/* Zeros the probabilities (keys x queries) of queries behind their key's document: those from end[half] on. */
template <int N>
__device__ inline void part_documents(float (&s)[N][4], const int (&end)[2]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * n + i % 2 >= end[i / 2]) s[n][i] = 0.0f;
}

/* The angles of two columns from column + 8 n + lane % 4 * 2 on, of rows `row` and `row` + 8. */
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

/* Accumulators half a head apart, turned back. */
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
