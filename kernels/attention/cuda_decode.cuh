/* cuda_decode: attention of a few queries to many keys, as in decoding: code shared by its three kernels.
 *
 * A block takes one query of one head, or several of heads that share keys and values. Many keys are divided
 * among warps and blocks, whose results are merged in a fixed order (Dao, Haziza, Massa, Sizov 2023,
 * "Flash-Decoding"). New rows of k and v are read from the projection's output and appended to the cache; no
 * block of this launch reads them from the cache. */
#pragma once

#include "kernels/attention/cuda_problem.cuh"

namespace attention {

/* Rows of the Problem's k and v that are not yet in the cache; count = 0 without a cache. */
struct Fresh {
    Rows k, v;
    int count;
    const int *past;  // device memory: rows in the cache; NULL: keys - count
    const int *pasts; // those of each batch row; NULL: one past for all
};

/* Attention on tensor cores, for bf16 and whole vectors; there are `longest` keys or fewer. */
bool fits_decode_tensor(const Ctx *ctx, const Problem &p);
CHECKED Status decode_tensor(Ctx *ctx, const Problem &p, const Fresh &fresh, int64_t longest);
/* The same for one token, with its turn, on Hopper. The kernel reads the position and the cache's earlier
 * rows before it waits for earlier kernels, so these must not write them. */
bool fits_decode_token(const Ctx *ctx, const Problem &p, const Fresh &fresh);
CHECKED Status decode_token(Ctx *ctx, const Problem &p, const Fresh &fresh, const TokenTurn &turn,
                            int64_t longest);

namespace {

/* How many of the heads that share keys and values a block takes: a divisor of their number, at most `most`. */
inline int heads_together(const Problem &p, int most) {
    int heads = p.group < most ? p.group : most;
    while (p.group % heads != 0) heads--;
    return heads;
}

/* The keys that a block's queries see. */
struct Visible {
    int past, keys, length, begin, end; // rows in the cache; all rows; those that the batch row has

    __device__ Visible(const Problem &p, const Fresh &fresh, const HeadTile &first, int last_query) {
        past = fresh.pasts ? fresh.pasts[first.b] : fresh.past ? *fresh.past : p.keys - fresh.count;
        keys = past + fresh.count;
        length = p.key_lengths ? max(0, min(p.key_lengths[first.b], keys)) : keys;
        begin = first_key(p, first.b, first.tile);
        end = by(p, min(last_query, p.queries - 1));
    }
    __device__ int by(const Problem &p, int query) const {
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

/* The rows of a block: `heads` heads of each of `queries` queries. */
struct BlockRows {
    HeadTile first;
    int heads, queries;

    __device__ inline int count() const { return heads * queries; }
    __device__ inline HeadTile at(int row) const {
        if (queries == 1) return {first.tile, first.head + row, first.b};
        return {first.tile + row / heads, first.head + row % heads, first.b};
    }
};

} // namespace
} // namespace attention
