#include "kernels/embed/cuda_sort.cuh"

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/packs.cuh"

#include <cub/device/device_radix_sort.cuh>

static constexpr int PIECE = 16, THREADS = 128;

/* Anatomy. Parallel: over positions, one per thread and iteration. Launch: grid stride, at most 32 blocks of
 * 256 per multiprocessor. Holds: 28 registers, no shared memory. Occupancy: not limited: all warps fit.
 * Reads: nothing. Syncs: none. Fusion: with the sort, whose keys it numbers. */
static __global__ void count_up(int32_t *order, int64_t count) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) order[i] = (int32_t)i;
}

/* Block b sums the sorted positions [b * PIECE, (b + 1) * PIECE). A run of equal tokens that begins in the
 * piece is added to the table; a continuation of the piece before goes to partials. */
/* Anatomy. Parallel: over pieces of 16 sorted positions, a block each; threads over columns. Launch:
 * positions / 16 blocks of 128. Holds: 32 to 40 registers, no shared memory. Occupancy: registers; 75 to 100%
 * of the warps. Reads: 16 bytes per load, coalesced within a row; one element where rows are not aligned.
 * Syncs: none. Fusion: with add_runs, were a run never longer than a piece. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    add_pieces(const int32_t *__restrict__ tokens, const int32_t *__restrict__ rows, const T *__restrict__ dy,
               int64_t count, int64_t width, float scale, float *__restrict__ dtoken,
               float *__restrict__ partials) {
    int64_t first = (int64_t)blockIdx.x * PIECE, end = first + PIECE < count ? first + PIECE : count;
    bool goes_on = first > 0 && tokens[first - 1] == tokens[first];
    for (int64_t column = threadIdx.x * N; column < width; column += THREADS * N) {
        float sum[N] = {};
        for (int64_t p = first; p < end; p++) {
            int32_t token = tokens[p];
            float value[N];
            load_floats(dy + rows[p] * width + column, value);
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] = fmaf(scale, value[e], sum[e]);
            if (p + 1 < end && tokens[p + 1] == token) continue;
            if (goes_on && token == tokens[first]) {
                store_floats(partials + blockIdx.x * width + column, sum);
            } else {
                float *to = dtoken + token * width + column;
                load_floats(to, value);
#pragma unroll
                for (int e = 0; e < N; e++) sum[e] += value[e];
                store_floats(to, sum);
            }
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] = 0.0f;
        }
    }
}

/* Block b, if a run of equal tokens first continues in piece b: adds the partial sums of that run in
 * order. */
/* Anatomy. Parallel: over runs that cross pieces, a block each; threads over columns. Launch: positions / 16
 * blocks of 128, most of which return. Holds: 22 to 32 registers, no shared memory. Occupancy: not limited:
 * all warps fit. Reads: 16 bytes per load, coalesced, one at a time. Syncs: none. Fusion: with add_pieces,
 * were a run never longer than a piece. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
    add_runs(const int32_t *__restrict__ tokens, int64_t count, int64_t width, float *__restrict__ dtoken,
             const float *__restrict__ partials) {
    int64_t first = (int64_t)blockIdx.x * PIECE;
    if (first == 0) return;
    int32_t token = tokens[first];
    bool goes_on = tokens[first - 1] == token;
    bool went_on = first > PIECE && tokens[first - PIECE - 1] == token;
    if (!goes_on || went_on) return;
    for (int64_t column = threadIdx.x * N; column < width; column += THREADS * N) {
        float sum[N], value[N];
        float *to = dtoken + token * width + column;
        load_floats(to, sum);
        const float *partial = partials + blockIdx.x * width + column;
        for (int64_t p = first; p < count && tokens[p] == token; p += PIECE, partial += width) {
            load_floats(partial, value);
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] += value[e];
        }
        store_floats(to, sum);
    }
}

/* With temporary = NULL, queries the scratch size of the sort. */
static cudaError_t sort_pairs(void *temporary, size_t *bytes, const void *tokens, const TokenSort *sort,
                              int64_t count, int64_t vocabulary, cudaStream_t stream) {
    int bits = 1; // bits of the largest token
    while (bits < 31 && (vocabulary - 1) >> bits) bits++;
    return cub::DeviceRadixSort::SortPairs(temporary, *bytes, static_cast<const uint32_t *>(tokens),
                                           data_of<uint32_t>(sort->tokens), data_of<int32_t>(sort->order),
                                           data_of<int32_t>(sort->rows), (int)count, 0, bits, stream);
}

Status token_sort_take(Ctx *ctx, int64_t count, int64_t vocabulary, int64_t width, TokenSort *sort) {
    if (count > INT32_MAX)
        return fail(ERROR_USAGE, "%lld tokens in one batch are too many", (long long)count);
    size_t bytes = 0;
    TRY(take(ctx, ARENA_SCRATCH, "embed.order", I32, shape1(count), &sort->order));
    TRY(take(ctx, ARENA_SCRATCH, "embed.tokens", I32, shape1(count), &sort->tokens));
    TRY(take(ctx, ARENA_SCRATCH, "embed.rows", I32, shape1(count), &sort->rows));
    CUDA_TRY(sort_pairs(nullptr, &bytes, nullptr, sort, count, vocabulary, cuda_device(ctx)->stream));
    TRY(take(ctx, ARENA_SCRATCH, "embed.sort", I32, shape1(divide_up(bytes, sizeof(int32_t)) + 1),
             &sort->temporary));
    return take(ctx, ARENA_SCRATCH, "embed.partials", F32, shape2(divide_up(count, PIECE), width),
                &sort->partials);
}

Status token_sort(Ctx *ctx, Tensor tokens, int64_t vocabulary, const TokenSort *sort) {
    int64_t count = tensor_count(tokens);
    size_t bytes = tensor_bytes(sort->temporary);
    TRY(LAUNCH(ctx, count_up, grid_stride_blocks(ctx, count, 256), 256, 0, data_of<int32_t>(sort->order),
               count));
    CUDA_TRY(sort_pairs(sort->temporary.data, &bytes, tokens.data, sort, count, vocabulary,
                        cuda_device(ctx)->stream));
    ctx->device->launches++; // the library's sort counts as one launch
    return OK;
}

template <class T>
static Status scatter_add(Ctx *ctx, const TokenSort *sort, Tensor dy, double scale, Tensor dtoken) {
    int64_t count = tensor_count(sort->tokens), width = tensor_width(dy);
    const int32_t *tokens = data_of<int32_t>(sort->tokens), *rows = data_of<int32_t>(sort->rows);
    float *partials = data_of<float>(sort->partials);
    unsigned pieces = (unsigned)divide_up(count, PIECE);
    bool packed = walks_in_packs(VECTOR<T>, {width}, {dy.data, dtoken.data, partials});
    TRY(LAUNCH_PACKED(ctx, add_pieces, T, packed, pieces, THREADS, tokens, rows, data_of<T>(dy), count, width,
                      (float)scale, data_of<float>(dtoken), partials));
    return LAUNCH_PACKED(ctx, add_runs, T, packed, pieces, THREADS, tokens, count, width,
                         data_of<float>(dtoken), partials);
}

Status token_scatter_add(Ctx *ctx, const TokenSort *sort, Tensor dy, double scale, Tensor dtoken) {
    DISPATCH_FLOAT(dy.dtype, T, return scatter_add<T>(ctx, sort, dy, scale, dtoken));
}

Status segment_sums(Ctx *ctx, Tensor dy, Tensor segments, Tensor dsegment) {
    int64_t width = tensor_width(dsegment);
    Tensor partials;
    TRY(columns_take(ctx, dy, &partials));
    for (int kind = 0; kind < (int)tensor_rows(dsegment); kind++) {
        Tensor sum = dsegment; // one row
        sum.data = data_of<float>(dsegment) + kind * width;
        sum.shape = shape1(width);
        PRIMITIVE (ctx, "segment sum", EMBEDDING, torch_call("aten::embedding_dense_backward"))
            TRY(columns_add_kind(ctx, dy, segments, kind, partials, sum));
    }
    return OK;
}
