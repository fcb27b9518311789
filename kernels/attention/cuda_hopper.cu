/* Tensor maps (TMA descriptors) of attention. */
#include "kernels/attention/cuda_hopper.cuh"

#include <climits>

namespace attention {

bool tensor_map_fits(const Rows &rows, int64_t batch, int64_t count, int64_t columns) {
    return batch > 0 && count > 0 && columns > 0 && columns % BLOCK_COLUMNS == 0 &&
           walks_in_packs(8, {rows.row, rows.batch}, {static_cast<const void *>(rows.data)}) &&
           count <= INT_MAX && rows.batch < (int64_t(1) << 38) && rows.row < (int64_t(1) << 38);
}

Status tensor_map(const Rows &rows, int64_t batch, int64_t count, int64_t columns, int tile_rows,
                  int tile_columns, CUtensorMap *map) {
    const cuuint64_t extents[4] = {BLOCK_COLUMNS, cuuint64_t(count), cuuint64_t(columns / BLOCK_COLUMNS),
                                   cuuint64_t(batch)};
    const cuuint64_t strides[3] = {cuuint64_t(rows.row) * sizeof(bf16), ROW_BYTES,
                                   cuuint64_t(rows.batch) * sizeof(bf16)};
    const cuuint32_t tile[4] = {BLOCK_COLUMNS, cuuint32_t(tile_rows),
                                cuuint32_t(tile_columns / BLOCK_COLUMNS), 1};
    return tensor_map_encode(rows.data, 4, extents, strides, tile, map);
}

} // namespace attention
