/* Flash attention by fused multiply-adds in fp32, for any dtype and any D. */
#include "kernels/attention/cuda_problem.cuh"
#include "kernels/cuda/reduce.cuh"

/* This is the path of fp32, and of bf16 heads too wide for the tensor cores' tiles. A block of 16 x 16
 * threads works on tiles of 64 queries by 64 keys: in a product of two tiles thread (y, x) owns rows 4 y to 4
 * y + 3. Scores sum over D in chunks of COLUMNS; a block owns COLUMNS columns of its result, so wider heads
 * recompute their scores once per chunk of columns. Forward: Dao 2023, algorithm 1. Backward: Dao et al.
 * 2022, algorithm 4, with one owner for each sum, as in cuda_tensor_backward.cu. */

namespace attention {
namespace {

constexpr int TILE = 64, THREADS = 256, SCORES_PITCH = TILE + 4;

/* Tiles of 64 rows in shared memory. A row has an odd number of 16-byte vectors, which avoids bank
 * conflicts. */
template <int COLUMNS>
constexpr int PITCH = COLUMNS + 4;

__device__ inline int thread_x() {
    return int(threadIdx.x) % 16;
}
__device__ inline int thread_y() {
    return int(threadIdx.x) / 16;
}

/* Loads rows [first, first + 64), columns [column, column + COLUMNS) as fp32, zero from row `end` and column
 * `width` on. Needs a barrier before it, while the tile may still be in use, and one after it. */
template <class T, int COLUMNS>
__device__ inline void load_tile(float *tile, const T *from, const Rows &rows, int first, int end, int column,
                                 int width) {
    constexpr int N = VECTOR<T>;
    __syncthreads();
#pragma unroll 4
    for (int index = int(threadIdx.x); index < TILE * COLUMNS / N; index += THREADS) {
        const int row = index / (COLUMNS / N), inner = index % (COLUMNS / N) * N;
        const T *source = from + (first + row) * rows.row + column + inner;
        float x[N];
        load_columns<N>(source, first + row < end ? width - column - inner : 0, rows.vector, x);
        store_floats<N>(tile + row * PITCH<COLUMNS> + inner, x);
    }
    __syncthreads();
}

/* c[i][j] += a[4 y + i] . b[x + 16 j] over `columns` columns; up to the next multiple of 4 the tiles are
 * zero. */
template <int COLUMNS>
__device__ inline void multiply_transposed(float (&c)[4][4], const float *a, const float *b, int columns) {
#pragma unroll 4
    for (int k = 0; k < columns; k += 4) {
        float left[4][4], right[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            load_floats<4>(a + (4 * thread_y() + i) * PITCH<COLUMNS> + k, left[i]);
            load_floats<4>(b + (thread_x() + 16 * i) * PITCH<COLUMNS> + k, right[i]);
        }
#pragma unroll
        for (int inner = 0; inner < 4; inner++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) c[i][j] = fmaf(left[i][inner], right[j][inner], c[i][j]);
    }
}

/* c[i] += sum over k of a[4 y + i, k] b[k], or of a[k, 4 y + i] b[k] if TRANSPOSED. Elements 4 j to 4 j + 3
 * of c are columns 64 j + 4 x to 64 j + 4 x + 3 of b. */
template <int COLUMNS, bool TRANSPOSED>
__device__ inline void multiply(float (&c)[4][COLUMNS / 16], const float *a, const float *b) {
#pragma unroll 2
    for (int k = 0; k < TILE; k += 4) {
        float left[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            load_floats<4>(TRANSPOSED ? a + (k + i) * SCORES_PITCH + 4 * thread_y()
                                      : a + (4 * thread_y() + i) * SCORES_PITCH + k,
                           left[i]);
#pragma unroll
        for (int inner = 0; inner < 4; inner++)
#pragma unroll
            for (int j = 0; j < COLUMNS / 64; j++) {
                float right[4];
                load_floats<4>(b + (k + inner) * PITCH<COLUMNS> + 64 * j + 4 * thread_x(), right);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        c[i][4 * j + e] =
                            fmaf(TRANSPOSED ? left[inner][i] : left[i][inner], right[e], c[i][4 * j + e]);
            }
    }
}

/* c = rows of a times rows of b, over all D columns: scores, or dy v^T. The last chunks stay in shared
 * memory. */
template <class T, int COLUMNS>
__device__ inline void score_tile(float (&c)[4][4], float *a, const T *a_from, const Rows &a_rows,
                                  int a_first, int a_end, float *b, const T *b_from, const Rows &b_rows,
                                  int b_first, int b_end, int width) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) c[i][j] = 0.0f;
#pragma unroll 1
    for (int column = 0; column < width; column += COLUMNS) {
        load_tile<T, COLUMNS>(a, a_from, a_rows, a_first, a_end, column, width);
        load_tile<T, COLUMNS>(b, b_from, b_rows, b_first, b_end, column, width);
        multiply_transposed<COLUMNS>(c, a, b, min(COLUMNS, width - column));
    }
}

/* Writes thread (y, x)'s 4 rows of c, each times its `factor`, to rows [first, end) of `to`. */
template <class T, int COLUMNS>
__device__ inline void store_tile(const float (&c)[4][COLUMNS / 16], const float (&factor)[4], T *to,
                                  int64_t stride, int first, int end, int column, int width) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = first + 4 * thread_y() + i;
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++) {
            const int to_column = column + 64 * (j / 4) + 4 * thread_x() + j % 4;
            if (row < end && to_column < width)
                to[row * stride + to_column] = from_float<T>(factor[i] == 0.0f ? 0.0f : c[i][j] * factor[i]);
        }
    }
}

/* Reduces (sum or maximum) over the 16 threads that share rows. */
template <class Combine>
__device__ inline float row_reduce(float x, Combine combine) {
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2)
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

/* Anatomy. Parallel: over tiles of 64 queries of a head, a block each, and chunks of 64 or 128 columns.
 * Launch: queries / 64 x heads x batch, by chunks, blocks of 256. Holds: 128 registers, 52 to 83 KiB shared,
 * some spill. Occupancy: registers or shared memory; 25% of the warps. Reads: 16 bytes per load, coalesced
 * within a row of a tile, through registers to shared memory. Syncs: two barriers per tile and operand;
 * shuffles in the softmax. Fusion: the rotary turn of q and k. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__(THREADS) forward_kernel(const __grid_constant__ Problem p) {
    extern __shared__ float4 shared_memory[];
    float *const a = reinterpret_cast<float *>(shared_memory);
    float *const b = a + TILE * PITCH<COLUMNS>;
    float *const probabilities = b + TILE * PITCH<COLUMNS>;

    const int tiles = (p.queries + TILE - 1) / TILE;
    const HeadTile mine = block_tile(tiles, p.heads);
    const int first = (tiles - 1 - mine.tile) * TILE, row = first + 4 * thread_y();
    const int column = int(blockIdx.y) * COLUMNS;
    const int length = key_length(p, mine.b), last = min(first + TILE, p.queries) - 1;
    const int end = keys_seen(p, length, last);
    const T *const q = head_rows<T>(p, p.q, mine.b, mine.head);
    const T *const k = head_rows<T>(p, p.k, mine.b, mine.head / p.group);
    const T *const v = head_rows<T>(p, p.v, mine.b, mine.head / p.group);
    const float scale = p.scale * LOG2_E;
    const uint32_t draw = p.dropout.on() ? (uint32_t)*p.dropout.draw : 0;

    float y[4][COLUMNS / 16] = {}, maximum[4], sum[4] = {};
    for (int i = 0; i < 4; i++) maximum[i] = -INFINITY;
#pragma unroll 1
    for (int key = first_key(p, mine.b, first) / TILE * TILE; key < end; key += TILE) {
        float s[4][4];
        score_tile<T, COLUMNS>(s, a, q, p.q, first, p.queries, b, k, p.k, key, length, p.width);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int seen = keys_seen(p, length, row + i) - key, from = first_key(p, mine.b, row + i) - key;
            float new_maximum = maximum[i];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int column = thread_x() + 16 * j;
                s[i][j] = column >= from && column < seen ? s[i][j] * scale : -INFINITY;
                new_maximum = fmaxf(new_maximum, s[i][j]);
            }
            new_maximum = row_reduce(new_maximum, Max());
            // a row that has seen no key has maximum -inf, and all its exponentials must be 0
            const float base = new_maximum == -INFINITY ? 0.0f : new_maximum;
            const float correction = exp2f(maximum[i] - base);
            maximum[i] = new_maximum;
            float step_sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float x = exp2f(s[i][j] - base);
                const int column = thread_x() + 16 * j;
                float shown = x;
                if (p.dropout.on()) shown *= kept(p, draw, mine.b, mine.head, row + i, key + column);
                probabilities[(4 * thread_y() + i) * SCORES_PITCH + column] = shown;
                step_sum += x;
            }
            sum[i] = sum[i] * correction + row_reduce(step_sum, Sum());
#pragma unroll
            for (int j = 0; j < COLUMNS / 16; j++) y[i][j] *= correction;
        }
        load_tile<T, COLUMNS>(b, v, p.v, key, length, column, p.width); // the barriers in load_tile also
                                                                        // publish p
        multiply<COLUMNS, false>(y, probabilities, b);
    }

    float factor[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        factor[i] = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
        if (p.lse && blockIdx.y == 0 && thread_x() == 0 && row + i < p.queries)
            p.lse[(int64_t(mine.b) * p.heads + mine.head) * p.queries + row + i] =
                sum[i] == 0.0f ? -INFINITY : (maximum[i] + log2f(sum[i])) * LN_2;
    }
    store_tile<T, COLUMNS>(y, factor, head_rows<T>(p, p.y, mine.b, mine.head), p.y.row, first, p.queries,
                           column, p.width);
}

/* Writes p and ds = p (dp - delta) of one tile, (query, key), to shared memory; only ds if `p_tile` is
 * NULL. */
template <class T, int COLUMNS>
__device__ inline void gradient_tiles(const Problem &p, float *a, float *b, float *p_tile, float *ds_tile,
                                      int batch, int head, int query, int key, int length) {
    const T *const q = head_rows<T>(p, p.q, batch, head), *const dy = head_rows<T>(p, p.dy, batch, head);
    const T *const k = head_rows<T>(p, p.k, batch, head / p.group);
    const T *const v = head_rows<T>(p, p.v, batch, head / p.group);
    float s[4][4], dp[4][4];
    score_tile<T, COLUMNS>(s, a, q, p.q, query, p.queries, b, k, p.k, key, length, p.width);
    score_tile<T, COLUMNS>(dp, a, dy, p.dy, query, p.queries, b, v, p.v, key, length, p.width);
    const float2 *const statistics = p.statistics + (int64_t(batch) * p.heads + head) * p.queries;
    const uint32_t draw = p.dropout.on() ? (uint32_t)*p.dropout.draw : 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = query + 4 * thread_y() + i;
        const int seen = row < p.queries ? keys_seen(p, length, row) - key : 0;
        const int from = first_key(p, batch, row) - key;
        const float2 statistic = row < p.queries ? statistics[row] : make_float2(0.0f, 0.0f);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int column = thread_x() + 16 * j, index = (4 * thread_y() + i) * SCORES_PITCH + column;
            const bool sees = column >= from && column < seen;
            const float x = sees ? exp2f(s[i][j] * (p.scale * LOG2_E) - statistic.x) : 0.0f;
            const float keep = p.dropout.on() ? kept(p, draw, batch, head, row, key + column) : 1.0f;
            if (p_tile) p_tile[index] = x * keep;
            ds_tile[index] = x * (dp[i][j] * keep - statistic.y);
        }
    }
}

/* dk and dv of 64 keys: a pass over the queries of every head of the group. */
/* Anatomy. Parallel: over tiles of 64 keys of a key head, a block each, and chunks of 64 or 128 columns.
 * Launch: keys / 64 x key heads x batch, by chunks, blocks of 256. Holds: 192 to 224 registers, 68 to 100 KiB
 * shared. Occupancy: registers; 12% of the warps. Reads: 16 bytes per load, coalesced within a row of a tile,
 * through registers to shared memory. Syncs: two barriers per tile and operand. Fusion: with queries_kernel,
 * as on Hopper; the rotary turn back. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__(THREADS) keys_kernel(const __grid_constant__ Problem p) {
    extern __shared__ float4 shared_memory[];
    float *const a = reinterpret_cast<float *>(shared_memory);
    float *const b = a + TILE * PITCH<COLUMNS>;
    float *const p_tile = b + TILE * PITCH<COLUMNS>;
    float *const ds_tile = p_tile + TILE * SCORES_PITCH;

    const HeadTile mine = block_tile((p.keys + TILE - 1) / TILE, p.kv_heads);
    const int key = mine.tile * TILE, column = int(blockIdx.y) * COLUMNS;
    const int length = key_length(p, mine.b);
    float dk[4][COLUMNS / 16] = {}, dv[4][COLUMNS / 16] = {};
#pragma unroll 1
    for (int head = mine.head * p.group; head < (mine.head + 1) * p.group && key < length; head++)
#pragma unroll 1
        for (int query = first_query(p, key) / TILE * TILE;
             query < p.queries && first_key(p, mine.b, query) < key + TILE; query += TILE) {
            gradient_tiles<T, COLUMNS>(p, a, b, p_tile, ds_tile, mine.b, head, query, key, length);
            load_tile<T, COLUMNS>(a, head_rows<T>(p, p.dy, mine.b, head), p.dy, query, p.queries, column,
                                  p.width);
            multiply<COLUMNS, true>(dv, p_tile, a);
            load_tile<T, COLUMNS>(b, head_rows<T>(p, p.q, mine.b, head), p.q, query, p.queries, column,
                                  p.width);
            multiply<COLUMNS, true>(dk, ds_tile, b);
        }
    const float dk_factor[4] = {p.scale, p.scale, p.scale, p.scale}, dv_factor[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    store_tile<T, COLUMNS>(dk, dk_factor, head_rows<T>(p, p.dk, mine.b, mine.head), p.dk.row, key, p.keys,
                           column, p.width);
    store_tile<T, COLUMNS>(dv, dv_factor, head_rows<T>(p, p.dv, mine.b, mine.head), p.dv.row, key, p.keys,
                           column, p.width);
}

/* dq of 64 queries: a pass over their keys. */
/* Anatomy. Parallel: over tiles of 64 queries of a head, a block each, and chunks of 64 or 128 columns.
 * Launch: queries / 64 x heads x batch, by chunks, blocks of 256. Holds: 128 to 150 registers, 52 to 83 KiB
 * shared, some spill. Occupancy: registers or shared memory; 12 to 25% of the warps. Reads: 16 bytes per
 * load, coalesced within a row of a tile, through registers to shared memory. Syncs: two barriers per tile
 * and operand. Fusion: with keys_kernel, as on Hopper; the rotary turn back. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__(THREADS) queries_kernel(const __grid_constant__ Problem p) {
    extern __shared__ float4 shared_memory[];
    float *const a = reinterpret_cast<float *>(shared_memory);
    float *const b = a + TILE * PITCH<COLUMNS>;
    float *const ds_tile = b + TILE * PITCH<COLUMNS>;

    const int tiles = (p.queries + TILE - 1) / TILE;
    const HeadTile mine = block_tile(tiles, p.heads);
    const int query = (tiles - 1 - mine.tile) * TILE, column = int(blockIdx.y) * COLUMNS;
    const int length = key_length(p, mine.b), last = min(query + TILE, p.queries) - 1;
    const int end = keys_seen(p, length, last);
    const T *const k = head_rows<T>(p, p.k, mine.b, mine.head / p.group);
    float dq[4][COLUMNS / 16] = {};
#pragma unroll 1
    for (int key = first_key(p, mine.b, query) / TILE * TILE; key < end; key += TILE) {
        gradient_tiles<T, COLUMNS>(p, a, b, nullptr, ds_tile, mine.b, mine.head, query, key, length);
        load_tile<T, COLUMNS>(b, k, p.k, key, length, column, p.width);
        multiply<COLUMNS, false>(dq, ds_tile, b);
    }
    const float factor[4] = {p.scale, p.scale, p.scale, p.scale};
    store_tile<T, COLUMNS>(dq, factor, head_rows<T>(p, p.dq, mine.b, mine.head), p.dq.row, query, p.queries,
                           column, p.width);
}

/* Bytes of shared memory for two tiles and `scores` tiles of scores. */
template <int COLUMNS>
size_t shared_bytes(int scores) {
    return sizeof(float) * TILE * (2 * PITCH<COLUMNS> + scores * SCORES_PITCH);
}

template <class T, int COLUMNS>
Status forward(Ctx *ctx, const Problem &p) {
    const dim3 grid(divide_up(p.queries, TILE) * p.heads * p.batch, divide_up(p.width, COLUMNS));
    return LAUNCH(ctx, (forward_kernel<T, COLUMNS>), grid, THREADS, shared_bytes<COLUMNS>(1), p);
}

template <class T, int COLUMNS>
Status backward(Ctx *ctx, const Problem &p) {
    const unsigned columns = divide_up(p.width, COLUMNS);
    const dim3 keys(divide_up(p.keys, TILE) * p.kv_heads * p.batch, columns);
    const dim3 queries(divide_up(p.queries, TILE) * p.heads * p.batch, columns);
    TRY(LAUNCH(ctx, (keys_kernel<T, COLUMNS>), keys, THREADS, shared_bytes<COLUMNS>(2), p));
    return LAUNCH(ctx, (queries_kernel<T, COLUMNS>), queries, THREADS, shared_bytes<COLUMNS>(1), p);
}

} // namespace

Status forward_exact(Ctx *ctx, const Problem *p) {
    DISPATCH_FLOAT(p->dtype, T, return p->width <= 64 ? forward<T, 64>(ctx, *p) : forward<T, 128>(ctx, *p));
}

Status backward_exact(Ctx *ctx, const Problem *p) {
    DISPATCH_FLOAT(p->dtype, T, return p->width <= 64 ? backward<T, 64>(ctx, *p) : backward<T, 128>(ctx, *p));
}

} // namespace attention
