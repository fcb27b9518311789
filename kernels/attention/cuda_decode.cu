/* Attention of a few queries by fused multiply-adds, for fp32 and rows that are not whole vectors: bound by
 * reading k and v once. */
#include "kernels/attention/cuda_decode.cuh"
#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/words.cuh"

/* A block takes one query of one head, or QUERIES of one head. LANES threads share a key, 8 columns each; a
 * thread copies its columns of the next rounds of keys into a ring in shared memory. */

namespace attention {
namespace {

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
            const int own_end = QUERIES == 1 ? end : min(end, range.seen_by(p, mine.tile + a));
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
    int heads = 1, queries = 1;
    const bool on_tensor_cores = fits_decode_tensor(ctx, p);
    if (on_tensor_cores) tensor_decode_rows(ctx, p, &heads, &queries);
    const int64_t blocks = divide_up(p.queries, queries) * (p.heads / heads) * p.batch;
    TRY(take_splits(ctx, p, longest, blocks, int64_t(heads) * queries, &splits));
    PRIMITIVE (ctx, "decode", ATTENTION) {
        if (on_tensor_cores)
            TRY(decode_tensor(ctx, p, fresh, splits, heads, queries));
        else
            DISPATCH_FLOAT(p.dtype, T, TRY(launch_width<T>(ctx, p, fresh, splits)));
    }
    return OK;
}

} // namespace attention
