/* Tensor maps: what the tensor memory accelerator must know of a tensor to copy its tiles. */
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
    typedef decltype(&cuTensorMapEncodeTiled) Encode; // asked of the driver, so that nothing links against it
    void *encode = nullptr;
    cudaDriverEntryPointQueryResult found;
    CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault,
                                              &found));
    if (found != cudaDriverEntryPointSuccess || !encode)
        return fail(ERROR_DEVICE, "the CUDA driver has no cuTensorMapEncodeTiled; update it to 525 or later");
    const cuuint64_t sizes[4] = {BLOCK_COLUMNS, cuuint64_t(count), cuuint64_t(columns / BLOCK_COLUMNS),
                                 cuuint64_t(batch)};
    const cuuint64_t strides[3] = {cuuint64_t(rows.row) * sizeof(bf16), ROW_BYTES,
                                   cuuint64_t(rows.batch) * sizeof(bf16)};
    const cuuint32_t box[4] = {BLOCK_COLUMNS, cuuint32_t(tile_rows), cuuint32_t(tile_columns / BLOCK_COLUMNS),
                               1};
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    const CUresult result = reinterpret_cast<Encode>(encode)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, rows.data, sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return fail(ERROR_DEVICE, "attention: tensor map of %lld x %lld x %lld, rows %lld apart: error %d",
                    (long long)batch, (long long)count, (long long)columns, (long long)rows.row, (int)result);
    return OK;
}

} // namespace attention
