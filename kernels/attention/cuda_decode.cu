/* Attention of a few queries to many keys, as in decoding: bound by reading k and v once. */
#include "kernels/attention/cuda_problem.cuh"
#include "kernels/cuda/seen.cuh"

/* A block takes one query of one head, or of HEADS heads that share keys and values. LANES threads share a
 * key, 8 columns each. The block's groups of LANES run through the keys in parallel, each with some keys in
 * flight and its own online softmax; then their results are merged in a fixed order. Many keys are split
 * among blocks, and the last block to finish merges all results, also in a fixed order (Dao, Haziza, Massa,
 * Sizov 2023, "Flash-Decoding"). New rows of k and v are read from the projection's output and appended to
 * the cache; no block of this launch reads them from the cache. */

namespace attention {
namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32, COLUMNS = 8;
constexpr int SPLITS = 16, SPLIT_KEYS = 128; // most parts of the keys; fewest keys per part

/* Rows of the Problem's k and v that are not yet in the cache; count = 0 without a cache. */
struct Fresh {
    Rows k, v;
    int count;
    const int *past;  // device memory: rows in the cache; NULL: keys - count
    const int *pasts; // those of each batch row; NULL: one past for all
};

/* Where the blocks that share a query's keys store their partial results. */
struct Splits {
    int most;
    float *partials; // (queries of all heads, most, D + 2): unnormalized y, maximum, sum
    int *tickets;    // (queries of all heads), zero before and after
};

/* Appends the new rows of one key/value head to the cache. */
template <class T>
__device__ inline void append(const Problem &p, const Fresh &fresh, const HeadTile &mine, int past) {
    const int head = mine.head / p.group;
    for (int i = int(threadIdx.x); i < fresh.count * p.width; i += THREADS) {
        const int64_t row = i / p.width;
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

/* Merges a column of `count` partial results: maxima and sums are `step` floats apart, ys `y_step`. */
template <class Load>
__device__ inline Seen<1> merge_all(Load load, const float *maxima, const float *sums, const float *ys,
                                    int count, int step, int y_step) {
    Seen<1> all = {-INFINITY, 0.0f, {}};
#pragma unroll 8
    for (int i = 0; i < count; i++) all.maximum = fmaxf(all.maximum, load(maxima + i * step));
    const float base = all.maximum == -INFINITY ? 0.0f : all.maximum;
#pragma unroll 8
    for (int i = 0; i < count; i++) {
        const float weight = exp2f(load(maxima + i * step) - base);
        all.sum = fmaf(weight, load(sums + i * step), all.sum);
        all.y[0] = fmaf(weight, load(ys + i * y_step), all.y[0]);
    }
    return all;
}

template <class T>
__device__ inline void write(const Problem &p, const HeadTile &mine, const Seen<1> &all) {
    T *const to = head_rows<T>(p, p.y, mine.b, mine.head) + mine.tile * p.y.row;
    to[threadIdx.x] = from_float<T>(all.sum == 0.0f ? 0.0f : all.y[0] / all.sum);
    if (p.lse && threadIdx.x == 0)
        p.lse[(int64_t(mine.b) * p.heads + mine.head) * p.queries + mine.tile] =
            all.sum == 0.0f ? -INFINITY : (all.maximum + log2f(all.sum)) * LN_2;
}

/* Stores the block's partial result; the last of `parts` blocks merges all and writes y. */
template <class T>
__device__ inline void write_together(const Problem &p, const Splits &splits, const HeadTile &mine,
                                      const Seen<1> &part, int parts) {
    __shared__ bool last;
    const int own = int(threadIdx.x), width = p.width, step = width + 2;
    float *const all = splits.partials + int64_t(blockIdx.x) * splits.most * step;
    float *const to = all + int64_t(blockIdx.y) * step;
    if (own < width) to[own] = part.y[0];
    if (own == 0) to[width] = part.maximum, to[width + 1] = part.sum;
    __threadfence();
    __syncthreads();
    if (own == 0) {
        last = atomicAdd(&splits.tickets[blockIdx.x], 1) == parts - 1;
        if (last) splits.tickets[blockIdx.x] = 0;
        __threadfence();
    }
    __syncthreads();
    if (last && own < width)
        write<T>(p, mine, merge_all(FromL2(), all + width, all + width + 1, all + own, parts, step, step));
}

/* Floor: 2 * keys * kv_heads * D * sizeof(T) bytes. */
/* Anatomy. Parallel: over queries of one head, split into up to 16 parts of the keys, or of up to 4 heads; lanes
 * over columns. Launch: queries x heads x batch, by parts, or divided by heads; blocks of 256. Holds: 101 to
 * 128 registers, 2128 bytes to 33 KiB shared. Occupancy: registers; 25% of the warps. Reads: 16 bytes per
 * load, coalesced within a head's row, 2 or 4 keys of k and v in flight. Syncs: shuffles and one barrier; two
 * more and a ticket where keys are split. Fusion: the projections around it: kernels/decode does. */
template <class T, int LANES, int HEADS>
__global__ void __launch_bounds__(THREADS, 2)
    decode_kernel(const __grid_constant__ Problem p, const __grid_constant__ Fresh fresh,
                  const __grid_constant__ Splits splits) {
    constexpr int GROUPS = THREADS / LANES, UNROLL = HEADS == 1 ? 4 : 2;
    __shared__ float maxima[HEADS][WARPS], sums[HEADS][WARPS];
    __shared__ alignas(16) float ys[HEADS][WARPS][LANES * COLUMNS];

    HeadTile mine = block_tile(p.queries, p.heads / HEADS);
    mine.head *= HEADS; // the first
    const int lane = int(threadIdx.x) % LANES, group = int(threadIdx.x) / LANES;
    const int column = lane * COLUMNS, count = p.width - column, kv_head = mine.head / p.group;
    wait_for_previous();
    let_next_start();
    const int past = fresh.pasts ? fresh.pasts[mine.b] : fresh.past ? *fresh.past : p.keys - fresh.count;
    const int keys = past + fresh.count;
    const int length = p.key_lengths ? max(0, min(p.key_lengths[mine.b], keys)) : keys;
    const int seen = p.causal ? max(0, min(length, mine.tile + keys - p.queries + 1)) : length;
    const int from = first_key(p, mine.b, mine.tile), shown = max(0, seen - from);
    /* This block's keys. The split depends only on the number of keys. */
    const int share = max(SPLIT_KEYS, (shown + splits.most - 1) / splits.most);
    const int parts = max(1, (shown + share - 1) / share), part = int(blockIdx.y);
    if (part >= parts) return;
    const int begin = from + part * share, end = min(begin + share, seen);
    const T *const k = head_rows<T>(p, p.k, mine.b, kv_head) + column;
    const T *const v = head_rows<T>(p, p.v, mine.b, kv_head) + column;
    const T *const new_k = head_rows<T>(p, fresh.k, mine.b, kv_head) + column;
    const T *const new_v = head_rows<T>(p, fresh.v, mine.b, kv_head) + column;

    float q[HEADS][COLUMNS];
    Seen<COLUMNS> group_seen[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        load_columns<COLUMNS>(head_rows<T>(p, p.q, mine.b, mine.head + h) + mine.tile * p.q.row + column,
                              count, p.q.vector, q[h]);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) q[h][i] *= p.scale * LOG2_E;
        group_seen[h] = {-INFINITY, 0.0f, {}};
    }

#pragma unroll 1
    for (int first = begin + group; first - group < end; first += GROUPS * UNROLL) {
        float k_rows[UNROLL][COLUMNS], v_rows[UNROLL][COLUMNS];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int64_t key = first + u * GROUPS, row = key - past;
            const T *const from_k = row < 0 ? k + key * p.k.row : new_k + row * fresh.k.row;
            const T *const from_v = row < 0 ? v + key * p.v.row : new_v + row * fresh.v.row;
            load_columns<COLUMNS>(from_k, key < end ? count : 0, p.k.vector, k_rows[u]);
            load_columns<COLUMNS>(from_v, key < end ? count : 0, p.v.vector, v_rows[u]);
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float s[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                s[u] = 0.0f;
#pragma unroll
                for (int i = 0; i < COLUMNS; i++) s[u] = fmaf(q[h][i], k_rows[u][i], s[u]);
#pragma unroll
                for (int distance = LANES / 2; distance > 0; distance /= 2)
                    s[u] += __shfl_xor_sync(0xffffffffu, s[u], distance);
                if (first + u * GROUPS >= end) s[u] = -INFINITY;
            }
            add_keys(group_seen[h], s, [&](int u, float(&v)[COLUMNS]) {
#pragma unroll
                for (int i = 0; i < COLUMNS; i++) v[i] = v_rows[u][i];
            });
        }
    }
    if (part == 0 && mine.tile == 0 && mine.head % p.group == 0) append<T>(p, fresh, mine, past);

    const int warp = int(threadIdx.x) / 32, own = min(int(threadIdx.x), p.width - 1);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        merge_warp<LANES>(group_seen[h]);
        if (threadIdx.x % 32 == 0) maxima[h][warp] = group_seen[h].maximum, sums[h][warp] = group_seen[h].sum;
        if (int(threadIdx.x) % 32 < LANES) store_floats<COLUMNS>(&ys[h][warp][column], group_seen[h].y);
    }
    __syncthreads();
    for (int h = 0; h < HEADS; h++, mine.head++) {
        const Seen<1> all =
            merge_all(FromShared(), maxima[h], sums[h], &ys[h][0][own], WARPS, 1, LANES * COLUMNS);
        if (HEADS == 1 && parts > 1)
            write_together<T>(p, splits, mine, all, parts);
        else if (int(threadIdx.x) < p.width)
            write<T>(p, mine, all);
    }
}

template <class T, int LANES, int HEADS>
Status launch(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits) {
    const dim3 blocks(unsigned(int64_t(p.queries) * (p.heads / HEADS) * p.batch), unsigned(splits.most));
    return LAUNCH_EARLY(ctx, (decode_kernel<T, LANES, HEADS>), blocks, THREADS, 0, p, fresh, splits);
}

/* Heads that share keys are taken together where blocks enough remain; not with FUSE_INVARIANT, because their
 * sums differ. */
template <class T, int LANES>
Status launch_heads(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits) {
    constexpr int BLOCKS_EACH = 3; // fewest blocks per multiprocessor
    const int64_t rows = int64_t(p.queries) * p.heads * p.batch;
    const int64_t least = int64_t(cuda_device(ctx)->multiprocessors) * BLOCKS_EACH;
    const bool together = splits.most == 1 && !(ctx->fuses & FUSE_INVARIANT);
    if (together && p.group % 4 == 0 && rows / 4 >= least) return launch<T, LANES, 4>(ctx, p, fresh, splits);
    if (together && p.group % 3 == 0 && rows / 3 >= least) return launch<T, LANES, 3>(ctx, p, fresh, splits);
    if (together && p.group % 2 == 0 && rows / 2 >= least) return launch<T, LANES, 2>(ctx, p, fresh, splits);
    return launch<T, LANES, 1>(ctx, p, fresh, splits);
}

/* Splits the keys into as many parts as the longest row allows and the device can run at once; with
 * FUSE_INVARIANT into one, because the number of rows must not change the sums. */
Status take_splits(Ctx *ctx, const Problem &p, int64_t longest, Splits *splits) {
    const int64_t rows = int64_t(p.queries) * p.heads * p.batch, room = cuda_device(ctx)->multiprocessors;
    int64_t most = divide_up(longest, SPLIT_KEYS);
    if (most > SPLITS) most = SPLITS;
    if (most > room / rows) most = room / rows;
    if (most < 1 || rows > TICKETS || ctx->fuses & FUSE_INVARIANT) most = 1;
    *splits = {int(most), nullptr, cuda_device(ctx)->tickets};
    if (most == 1) return OK;
    Tensor partials;
    TRY(take(ctx, ARENA_SCRATCH, "attention.partials", F32, shape3(rows, most, p.width + 2), &partials));
    splits->partials = data_of<float>(partials);
    return OK;
}

template <class T>
Status launch_width(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits) {
    if (p.width <= 64) return launch_heads<T, 8>(ctx, p, fresh, splits);
    if (p.width <= 128) return launch_heads<T, 16>(ctx, p, fresh, splits);
    return launch_heads<T, 32>(ctx, p, fresh, splits);
}

} // namespace

Status forward_decode(Ctx *ctx, const Problem *problem, const AttentionForward *a) {
    Problem p = *problem;
    Fresh fresh = {p.k, p.v, 0, nullptr, nullptr};
    Splits splits;
    int64_t longest = p.keys;
    if (!tensor_empty(a->cache_k)) {
        fresh = {make_rows(a->k, p.width), make_rows(a->v, p.width), int(a->k.shape.d[1]),
                 data_of<int>(a->past_on_device), data_of<int>(a->pasts)};
        p.k.vector = p.k.vector && fresh.k.vector;
        p.v.vector = p.v.vector && fresh.v.vector;
        longest = a->cache_k.shape.d[1];
    }
    TRY(take_splits(ctx, p, longest, &splits));
    PRIMITIVE (ctx, "decode", ATTENTION)
        DISPATCH_FLOAT(p.dtype, T, TRY(launch_width<T>(ctx, p, fresh, splits)));
    return OK;
}

} // namespace attention
