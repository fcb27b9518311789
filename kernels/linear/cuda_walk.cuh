/* cuda_walk: how kernels of linear traverse a matrix: a tile of columns, row by row. A thread keeps its N
 * columns, 16 bytes or one element, so that a bias or a column's sum stays in registers. */
#pragma once

#include "kernels/cuda/launch.cuh"

namespace {

constexpr int WARP = 32;
constexpr int ROWS = 8;                // rows that a block processes at once, one warp each
constexpr int RESIDENT = 4;            // blocks per multiprocessor that fit the registers
constexpr int BLOCKS = 132 * RESIDENT; // constant, so that the order of sums is the same on every GPU

/* A thread's work: N columns from `column` on, of the rows first, first + step, ... */
struct Walk {
    int64_t column, first, step;

    __device__ explicit Walk(int n)
        : column(((int64_t)blockIdx.x * WARP + threadIdx.x) * n),
          first((int64_t)blockIdx.y * ROWS + threadIdx.y), step((int64_t)gridDim.y * ROWS) {}
};

template <typename T, int N>
dim3 walk_grid(int64_t rows, int64_t width) {
    const int64_t tiles = divide_up(width, WARP * N), groups = divide_up(rows, ROWS);
    const int64_t most = tiles < BLOCKS ? BLOCKS / tiles : 1; // so that all run at once
    return dim3((unsigned)tiles, (unsigned)(groups < most ? groups : most));
}

} // namespace
