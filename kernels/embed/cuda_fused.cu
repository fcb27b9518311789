#include "kernels/embed/embed.h"

#include "kernels/cuda/packs.cuh"
#include "kernels/cuda/words.cuh"
#include "kernels/embed/cuda_sort.cuh"

/* Rows are processed in packs of N elements: 16 bytes, or one element if width or addresses are not
 * aligned. */
namespace {

constexpr int WARP = 32;
constexpr int ROWS = 8;      // rows or pieces per block, one warp each
constexpr int PIECE = WARP;  // sorted positions per warp: a lane holds one token and its row
constexpr int BATCH = 4;     // rows of dy in flight per warp
constexpr int RUN_LANES = 8; // threads that share the pieces of a long run

template <typename T, int N>
__device__ __forceinline__ void add_to(float (&sum)[N], const Words &words, float factor = 1.f) {
    float x[N];
    unpack_of<T, N>(words, x);
#pragma unroll
    for (int e = 0; e < N; e++) sum[e] = fmaf(factor, x[e], sum[e]);
}

/* Inputs of y: rows of one to three tables. */
template <typename T>
struct Tables {
    const int32_t *tokens, *segments;    // (rows) each; segments NULL: all 0
    const T *token, *position, *segment; // the last two may be NULL
    float scale;
    int64_t past;
    const int32_t *past_on_device; // NULL: use past
    const int32_t *pasts;          // of each batch row; NULL: one past for all
};

/* Floor: read the tables' rows, write y: up to 4 * rows * C * sizeof(T) bytes, less what caches hold. */
/* Anatomy. Parallel: over rows, a warp each. Launch: rows / 8 blocks of 32 x 8. Holds: 30 to 39 registers, no
 * shared memory. Occupancy: registers; 75 to 100% of the warps. Reads: 16 bytes per load, coalesced within a
 * row, 3 tables; one element where rows are not aligned. Syncs: none. Fusion: with the first norm, which
 * reads the row again. */
template <typename T, int N>
__global__ void __launch_bounds__(ROWS *WARP)
    gather_rows(const Tables<T> t, int64_t rows, int64_t columns, int64_t width, T *y) {
    wait_for_previous();
    let_next_start();
    const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (row >= rows) return;
    const int64_t past = t.pasts ? t.pasts[row / columns] : t.past_on_device ? *t.past_on_device : t.past;
    const T *from = t.token + t.tokens[row] * width, *position = t.position + (past + row % columns) * width;
    const T *kind = t.segment + (t.segments ? t.segments[row] : 0) * width;
#pragma unroll 4
    for (int64_t c = threadIdx.x * N; c < width; c += WARP * N) {
        float sum[N] = {};
        add_to<T, N>(sum, load_words_of<T, N>(from + c), t.scale);
        if (t.position) add_to<T, N>(sum, load_words_of<T, N>(position + c));
        if (t.segment) add_to<T, N>(sum, load_words_of<T, N>(kind + c));
        store_floats(y + row * width + c, sum);
    }
}

/* Writes the sum to `to`, or adds it to the value there, and resets the sum. */
template <int N>
__device__ __forceinline__ void flush(float (&sum)[N], float *to, bool add) {
    if (add) {
        float before[N];
        load_floats(to, before);
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += before[e];
    }
    store_floats(to, sum);
#pragma unroll
    for (int e = 0; e < N; e++) sum[e] = 0.f;
}

/* A warp sums the sorted positions of one piece, for one tile of columns. A run of equal tokens that
 * begins in the piece is added to the table; no other warp writes there. A run continued from the piece
 * before goes to partials. Floor: rows * C * sizeof(T) bytes read, and 8 bytes per element of each
 * distinct row of the table. */
/* Anatomy. Parallel: over pieces of 32 sorted positions, a warp each, and tiles of columns. Launch: positions
 * / 256 x width / (32 packs) blocks of 32 x 8. Holds: 32 to 62 registers, no shared memory. Occupancy:
 * registers; 50 to 100% of the warps. Reads: 16 bytes per load, coalesced within a row, 4 rows in flight.
 * Syncs: warp shuffles only. Fusion: with add_runs, were a run never longer than a piece. */
template <typename T, int N>
__global__ void __launch_bounds__(ROWS *WARP)
    add_pieces(const int32_t *__restrict__ tokens, const int32_t *__restrict__ rows, const T *__restrict__ dy,
               int64_t count, int64_t width, float scale, float *__restrict__ dtoken,
               float *__restrict__ partials) {
    const int lane = threadIdx.x;
    const int64_t piece = (int64_t)blockIdx.x * ROWS + threadIdx.y, first = piece * PIECE;
    const int64_t column = ((int64_t)blockIdx.y * WARP + lane) * N;
    if (first >= count) return; // whole warps
    const int length = (int)(count - first < PIECE ? count - first : PIECE);
    const int my_token = lane < length ? tokens[first + lane] : -1;
    const int my_row = lane < length ? rows[first + lane] : 0;
    const int before = first > 0 ? tokens[first - 1] : -1;

    float sum[N] = {};
    for (int start = 0; start < length; start += BATCH) {
        Words words[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int64_t row = __shfl_sync(0xffffffffu, my_row, start + b);
            if (start + b < length && column < width)
                words[b] = load_words_of<T, N>(dy + row * width + column);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int at = start + b, token = __shfl_sync(0xffffffffu, my_token, at);
            const int next = __shfl_sync(0xffffffffu, my_token, (at + 1) % WARP);
            if (at >= length || column >= width) continue;
            add_to<T, N>(sum, words[b], scale);
            if (at + 1 < length && next == token) continue;
            const bool begins =
                token != before; // positions are sorted: only the first run can be a continuation
            flush(sum, begins ? dtoken + token * width + column : partials + piece * width + column, begins);
        }
    }
}

/* The first later piece that begins with another token, or `pieces`. */
__device__ __forceinline__ int64_t run_end(const int32_t *tokens, int64_t piece, int64_t pieces) {
    const int token = tokens[piece * PIECE];
    int64_t inside = piece;
    while (pieces - inside > 1) {
        const int64_t middle = inside + (pieces - inside) / 2;
        if (tokens[middle * PIECE] == token)
            inside = middle;
        else
            pieces = middle;
    }
    return pieces;
}

/* A block adds the partials of the run that first continues in piece blockIdx.x + 1, for one tile of
 * columns; blocks without such a run exit. Lane y sums every RUN_LANES-th piece, then the lanes are added
 * in order. */
/* Anatomy. Parallel: over runs that cross pieces, a block each, and tiles of columns. Launch: (positions / 32
 * - 1) x width / 128 blocks of 32 x 8, most of which return. Holds: 32 to 40 registers, 2048 bytes to 5 KiB
 * shared. Occupancy: registers; 75 to 100% of the warps. Reads: 16 bytes of fp32 a load, coalesced, 4 in
 * flight. Syncs: one barrier. Fusion: with add_pieces, were a run never longer than a piece. */
template <int N>
__global__ void __launch_bounds__(RUN_LANES *WARP)
    add_runs(const int32_t *__restrict__ tokens, int64_t count, int64_t width, float *__restrict__ dtoken,
             const float *__restrict__ partials) {
    const int64_t piece = (int64_t)blockIdx.x + 1, first = piece * PIECE;
    const int token = tokens[first];
    if (tokens[first - 1] != token || (piece > 1 && tokens[first - PIECE - 1] == token)) return;
    __shared__ float sums[RUN_LANES][WARP][N + 1];
    const int64_t column = ((int64_t)blockIdx.y * WARP + threadIdx.x) * N;
    const int64_t end = column < width ? run_end(tokens, piece, divide_up(count, PIECE)) : 0;
    float sum[N] = {};
#pragma unroll 4
    for (int64_t p = piece + threadIdx.y; p < end; p += RUN_LANES) {
        float x[N];
        load_floats(partials + p * width + column, x);
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += x[e];
    }
#pragma unroll
    for (int e = 0; e < N; e++) sums[threadIdx.y][threadIdx.x][e] = sum[e];
    __syncthreads();
    if (threadIdx.y > 0 || column >= width) return;
    for (int lane = 1; lane < RUN_LANES; lane++)
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += sums[lane][threadIdx.x][e];
    flush(sum, dtoken + token * width + column, true);
}

/* dposition[i] += sum over b of dy[b,i], in the order of b. Floor: rows * C * sizeof(T) bytes. */
/* Anatomy. Parallel: over packs of a position's row; a thread sums over batch rows. Launch: period / (256
 * packs) blocks of 256. Holds: 28 to 38 registers, no shared memory. Occupancy: registers; 75 to 100% of the
 * warps. Reads: 16 bytes per load, coalesced, 8 batch rows in flight. Syncs: none. Fusion: with add_pieces,
 * which reads the same dy. */
template <typename T, int N>
__global__ void __launch_bounds__(ROWS *WARP)
    add_batches(const T *__restrict__ dy, int64_t batch, int64_t period, float *__restrict__ dposition) {
    const int64_t i = (int64_t)(blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i >= period) return;
    float sum[N] = {};
#pragma unroll 8
    for (int64_t b = 0; b < batch; b++) add_to<T, N>(sum, load_words_of<T, N>(dy + b * period + i));
    flush(sum, dposition + i, true);
}

template <typename T>
Status forward(Ctx *ctx, const EmbedForward *e) {
    const int64_t rows = tensor_count(e->tokens), width = tensor_width(e->y);
    const Tables<T> tables = {data_of<int32_t>(e->tokens),
                              data_of<int32_t>(e->segments),
                              data_of<T>(e->token),
                              data_of<T>(e->position),
                              data_of<T>(e->segment),
                              (float)e->scale,
                              e->past,
                              data_of<int32_t>(e->past_on_device),
                              data_of<int32_t>(e->pasts)};
    T *y = data_of<T>(e->y);
    const bool packs = walks_in_packs(VECTOR<T>, {width}, {tables.token, tables.position, tables.segment, y});
    const unsigned blocks = (unsigned)divide_up(rows, ROWS);
    PRIMITIVE (ctx, "gather and add", EMBEDDING)
        DISPATCH_PACK(packs, T, N,
                      TRY(LAUNCH_EARLY(ctx, (gather_rows<T, N>), blocks, dim3(WARP, ROWS), 0, tables, rows,
                                       tensor_width(e->tokens), width, y)));
    return OK;
}

template <typename T, int N>
Status scatter(Ctx *ctx, const EmbedBackward *e, const TokenSort *sort) {
    constexpr int NARROW = N == 1 ? 1 : VECTOR<float>; // partials are fp32
    const int64_t count = tensor_count(sort->tokens), width = tensor_width(e->dy);
    const int32_t *tokens = data_of<int32_t>(sort->tokens), *rows = data_of<int32_t>(sort->rows);
    float *partials = data_of<float>(sort->partials), *dtoken = data_of<float>(e->dtoken);
    const int64_t pieces = divide_up(count, PIECE);
    if (pieces == 0) return OK;
    const dim3 grid((unsigned)divide_up(pieces, ROWS), (unsigned)divide_up(width, WARP * N));
    TRY(LAUNCH(ctx, (add_pieces<T, N>), grid, dim3(WARP, ROWS), 0, tokens, rows, data_of<T>(e->dy), count,
               width, (float)e->forward->scale, dtoken, partials));
    const dim3 runs((unsigned)(pieces - 1), (unsigned)divide_up(width, WARP * NARROW));
    return LAUNCH(ctx, add_runs<NARROW>, runs, dim3(WARP, RUN_LANES), 0, tokens, count, width, dtoken,
                  partials);
}

template <typename T>
Status backward(Ctx *ctx, const EmbedBackward *e) {
    const EmbedForward *f = e->forward;
    const int64_t width = tensor_width(e->dy), vocabulary = tensor_rows(e->dtoken);
    const int64_t period = tensor_width(f->tokens) * width;
    TokenSort sort;
    TRY(token_sort_take(ctx, tensor_count(f->tokens), vocabulary, width, &sort));
    const bool packs = walks_in_packs(VECTOR<T>, {width}, {e->dy.data, e->dtoken.data, sort.partials.data});
    PRIMITIVE (ctx, "token sort", EMBEDDING, torch_call("aten::embedding_dense_backward"))
        TRY(token_sort(ctx, f->tokens, vocabulary, &sort));
    PRIMITIVE (ctx, "token scatter add", EMBEDDING, torch_part("aten::embedding_dense_backward"))
        DISPATCH_PACK(packs, T, N, TRY((scatter<T, N>(ctx, e, &sort))));
    if (!tensor_empty(e->dposition)) {
        const T *dy = data_of<T>(e->dy);
        float *dposition = data_of<float>(e->dposition) + f->past * width;
        PRIMITIVE (ctx, "position sum", EMBEDDING, torch_call("aten::embedding_dense_backward")) {
            DISPATCH_PACK(walks_in_packs(VECTOR<T>, {period}, {dy, dposition}), T, N,
                          TRY(LAUNCH(ctx, (add_batches<T, N>), (unsigned)divide_up(period, N * ROWS * WARP),
                                     ROWS * WARP, 0, dy, tensor_rows(f->tokens), period, dposition)));
        }
    }
    return tensor_empty(e->dsegment) ? OK : segment_sums(ctx, e->dy, f->segments, e->dsegment);
}

} // namespace

template <class T>
static Status embed_forward_cuda_fused(Ctx *ctx, const void *contract) {
    return forward<T>(ctx, (const EmbedForward *)contract);
}
SLOT(EMBED, FORWARD, CUDA, FUSED, F32, embed_forward_cuda_fused<float>);
SLOT(EMBED, FORWARD, CUDA, FUSED, BF16, embed_forward_cuda_fused<bf16>);

template <class T>
static Status embed_backward_cuda_fused(Ctx *ctx, const void *contract) {
    return backward<T>(ctx, (const EmbedBackward *)contract);
}
SLOT(EMBED, BACKWARD, CUDA, FUSED, F32, embed_backward_cuda_fused<float>);
SLOT(EMBED, BACKWARD, CUDA, FUSED, BF16, embed_backward_cuda_fused<bf16>);
