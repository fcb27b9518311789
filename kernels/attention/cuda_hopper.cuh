/* cuda_hopper: attention tiles with Hopper's instructions (kernels/cuda/hopper.cuh). */
#pragma once

#include "kernels/attention/cuda_problem.cuh"
#include "kernels/cuda/hopper.cuh"

namespace attention {

using namespace gpu;

/* Describes `rows`, (batch, count, columns) bf16, as (batch, columns / 64, count, 64) for copies of tiles of
 * tile_rows x tile_columns (a multiple of 64). Rows beyond `count` read as zero and are not written.
 * tensor_map_fits: whether TMA supports the layout (16-byte strides, at least one element). */
bool tensor_map_fits(const Rows &rows, int64_t batch, int64_t count, int64_t columns);
CHECKED Status tensor_map(const Rows &rows, int64_t batch, int64_t count, int64_t columns, int tile_rows,
                          int tile_columns, CUtensorMap *map);

/* Starts the copy of the tile at `row` of batch row b and 64-column block `block`. All bytes of the tile,
 * including those beyond the tensor, count towards `barrier`. One thread calls it. */
__device__ inline void load_tile_async(void *to, const CUtensorMap &map, int row, int block, int b,
                                       uint64_t *barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
        "l"(&map), "r"(0), "r"(row), "r"(block), "r"(b), "r"(shared_address(barrier))
        : "memory");
}

/* Accumulators, rounded and packed into left operands of the next product. */
template <int N>
__device__ inline void pack_rows(uint32_t (&left)[N / 2][4], const float (&c)[N][4]) {
#pragma unroll
    for (int k = 0; k < N / 2; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            left[k][i] = pack(c[2 * k + i / 2][2 * (i % 2)], c[2 * k + i / 2][2 * (i % 2) + 1]);
}

/* Writes rows of accumulators, times `scale` and rounded, to a tensor with whole vectors (Rows). Four lanes
 * hold a row, two neighbours of every eight columns each; they exchange them so that each stores eight
 * neighbours. `row` is this thread's first row. */
template <int N>
__device__ inline void store_rows(const float (&c)[N][4], bf16 *to, int64_t stride, int row, int end,
                                  float scale = 1.0f) {
    const int t = int(threadIdx.x) % 4;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < N; n += 4) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = pack(c[n + i][2 * half] * scale, c[n + i][2 * half + 1] * scale);
#pragma unroll
            for (int distance = 1; distance <= 2; distance *= 2) // transpose 2 x 2 elements, then 2 x 2 of
                                                                 // those blocks
#pragma unroll
                for (int pair = 0; pair < 2; pair++) {
                    const int low = distance == 1 ? 2 * pair : pair;
                    const bool upper = t & distance;
                    const uint32_t sent = upper ? word[low] : word[low + distance];
                    const uint32_t received = __shfl_xor_sync(~0u, sent, distance);
                    (upper ? word[low] : word[low + distance]) = received;
                }
            if (row + 8 * half < end)
                *reinterpret_cast<uint4 *>(to + (row + 8 * half) * stride + 8 * (n + t)) =
                    make_uint4(word[0], word[1], word[2], word[3]);
        }
}

} // namespace attention
