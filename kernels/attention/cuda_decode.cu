/* Attention of a few queries to many keys, as in decoding: bound by reading k and v once. */
#include "kernels/attention/cuda_problem.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/seen.cuh"
#include "kernels/cuda/words.cuh"

/* A block takes one query of one head, or of HEADS heads that share keys and values, or QUERIES of one head.
 * LANES threads share a key, 8 columns each. The block's groups of LANES run through the keys in parallel,
 * each with its own online softmax; a thread copies its columns of the next rounds of keys into a ring in
 * shared memory. Then their results are merged in a fixed order. Many keys are split among blocks, and the
 * last block to finish merges all results, also in a fixed order (Dao, Haziza, Massa, Sizov 2023,
 * "Flash-Decoding"). New rows of k and v are read from the projection's output and appended to the cache; no
 * block of this launch reads them from the cache. */

namespace attention {
namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32, COLUMNS = 8;
constexpr int UNROLL = 2;                    // keys per thread and round
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

/* A thread's ring: STAGES rounds of UNROLL keys and values, 8 columns each, which only this thread reads. */
template <class T>
struct KeyRing {
    static constexpr int PIECES = COLUMNS / VECTOR<T>, ROUND = 2 * UNROLL * PIECES; // in words
    static constexpr int BYTES = 64 * 1024, ROUND_BYTES = ROUND * THREADS * int(sizeof(Words));
    static constexpr int STAGES = BYTES / ROUND_BYTES;

    Words *words; // of all threads

    __device__ Words *at(int stage, int row, int piece) const {
        return words + (stage * ROUND + row * PIECES + piece) * THREADS + threadIdx.x;
    }

    /* Starts the copy of 8 columns, zero from `count` on. */
    __device__ void start(int stage, int row, const T *from, int count, bool vector) const {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            Words *const to = at(stage, row, piece);
            const int first = piece * VECTOR<T>;
            if (vector) {
                gpu::copy_async_16(to, from + (count > first ? first : 0), count > first);
                continue;
            }
            for (int i = 0; i < VECTOR<T>; i++)
                reinterpret_cast<T *>(to)[i] = first + i < count ? from[first + i] : from_float<T>(0.0f);
        }
    }

    __device__ void read(int stage, int row, float (&x)[COLUMNS]) const {
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
            float part[VECTOR<T>];
            unpack<T>(*at(stage, row, piece), part);
#pragma unroll
            for (int i = 0; i < VECTOR<T>; i++) x[piece * VECTOR<T> + i] = part[i];
        }
    }
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
__device__ inline void write(const Problem &p, const HeadTile &mine, int column, const Seen<1> &all) {
    T *const to = head_rows<T>(p, p.y, mine.b, mine.head) + mine.tile * p.y.row;
    to[column] = from_float<T>(all.sum == 0.0f ? 0.0f : all.y[0] / all.sum);
    if (p.lse && column == 0)
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
        write<T>(p, mine, own,
                 merge_all(FromL2(), all + width, all + width + 1, all + own, parts, step, step));
}

/* Floor: 2 * keys * kv_heads * D * sizeof(T) bytes. */
/* Anatomy. Parallel: over queries of one head, or up to 4 heads or queries; up to 16 parts of the keys.
 * Launch: queries x heads x batch, by parts, or divided by 4; blocks of 256. Holds: 75 to 128 registers, 66
 * to 97 KiB shared. Occupancy: registers; 25% of the warps. Reads: 16 bytes per load, coalesced within a
 * head's row, 2 or 4 rounds of 2 keys in flight. Syncs: shuffles and one barrier; two more and a ticket where
 * keys are split. Fusion: the projections around it: kernels/decode does. */
template <class T, int LANES, int HEADS, int QUERIES>
__global__ void __launch_bounds__(THREADS, 2)
    decode_kernel(const __grid_constant__ Problem p, const __grid_constant__ Fresh fresh,
                  const __grid_constant__ Splits splits) {
    constexpr int GROUPS = THREADS / LANES, ALL = HEADS * QUERIES;
    extern __shared__ Words shared_words[];
    __shared__ float maxima[ALL][WARPS], sums[ALL][WARPS];
    __shared__ alignas(16) float ys[ALL][WARPS][LANES * COLUMNS];

    HeadTile mine = block_tile((p.queries + QUERIES - 1) / QUERIES, p.heads / HEADS);
    mine.head *= HEADS; // the first
    mine.tile *= QUERIES;
    const int lane = int(threadIdx.x) % LANES, group = int(threadIdx.x) / LANES;
    const int column = lane * COLUMNS, count = p.width - column, kv_head = mine.head / p.group;
    wait_for_previous();
    let_next_start();
    const int past = fresh.pasts ? fresh.pasts[mine.b] : fresh.past ? *fresh.past : p.keys - fresh.count;
    const int keys = past + fresh.count;
    const int length = p.key_lengths ? max(0, min(p.key_lengths[mine.b], keys)) : keys;
    const auto seen_by = [&](int query) {
        return p.causal ? max(0, min(length, query + keys - p.queries + 1)) : length;
    };
    const int seen = seen_by(min(mine.tile + QUERIES, p.queries) - 1); // by the last query
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

    float q[ALL][COLUMNS];
    Seen<COLUMNS> group_seen[ALL];
#pragma unroll
    for (int a = 0; a < ALL; a++) {
        const int query = min(mine.tile + a % QUERIES, p.queries - 1);
        load_columns<COLUMNS>(head_rows<T>(p, p.q, mine.b, mine.head + a / QUERIES) + query * p.q.row +
                                  column,
                              count, p.q.vector, q[a]);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) q[a][i] *= p.scale * LOG2_E;
        group_seen[a] = {-INFINITY, 0.0f, {}};
    }

    const KeyRing<T> ring = {shared_words};
    constexpr int STEP = GROUPS * UNROLL, AHEAD = KeyRing<T>::STAGES - 1;
    const auto start = [&](int first, int stage) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int64_t key = first + u * GROUPS, row = key - past;
            const T *const from_k = row < 0 ? k + key * p.k.row : new_k + row * fresh.k.row;
            const T *const from_v = row < 0 ? v + key * p.v.row : new_v + row * fresh.v.row;
            ring.start(stage, 2 * u, from_k, key < end ? count : 0, p.k.vector);
            ring.start(stage, 2 * u + 1, from_v, key < end ? count : 0, p.v.vector);
        }
        gpu::copy_async_commit();
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++) start(begin + group + i * STEP, i);

    int stage = 0;
#pragma unroll 1
    for (int first = begin + group; first - group < end; first += STEP) {
        float k_rows[UNROLL][COLUMNS], v_rows[UNROLL][COLUMNS];
        start(first + AHEAD * STEP, stage == 0 ? AHEAD : stage - 1);
        gpu::copy_async_wait_group<AHEAD>();
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            ring.read(stage, 2 * u, k_rows[u]);
            ring.read(stage, 2 * u + 1, v_rows[u]);
        }
        stage = stage == AHEAD ? 0 : stage + 1;
#pragma unroll
        for (int a = 0; a < ALL; a++) {
            const int own_end = QUERIES == 1 ? end : min(end, seen_by(mine.tile + a % QUERIES));
            float s[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                s[u] = 0.0f;
#pragma unroll
                for (int i = 0; i < COLUMNS; i++) s[u] = fmaf(q[a][i], k_rows[u][i], s[u]);
#pragma unroll
                for (int distance = LANES / 2; distance > 0; distance /= 2)
                    s[u] += __shfl_xor_sync(0xffffffffu, s[u], distance);
                if (first + u * GROUPS >= own_end) s[u] = -INFINITY;
            }
            add_keys(group_seen[a], s, [&](int u, float(&v)[COLUMNS]) {
#pragma unroll
                for (int i = 0; i < COLUMNS; i++) v[i] = v_rows[u][i];
            });
        }
    }
    if (part == 0 && mine.tile == 0 && mine.head % p.group == 0) append<T>(p, fresh, mine, past);

    const int warp = int(threadIdx.x) / 32;
#pragma unroll
    for (int a = 0; a < ALL; a++) {
        merge_warp<LANES>(group_seen[a]);
        if (threadIdx.x % 32 == 0) maxima[a][warp] = group_seen[a].maximum, sums[a][warp] = group_seen[a].sum;
        if (int(threadIdx.x) % 32 < LANES) store_floats<COLUMNS>(&ys[a][warp][column], group_seen[a].y);
    }
    __syncthreads();
    if (ALL == 1 && parts > 1) {
        const int own = min(int(threadIdx.x), p.width - 1);
        write_together<T>(
            p, splits, mine,
            merge_all(FromShared(), maxima[0], sums[0], &ys[0][0][own], WARPS, 1, LANES * COLUMNS), parts);
        return;
    }
    for (int i = int(threadIdx.x); i < ALL * p.width; i += THREADS) {
        const int a = i / p.width, own = i % p.width;
        const HeadTile to = {mine.tile + a % QUERIES, mine.head + a / QUERIES, mine.b};
        const Seen<1> all =
            merge_all(FromShared(), maxima[a], sums[a], &ys[a][0][own], WARPS, 1, LANES * COLUMNS);
        if (to.tile < p.queries) write<T>(p, to, own, all);
    }
}

template <class T, int LANES, int HEADS, int QUERIES>
Status launch(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits) {
    const int64_t tiles = divide_up(p.queries, QUERIES) * (p.heads / HEADS) * p.batch;
    return LAUNCH_EARLY(ctx, (decode_kernel<T, LANES, HEADS, QUERIES>),
                        dim3(unsigned(tiles), unsigned(splits.most)), THREADS, KeyRing<T>::BYTES, p, fresh,
                        splits);
}

/* Queries are taken together, and heads that share keys where blocks enough remain. That changes no sum. */
template <class T, int LANES>
Status launch_heads(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits) {
    constexpr int BLOCKS_EACH = 3; // fewest blocks per multiprocessor
    const int64_t rows = int64_t(p.queries) * p.heads * p.batch;
    const int64_t least = int64_t(cuda_device(ctx)->multiprocessors) * BLOCKS_EACH;
    const bool together = splits.most == 1;
    if (together && p.queries >= 4 && !p.starts) return launch<T, LANES, 1, 4>(ctx, p, fresh, splits);
    if (together && p.group % 4 == 0 && rows / 4 >= least)
        return launch<T, LANES, 4, 1>(ctx, p, fresh, splits);
    if (together && p.group % 3 == 0 && rows / 3 >= least)
        return launch<T, LANES, 3, 1>(ctx, p, fresh, splits);
    if (together && p.group % 2 == 0 && rows / 2 >= least)
        return launch<T, LANES, 2, 1>(ctx, p, fresh, splits);
    return launch<T, LANES, 1, 1>(ctx, p, fresh, splits);
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
