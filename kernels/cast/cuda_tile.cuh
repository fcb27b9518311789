/* cuda_tile: converts a matrix from a source to bytes, their transpose and sums of its columns in one pass,
 * in tiles in shared memory.
 *
 * A source is a struct with the number PARTS of equal parts, side by side, that make up a row of its matrix;
 * a type Raw, the data of 8 neighbours of each part; and
 *     Raw read(int64_t row, int64_t column) const;               the first of the neighbours in their part
 *     void values(int part, const Raw &raw, float (&x)[8]) const; */
#pragma once

#include "kernels/cast/cast.h"

#include "kernels/cast/cuda_scale.cuh"
#include "kernels/cuda/partials.cuh"
#include "kernels/cuda/words.cuh"

namespace {

constexpr int TILE = 128; // rows and columns of a block's tile
constexpr int COLUMNS = 8,
              ROWS_AT_ONCE = 4;   // rows that a thread converts at a time; four rows make a word of the
                                  // transpose
constexpr int TILE_THREADS = 256; // (16 along the columns, 16 along the rows)
constexpr int ACROSS = TILE / COLUMNS, DOWN = TILE_THREADS / ACROSS;
constexpr int WORDS = TILE / ROWS_AT_ONCE; // words per column of the tile

/* The index in shared memory of the word of rows 4 * word of a column. A warp's sixteen columns, eight apart,
 * and its two words are in different banks. */
__device__ __forceinline__ int place(int column, int word) {
    return column * WORDS + (word ^ (column / COLUMNS * 2 & (WORDS - 1)));
}

/* Converts 8 values of a row to two words. */
__device__ __forceinline__ void convert(const float (&x)[COLUMNS], float scale, uint32_t (&row)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float *v = &x[4 * half];
        row[half] = e4m3_of(v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale);
    }
}

/* Transposes four rows of 8 bytes in two rounds of exchanges: `column` gets words along the columns. */
__device__ __forceinline__ void transpose(const uint32_t (&row)[ROWS_AT_ONCE][2],
                                          uint32_t (&column)[COLUMNS]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t a = row[0][half], b = row[1][half], c = row[2][half], d = row[3][half];
        const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140); // a0 b0 a1 b1
        const uint32_t ef = __byte_perm(a, b, 0x7362), gh = __byte_perm(c, d, 0x7362); // a2 b2 a3 b3
        column[4 * half] = __byte_perm(ab, cd, 0x5410);
        column[4 * half + 1] = __byte_perm(ab, cd, 0x7632);
        column[4 * half + 2] = __byte_perm(ef, gh, 0x5410);
        column[4 * half + 3] = __byte_perm(ef, gh, 0x7632);
    }
}

/* The outputs for a matrix (rows, width), both multiples of 16. */
struct TileOutputs {
    int64_t rows, width;
    uint8_t *y, *t;  // either may be NULL
    float *partials; // (tiles down, width): a tile's sums of its columns; may be NULL
    CastScale scale;
};

/* Writes the words of the tile's columns from shared memory as rows of the transpose, 16 bytes per thread.
 * `left` is the tile's first column, and its part's columns end at `end`. */
__device__ __forceinline__ void store_transpose(const uint32_t *tile, int64_t first, int64_t left,
                                                int64_t end, const TileOutputs &out) {
    constexpr int QUADS = WORDS / 4; // groups of 16 rows
    for (int i = threadIdx.x; i < TILE * QUADS; i += TILE_THREADS) {
        const int quad = i % QUADS, group = i / QUADS; // a warp takes four columns, eight apart
        const int at = group / 32 * 32 + group % 4 * COLUMNS + group / 4 % COLUMNS;
        const int64_t r = first + quad * 16;
        if (r >= out.rows || left + at >= end) continue;
        uint4 words;
        words.x = tile[place(at, quad * 4)], words.y = tile[place(at, quad * 4 + 1)];
        words.z = tile[place(at, quad * 4 + 2)], words.w = tile[place(at, quad * 4 + 3)];
        *reinterpret_cast<uint4 *>(out.t + (left + at) * out.rows + r) = words;
    }
}

/* Sums the tile's columns in a fixed order. */
__device__ __forceinline__ void store_sums(float *room, const float (&sum)[COLUMNS], int64_t left,
                                           int64_t end, const TileOutputs &out) {
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    __syncthreads(); // waits until the transpose has been read from this memory
#pragma unroll
    for (int e = 0; e < COLUMNS; e++) room[down * TILE + across * COLUMNS + e] = sum[e];
    __syncthreads();
    if (threadIdx.x >= TILE || left + threadIdx.x >= end) return;
    float total = 0;
    for (int i = 0; i < DOWN; i++) total += room[i * TILE + threadIdx.x];
    out.partials[blockIdx.y * out.width + left + threadIdx.x] = total;
}

/* Floor: read what the source reads, write y and t: 2 bytes per element. Without the bound of three blocks a
 * kernel with two parts would take 99 registers, of which only two blocks have enough. */
/* Anatomy. Parallel: over tiles of 128 x 128 of each part, a block each. Launch: a part's width / 128 x rows
 * / 128 blocks of 256. Holds: 40 to 80 registers, 16 KiB shared per part. Occupancy: registers; 38 to 62% of
 * the warps. Reads: what the source reads for 8 neighbours of a row, coalesced; 4 rows in flight. Syncs: four
 * barriers, two more for column sums. Fusion: with the product that makes the matrix, in its epilogue. */
template <class Source, bool SUMS>
__global__ void __launch_bounds__(TILE_THREADS, Source::PARTS > 1 ? 3 : 0)
    cast_tile(Source source, TileOutputs out) {
    constexpr int PARTS = Source::PARTS;
    __shared__ uint32_t tiles[PARTS][TILE * WORDS];
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    const int64_t first = (int64_t)blockIdx.y * TILE, left = (int64_t)blockIdx.x * TILE;
    const int64_t c = left + across * COLUMNS, width = out.width / PARTS;
    const float s = out.scale.value();
    uint32_t most = 0;
    float sums[PARTS][COLUMNS] = {};
#pragma unroll
    for (int pass = 0; pass < TILE / (DOWN * ROWS_AT_ONCE); pass++) {
        const int word = pass * DOWN + down;
        const int64_t r = first + word * ROWS_AT_ONCE;
        if (r >= out.rows || c >= width) continue; // rows are a multiple of 16, columns of 8
        typename Source::Raw raw[ROWS_AT_ONCE];
        uint32_t words[PARTS][ROWS_AT_ONCE][2];
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) raw[i] = source.read(r + i, c);
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                float x[COLUMNS];
                source.values(part, raw[i], x);
#pragma unroll
                for (int e = 0; e < COLUMNS; e++) {
                    most = max(most, __float_as_uint(fabsf(x[e])));
                    if (SUMS) sums[part][e] += x[e];
                }
                convert(x, s, words[part][i]);
                if (out.y)
                    *reinterpret_cast<uint2 *>(out.y + (r + i) * out.width + part * width + c) =
                        make_uint2(words[part][i][0], words[part][i][1]);
            }
        }
#pragma unroll
        for (int part = 0; out.t && part < PARTS; part++) {
            uint32_t column[COLUMNS];
            transpose(words[part], column);
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) tiles[part][place(across * COLUMNS + i, word)] = column[i];
        }
    }
    most = block_reduce<TILE_THREADS>(most, Larger());
    if (threadIdx.x == 0) out.scale.leave(s, most, blockIdx.x == 0 && blockIdx.y == 0);
    __syncthreads();
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        const int64_t begin = part * width, end = begin + width;
        if (out.t) store_transpose(tiles[part], first, begin + left, end, out);
        if (SUMS) store_sums(reinterpret_cast<float *>(tiles[part]), sums[part], begin + left, end, out);
    }
}

/* The largest magnitude, for casts that must know it first. Floor: read what the source reads. */
/* Anatomy. Parallel: over 8 neighbours of a row, one per thread and iteration. Launch: grid stride, at most
 * 32 blocks of 256 per multiprocessor. Holds: 28 to 40 registers, 32 bytes shared. Occupancy: registers; 75
 * to 100% of the warps. Reads: what the source reads for 8 neighbours, coalesced. Syncs: two barriers of the
 * block; one atomic maximum per block. Fusion: gone where the scale is of an earlier step: cast_tile finds
 * the maximum. */
template <class Source>
__global__ void __launch_bounds__(TILE_THREADS)
    tile_maximum(Source source, int64_t rows, int64_t width, uint32_t *maximum) {
    uint32_t most = 0;
    const int64_t across = width / Source::PARTS / COLUMNS, count = rows * across;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int64_t row = i / across;
        const typename Source::Raw raw = source.read(row, (i - row * across) * COLUMNS);
#pragma unroll
        for (int part = 0; part < Source::PARTS; part++) {
            float values[COLUMNS];
            source.values(part, raw, values);
#pragma unroll
            for (int e = 0; e < COLUMNS; e++) most = max(most, __float_as_uint(fabsf(values[e])));
        }
    }
    most = block_reduce<TILE_THREADS>(most, Larger());
    if (threadIdx.x == 0) atomicMax(maximum, most); // a maximum of integers: the order does not matter
}

/* Computes everything that `c` requests for the matrix of a source; c's x has its rows, columns and dtype. */
template <class Source>
Status cast_of(Ctx *ctx, const char *name, Category category, Arithmetic arithmetic, const Source &source,
               const Cast *c) {
    const int64_t rows = tensor_rows(c->x), width = tensor_width(c->x);
    const dim3 grid((unsigned)divide_up(width / Source::PARTS, TILE), (unsigned)divide_up(rows, TILE));
    Tensor maximum = {}, partials = {};
    if (tensor_empty(c->given)) TRY(take(ctx, ARENA_SCRATCH, "cast.maximum", I32, shape1(1), &maximum));
    if (!tensor_empty(c->sums))
        TRY(take(ctx, ARENA_SCRATCH, "cast.partials", F32, shape2(grid.y, width), &partials));
    const CastScale scale = {data_of<float>(c->given), data_of<uint32_t>(maximum), data_of<float>(c->scale),
                             data_of<float>(c->seen)};
    const TileOutputs out = {
        rows, width, data_of<uint8_t>(c->y), data_of<uint8_t>(c->t), data_of<float>(partials), scale};
    if (!tensor_empty(maximum))
        PRIMITIVE (ctx, "absolute maximum", ELEMENTWISE) {
            TRY(ctx->device->fill(ctx->device, maximum.data, 0, sizeof(uint32_t)));
            TRY(LAUNCH(ctx, (tile_maximum<Source>),
                       grid_stride_blocks(ctx, rows * width / Source::PARTS / COLUMNS, TILE_THREADS),
                       TILE_THREADS, 0, source, rows, width, data_of<uint32_t>(maximum)));
        }
    PRIMITIVE_OF (ctx, ctx->pass, name, category, arithmetic) {
        if (!out.partials) {
            TRY(LAUNCH(ctx, (cast_tile<Source, false>), grid, TILE_THREADS, 0, source, out));
        } else {
            TRY(LAUNCH(ctx, (cast_tile<Source, true>), grid, TILE_THREADS, 0, source, out));
            TRY(partials_add(ctx, out.partials, grid.y, width, {{data_of<float>(c->sums)}}));
        }
    }
    return OK;
}

} // namespace
