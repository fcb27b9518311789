/* cast in two kernels: the largest magnitude must be known before anything is rounded; then one pass makes all that is
 * asked for. */
#include "kernels/cast/cast.h"

#include "kernels/cast/cuda_scale.cuh"
#include "kernels/cuda/words.cuh"

namespace {

constexpr int TILE = 128; // rows and columns of a block's tile
constexpr int COLUMNS = 8,
              ROWS = 4;      // a thread converts so many at a time; four rows are a word of the transpose
constexpr int THREADS = 256; // (16 along the columns, 16 along the rows)
constexpr int WORDS = TILE / ROWS; // of a column of the tile

/* Where the word of rows 4 * word of a column lies in shared memory, so that a warp's sixteen columns' neighbours by
 * eight, and its two words, fall into different banks. */
__device__ __forceinline__ int place(int column, int word) {
    return column * WORDS + (word ^ (column / COLUMNS * 2 & (WORDS - 1)));
}

/* The 4 x 8 values of four rows as bytes: `row` their words along the rows, two a row; `column` those along the columns. */
__device__ __forceinline__ void convert(const float (&x)[ROWS][COLUMNS], float scale,
                                        uint32_t (&row)[ROWS][2], uint32_t (&column)[COLUMNS]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float *v = &x[r][4 * half];
            row[r][half] = e4m3_of(v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) { // four rows of four bytes, transposed by two rounds of exchanges
        const uint32_t a = row[0][half], b = row[1][half], c = row[2][half], d = row[3][half];
        const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140); // a0 b0 a1 b1
        const uint32_t ef = __byte_perm(a, b, 0x7362), gh = __byte_perm(c, d, 0x7362); // a2 b2 a3 b3
        column[4 * half] = __byte_perm(ab, cd, 0x5410);
        column[4 * half + 1] = __byte_perm(ab, cd, 0x7632);
        column[4 * half + 2] = __byte_perm(ef, gh, 0x5410);
        column[4 * half + 3] = __byte_perm(ef, gh, 0x7632);
    }
}

/* y and t, either of which may be NULL, of a tile of x (rows, width), both multiples of 16.
 * Floor: read x, write y and t: rows * C * (sizeof(T) + 2) bytes. */
template <class T>
__global__ void __launch_bounds__(THREADS) cast_tile(const T *x, const uint32_t *maximum, int64_t rows,
                                                     int64_t width, uint8_t *y, uint8_t *t, float *scale) {
    __shared__ uint32_t tile[TILE * WORDS];
    const int across = threadIdx.x % (TILE / COLUMNS), down = threadIdx.x / (TILE / COLUMNS);
    const int64_t first = (int64_t)blockIdx.y * TILE, left = (int64_t)blockIdx.x * TILE;
    const int64_t c = left + across * COLUMNS;
    const float s = e4m3_scale(*maximum);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *scale = 1 / s;
#pragma unroll
    for (int pass = 0; pass < TILE / (16 * ROWS); pass++) {
        const int word = pass * 16 + down;
        const int64_t r = first + word * ROWS;
        if (r >= rows || c >= width) continue; // rows come in sixteens, columns in eights
        float values[ROWS][COLUMNS];
        uint32_t row[ROWS][2], column[COLUMNS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) load_floats(x + (r + i) * width + c, values[i]);
        convert(values, s, row, column);
#pragma unroll
        for (int i = 0; y && i < ROWS; i++)
            *reinterpret_cast<uint2 *>(y + (r + i) * width + c) = make_uint2(row[i][0], row[i][1]);
#pragma unroll
        for (int i = 0; t && i < COLUMNS; i++) tile[place(across * COLUMNS + i, word)] = column[i];
    }
    if (!t) return;
    __syncthreads();
    constexpr int QUADS = WORDS / 4; // of 16 rows each
    for (int i = threadIdx.x; i < TILE * QUADS; i += THREADS) {
        const int quad = i % QUADS, group = i / QUADS; // a warp takes four columns, eight apart
        const int at = group / 32 * 32 + group % 4 * COLUMNS + group / 4 % COLUMNS;
        const int64_t r = first + quad * 16;
        if (r >= rows || left + at >= width) continue;
        uint4 words;
        words.x = tile[place(at, quad * 4)], words.y = tile[place(at, quad * 4 + 1)];
        words.z = tile[place(at, quad * 4 + 2)], words.w = tile[place(at, quad * 4 + 3)];
        *reinterpret_cast<uint4 *>(t + (left + at) * rows + r) = words;
    }
}

/* Floor: read x, write rounded: 2 * rows * C * sizeof(T) bytes. */
template <class T, int N>
__global__ void round_elements(const T *x, const uint32_t *maximum, int64_t count, T *rounded, float *scale) {
    const float s = e4m3_scale(*maximum), inverse = 1 / s;
    if (thread_index() == 0) *scale = inverse;
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float values[N];
        load_floats(x + i, values);
#pragma unroll
        for (int e = 0; e < N; e++) values[e] = e4m3_value(e4m3_of(values[e] * s)) * inverse;
        store_floats(rounded + i, values);
    }
}

} // namespace

/* Sizes that the tiles do not serve, and requests for both forms of a result, are the naive form's. */
template <class T>
static Status cast_forward_cuda_fused(Ctx *ctx, const void *contract) {
    const Cast *c = static_cast<const Cast *>(contract);
    const int64_t rows = tensor_rows(c->x), width = tensor_width(c->x), count = rows * width;
    const bool bytes = !tensor_empty(c->y) || !tensor_empty(c->t);
    const bool tiles = rows % 16 == 0 && width % 16 == 0;
    if (bytes && (!tiles || !tensor_empty(c->rounded)))
        return slot_function(BACKEND_CUDA, c->x.dtype, OP_CAST, PASS_FORWARD, FORM_NAIVE)(ctx, contract);
    Tensor maximum;
    TRY(cast_maximum(ctx, c->x, &maximum));
    if (bytes) {
        const dim3 grid((unsigned)divide_up(width, TILE), (unsigned)divide_up(rows, TILE));
        PRIMITIVE (ctx, "cast, transpose", ELEMENTWISE)
            TRY(LAUNCH(ctx, (cast_tile<T>), grid, THREADS, 0, data_of<T>(c->x), data_of<uint32_t>(maximum),
                       rows, width, data_of<uint8_t>(c->y), data_of<uint8_t>(c->t),
                       data_of<float>(c->scale)));
        return OK;
    }
    const bool packs = walks_in_packs(VECTOR<T>, {count}, {c->x.data, c->rounded.data});
    PRIMITIVE (ctx, "round", ELEMENTWISE)
        DISPATCH_PACK(
            packs, T, N,
            TRY(LAUNCH(ctx, (round_elements<T, N>), grid_stride_blocks(ctx, divide_up(count, N), THREADS),
                       THREADS, 0, data_of<T>(c->x), data_of<uint32_t>(maximum), count,
                       data_of<T>(c->rounded), data_of<float>(c->scale))));
    return OK;
}
SLOT(CAST, FORWARD, CUDA, FUSED, F32, cast_forward_cuda_fused<float>);
SLOT(CAST, FORWARD, CUDA, FUSED, BF16, cast_forward_cuda_fused<bf16>);
