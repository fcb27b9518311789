/* Tensor maps: descriptors with which the tensor memory accelerator copies tiles of a tensor. */
#include "kernels/cuda/hopper.cuh"

namespace gpu {

Status tensor_map_encode(void *data, int rank, const cuuint64_t *extents, const cuuint64_t *strides,
                         const cuuint32_t *tile, CUtensorMap *map) {
    typedef decltype(&cuTensorMapEncodeTiled)
        Encode; // looked up in the driver, so that no program links against it
    void *encode = nullptr;
    cudaDriverEntryPointQueryResult found;
    CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault,
                                              &found));
    if (found != cudaDriverEntryPointSuccess || !encode)
        return fail(ERROR_DEVICE, "the CUDA driver has no cuTensorMapEncodeTiled; update it to 525 or later");
    const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    const CUtensorMapSwizzle swizzle =
        tile[0] * sizeof(uint16_t) == NARROW_BYTES ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
    const CUresult result = reinterpret_cast<Encode>(encode)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, cuuint32_t(rank), data, extents, strides, tile, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return fail(ERROR_DEVICE, "tensor map of %llu x %llu, rows %llu bytes apart: error %d",
                    (unsigned long long)extents[1], (unsigned long long)extents[0],
                    (unsigned long long)strides[0], (int)result);
    return OK;
}

Status matrix_map_encode(const void *data, int64_t rows, int64_t width, int64_t ld, int tile_rows,
                         CUtensorMap *map, int tile_columns) {
    const cuuint64_t extents[2] = {cuuint64_t(width), cuuint64_t(rows)};
    const cuuint64_t strides[1] = {cuuint64_t(ld) * sizeof(uint16_t)};
    const cuuint32_t tile[2] = {cuuint32_t(tile_columns), cuuint32_t(tile_rows)};
    return tensor_map_encode(const_cast<void *>(data), 2, extents, strides, tile, map);
}

} // namespace gpu
