/* cuda_decode: attention of a few queries to many keys, as in decoding: code shared by its two kernels.
 *
 * A block takes one query of one head, or several of heads that share keys and values. Its warps run through
 * the keys in parallel, each with its own online softmax; then their results are merged in a fixed order.
 * Many keys are split among blocks, and the last block to finish merges all results, also in a fixed order
 * (Dao, Haziza, Massa, Sizov 2023, "Flash-Decoding"). New rows of k and v are read from the projection's
 * output and appended to the cache; no block of this launch reads them from the cache. */
#pragma once

#include "kernels/attention/cuda_problem.cuh"
#include "kernels/cuda/seen.cuh"

namespace attention {

/* Rows of the Problem's k and v that are not yet in the cache; count = 0 without a cache. */
struct Fresh {
    Rows k, v;
    int count;
    const int *past;  // device memory: rows in the cache; NULL: keys - count
    const int *pasts; // those of each batch row; NULL: one past for all
};

/* Where the blocks that share a query's keys store their partial results. */
struct Splits {
    int most;        // most parts of the keys
    float *partials; // (blocks, most, rows of a block, D + 2): unnormalized y, maximum, sum
    int *tickets;    // (blocks), zero before and after
};

/* The same on tensor cores, for bf16 and whole vectors. A block takes so many heads of so many queries as
 * tensor_decode_rows gives. */
bool fits_decode_tensor(const Ctx *ctx, const Problem &p);
void tensor_decode_rows(const Ctx *ctx, const Problem &p, int *heads, int *queries);
CHECKED Status decode_tensor(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits, int heads,
                             int queries);

namespace {

constexpr int SPLITS = 16, SPLIT_KEYS = 128; // most parts of the keys; fewest keys per part

/* The keys that a block's queries see, and its part of them. */
struct KeyRange {
    int past, keys, length; // rows in the cache; all rows; those that the batch row has
    int part, parts, begin, end;

    /* The split depends only on the number of keys. */
    __device__ inline KeyRange(const Problem &p, const Fresh &fresh, const Splits &splits,
                               const HeadTile &first, int last_query) {
        past = fresh.pasts ? fresh.pasts[first.b] : fresh.past ? *fresh.past : p.keys - fresh.count;
        keys = past + fresh.count;
        length = p.key_lengths ? max(0, min(p.key_lengths[first.b], keys)) : keys;
        const int seen = seen_by(p, min(last_query, p.queries - 1));
        const int from = first_key(p, first.b, first.tile), shown = max(0, seen - from);
        const int share = max(SPLIT_KEYS, (shown + splits.most - 1) / splits.most);
        part = int(blockIdx.y);
        parts = max(1, (shown + share - 1) / share);
        begin = from + part * share;
        end = min(begin + share, seen);
    }

    __device__ inline int seen_by(const Problem &p, int query) const {
        return p.causal ? max(0, min(length, query + keys - p.queries + 1)) : length;
    }
};

/* Appends new rows of one key/value head to the cache: a block of `queries` queries those that stand beside
 * them, so that a long prompt's are appended by all blocks, and the last block the rest. */
template <class T>
__device__ inline void append(const Problem &p, const Fresh &fresh, const HeadTile &mine, int queries,
                              int past) {
    const int head = mine.head / p.group, first = mine.tile;
    const int end = first + queries < p.queries ? min(first + queries, fresh.count) : fresh.count;
    for (int i = int(threadIdx.x); i < (end - first) * p.width; i += int(blockDim.x)) {
        const int64_t row = first + i / p.width;
        const int column = i % p.width;
        head_rows<T>(p, p.k, mine.b, head)[(past + row) * p.k.row + column] =
            head_rows<T>(p, fresh.k, mine.b, head)[row * fresh.k.row + column];
        head_rows<T>(p, p.v, mine.b, head)[(past + row) * p.v.row + column] =
            head_rows<T>(p, fresh.v, mine.b, head)[row * fresh.v.row + column];
    }
}

/* Loads other blocks' results from L2, because L1 may hold a stale line. */
struct FromShared {
    __device__ float operator()(const float *at) const { return *at; }
};
struct FromL2 {
    __device__ float operator()(const float *at) const { return __ldcg(at); }
};

/* Merges a column of `count` partial results, `step` floats apart; `ends` are their maxima, each followed by
 * its sum. */
template <class Load>
__device__ inline Seen<1> merge_all(Load load, const float *ends, const float *ys, int count, int step) {
    Seen<1> all = {-INFINITY, 0.0f, {}};
#pragma unroll 8
    for (int i = 0; i < count; i++) all.maximum = fmaxf(all.maximum, load(ends + i * step));
    const float base = all.maximum == -INFINITY ? 0.0f : all.maximum;
#pragma unroll 8
    for (int i = 0; i < count; i++) {
        const float weight = exp2f(load(ends + i * step) - base);
        all.sum = fmaf(weight, load(ends + i * step + 1), all.sum);
        all.y[0] = fmaf(weight, load(ys + i * step), all.y[0]);
    }
    return all;
}

template <class T>
__device__ inline void write(const Problem &p, const HeadTile &mine, int column, const Seen<1> &all) {
    T *const to = head_rows<T>(p, p.y, mine.b, mine.head) + mine.tile * p.y.row;
    to[column] = from_float<T>(all.sum == 0.0f ? 0.0f : all.y[0] / all.sum);
    if (p.lse && column == 0)
        p.lse[(int64_t(mine.b) * p.heads + mine.head) * p.queries + mine.tile] =
            all.sum == 0.0f ? -INFINITY : (all.maximum + log2f(all.sum)) * LN_2;
}

/* The rows of a block: `heads` heads of each of `queries` queries. */
struct BlockRows {
    HeadTile first;
    int heads, queries;

    __device__ inline int count() const { return heads * queries; }
    __device__ inline HeadTile at(int row) const {
        return {first.tile + row / heads, first.head + row % heads, first.b};
    }
};

/* A warp's result for a row: y of WIDTH columns, then maximum and sum; whole words of 16 bytes. */
template <int WIDTH>
using SeenRow = float[WIDTH + 4];

/* Merges the warps' results and writes y. If the keys are split, stores the block's partial results instead,
 * and the last block merges and writes. All threads of the block call it after a barrier. */
template <class T, int WARPS, int ROWS, int STEP>
__device__ inline void merge_and_write(const Problem &p, const Splits &splits, const KeyRange &range,
                                       const BlockRows &rows, const float (&results)[WARPS][ROWS][STEP]) {
    constexpr int WIDTH = STEP - 4; // of a SeenRow
    __shared__ bool last;
    const int width = p.width, row_step = width + 2, part_step = rows.count() * row_step;
    float *const all_parts = splits.partials + int64_t(blockIdx.x) * splits.most * part_step;
    for (int i = int(threadIdx.x); i < rows.count() * width; i += int(blockDim.x)) {
        const int row = i / width, column = i % width;
        const HeadTile to = rows.at(row);
        if (to.tile >= p.queries) continue;
        const float *const first = results[0][row];
        const Seen<1> all = merge_all(FromShared(), first + WIDTH, first + column, WARPS, ROWS * STEP);
        if (range.parts == 1) {
            write<T>(p, to, column, all);
            continue;
        }
        float *const own = all_parts + range.part * part_step + row * row_step;
        own[column] = all.y[0];
        if (column == 0) own[width] = all.maximum, own[width + 1] = all.sum;
    }
    if (range.parts == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&splits.tickets[blockIdx.x], 1) == range.parts - 1;
        if (last) splits.tickets[blockIdx.x] = 0;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    for (int i = int(threadIdx.x); i < rows.count() * width; i += int(blockDim.x)) {
        const int row = i / width, column = i % width;
        const HeadTile to = rows.at(row);
        const float *const first = all_parts + row * row_step;
        if (to.tile < p.queries)
            write<T>(p, to, column,
                     merge_all(FromL2(), first + width, first + column, range.parts, part_step));
    }
}

} // namespace
} // namespace attention
