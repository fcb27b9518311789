/* Attention of a few queries by fused multiply-adds, for fp32 and rows that are not whole vectors: bound by
 * reading k and v once. */
#include "kernels/attention/cuda_decode.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/seen.cuh"
#include "kernels/cuda/words.cuh"

/* A block takes one query of one head, or QUERIES of one head. LANES threads share a key, 8 columns each; a
 * thread copies its columns of the next rounds of keys into a ring in shared memory. Warps run through the
 * keys in parallel, each with its own online softmax; then their results are merged. Many keys are split
 * among blocks, and the last block to finish merges all results. */

namespace attention {
namespace {

/* Where the blocks that share a query's keys store their partial results. */
struct Splits {
    int most;        // most parts of the keys
    float *partials; // (blocks, most, rows of a block, D + 2): unnormalized y, maximum, sum
    int *tickets;    // (blocks), zero before and after
};

constexpr int SPLITS = 16, SPLIT_KEYS = 128; // most parts of the keys; fewest keys per part

/* A block's part of the keys that its queries see. The split depends only on the number of keys. */
struct KeyRange : Visible {
    int part, parts;

    __device__ inline KeyRange(const Problem &p, const Fresh &fresh, const Splits &splits,
                               const HeadTile &first, int last_query)
        : Visible(p, fresh, first, last_query) {
        const int shown = max(0, end - begin);
        const int share = max(SPLIT_KEYS, (shown + splits.most - 1) / splits.most);
        part = int(blockIdx.y);
        parts = max(1, (shown + share - 1) / share);
        begin += part * share;
        end = min(begin + share, end);
    }
};

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

constexpr int THREADS = 256, WARPS = THREADS / 32, COLUMNS = 8;
constexpr int UNROLL = 2; // keys per thread and round

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

/* Floor: 2 * keys * kv_heads * D * sizeof(T) bytes. */
/* Anatomy. Parallel: over a head's queries, or 4 of them; up to 16 parts of the keys. Launch: queries x heads
 * x batch, by parts, or divided by 4; blocks of 256. Holds: 75 to 128 registers, 66 to 97 KiB shared.
 * Occupancy: registers; 25% of the warps. Reads: 16 bytes per load, coalesced within a head's row, 2 or 4
 * rounds of 2 keys in flight. Syncs: shuffles and one barrier; two more and a ticket where keys are split.
 * Fusion: the projections around it: kernels/decode does. */
template <class T, int LANES, int QUERIES>
__global__ void __launch_bounds__(THREADS, 2)
    decode_kernel(const __grid_constant__ Problem p, const __grid_constant__ Fresh fresh,
                  const __grid_constant__ Splits splits) {
    constexpr int GROUPS = THREADS / LANES;
    extern __shared__ Words shared_words[];
    __shared__ alignas(16) SeenRow<LANES * COLUMNS> results[WARPS][QUERIES];

    HeadTile mine = block_tile((p.queries + QUERIES - 1) / QUERIES, p.heads);
    mine.tile *= QUERIES; // the first
    const int lane = int(threadIdx.x) % LANES, group = int(threadIdx.x) / LANES;
    const int column = lane * COLUMNS, count = p.width - column, kv_head = mine.head / p.group;
    wait_for_previous();
    let_next_start();
    const KeyRange range(p, fresh, splits, mine, mine.tile + QUERIES - 1);
    if (range.part >= range.parts) return;
    const int end = range.end, past = range.past;
    const T *const k = head_rows<T>(p, p.k, mine.b, kv_head) + column;
    const T *const v = head_rows<T>(p, p.v, mine.b, kv_head) + column;
    const T *const new_k = head_rows<T>(p, fresh.k, mine.b, kv_head) + column;
    const T *const new_v = head_rows<T>(p, fresh.v, mine.b, kv_head) + column;

    float q[QUERIES][COLUMNS];
    Seen<COLUMNS> group_seen[QUERIES];
#pragma unroll
    for (int a = 0; a < QUERIES; a++) {
        const int query = min(mine.tile + a, p.queries - 1);
        load_columns<COLUMNS>(head_rows<T>(p, p.q, mine.b, mine.head) + query * p.q.row + column, count,
                              p.q.vector, q[a]);
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
    for (int i = 0; i < AHEAD; i++) start(range.begin + group + i * STEP, i);

    int stage = 0;
#pragma unroll 1
    for (int first = range.begin + group; first - group < end; first += STEP) {
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
        for (int a = 0; a < QUERIES; a++) {
            const int own_end = QUERIES == 1 ? end : min(end, range.by(p, mine.tile + a));
            float s[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                s[u] = 0.0f;
#pragma unroll
                for (int i = 0; i < COLUMNS; i++) s[u] = fmaf(q[a][i], k_rows[u][i], s[u]);
                s[u] = lanes_sum<LANES>(s[u]);
                if (first + u * GROUPS >= own_end) s[u] = -INFINITY;
            }
            add_keys(group_seen[a], s, [&](int u, float(&v)[COLUMNS]) {
#pragma unroll
                for (int i = 0; i < COLUMNS; i++) v[i] = v_rows[u][i];
            });
        }
    }
    if (range.part == 0 && mine.head % p.group == 0) append<T>(p, fresh, mine, QUERIES, past);

    const int warp = int(threadIdx.x) / 32;
#pragma unroll
    for (int a = 0; a < QUERIES; a++) {
        merge_warp<LANES>(group_seen[a]);
        SeenRow<LANES *COLUMNS> &result = results[warp][a];
        if (int(threadIdx.x) % 32 < LANES) store_floats<COLUMNS>(&result[column], group_seen[a].y);
        if (threadIdx.x % 32 == 0) {
            result[LANES * COLUMNS] = group_seen[a].maximum;
            result[LANES * COLUMNS + 1] = group_seen[a].sum;
        }
    }
    __syncthreads();
    merge_and_write<T>(p, splits, range, BlockRows{mine, 1, QUERIES}, results);
}

template <class T, int LANES, int QUERIES>
Status launch(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits) {
    const int64_t tiles = divide_up(p.queries, QUERIES) * p.heads * p.batch;
    return LAUNCH_EARLY(ctx, (decode_kernel<T, LANES, QUERIES>), dim3(unsigned(tiles), unsigned(splits.most)),
                        THREADS, KeyRing<T>::BYTES, p, fresh, splits);
}

/* Queries are taken together where the keys are not split. That changes no sum. */
template <class T, int LANES>
Status launch_queries(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits) {
    if (splits.most == 1 && p.queries >= 4 && !p.starts) return launch<T, LANES, 4>(ctx, p, fresh, splits);
    return launch<T, LANES, 1>(ctx, p, fresh, splits);
}

/* Splits the keys of each of `blocks` blocks of `rows` rows into as many parts as the longest row allows and
 * the device can run at once; with FUSE_INVARIANT into one, because the number of rows must not change the
 * sums. */
Status take_splits(Ctx *ctx, const Problem &p, int64_t longest, int64_t blocks, int64_t rows,
                   Splits *splits) {
    const int64_t room = cuda_device(ctx)->multiprocessors;
    int64_t most = divide_up(longest, SPLIT_KEYS);
    if (most > SPLITS) most = SPLITS;
    if (most > room / blocks) most = room / blocks;
    if (most < 1 || blocks > TICKETS || ctx->fuses & FUSE_INVARIANT) most = 1;
    *splits = {int(most), nullptr, cuda_device(ctx)->tickets};
    if (most == 1) return OK;
    Tensor partials;
    TRY(take(ctx, ARENA_SCRATCH, "attention.partials", F32, shape3(blocks, most, rows * (p.width + 2)),
             &partials));
    splits->partials = data_of<float>(partials);
    return OK;
}

template <class T>
Status launch_width(Ctx *ctx, const Problem &p, const Fresh &fresh, const Splits &splits) {
    if (p.width <= 64) return launch_queries<T, 8>(ctx, p, fresh, splits);
    if (p.width <= 128) return launch_queries<T, 16>(ctx, p, fresh, splits);
    return launch_queries<T, 32>(ctx, p, fresh, splits);
}

} // namespace

/* The new rows, and p without them; `longest`: the most keys. */
static Fresh fresh_of(const AttentionForward *a, Problem *p, int64_t *longest) {
    *longest = p->keys;
    if (tensor_empty(a->cache_k)) return {p->k, p->v, 0, nullptr, nullptr};
    const Fresh fresh = {make_rows(a->k, p->width), make_rows(a->v, p->width), int(a->k.shape.d[1]),
                         data_of<int>(a->past_on_device), data_of<int>(a->pasts)};
    p->k.vector = p->k.vector && fresh.k.vector;
    p->v.vector = p->v.vector && fresh.v.vector;
    *longest = a->cache_k.shape.d[1];
    return fresh;
}

Status forward_decode(Ctx *ctx, const Problem *problem, const AttentionForward *a) {
    Problem p = *problem;
    int64_t longest;
    const Fresh fresh = fresh_of(a, &p, &longest);
    if (fits_decode_tensor(ctx, p)) {
        PRIMITIVE (ctx, "decode", ATTENTION) TRY(decode_tensor(ctx, p, fresh, longest));
        return OK;
    }
    Splits splits;
    TRY(take_splits(ctx, p, longest, p.queries * p.heads * p.batch, 1, &splits));
    PRIMITIVE (ctx, "decode", ATTENTION)
        DISPATCH_FLOAT(p.dtype, T, TRY(launch_width<T>(ctx, p, fresh, splits)));
    return OK;
}

Status forward_token(Ctx *ctx, const AttentionForward *a, const TokenTurn &turn) {
    Problem p;
    int64_t longest;
    TRY(make_problem(a, &p));
    const Fresh fresh = fresh_of(a, &p, &longest);
    if (!fits_decode_token(ctx, p, fresh))
        return fail(ERROR_INTERNAL, "attention: no kernel takes this token");
    PRIMITIVE (ctx, "attention", ATTENTION) TRY(decode_token(ctx, p, fresh, turn, longest));
    return OK;
}

} // namespace attention
