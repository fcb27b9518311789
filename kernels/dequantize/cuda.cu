/* dequantize: one primitive, the same kernel in both forms. */
#include "kernels/dequantize/dequantize.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packs.cuh"

namespace {

constexpr int THREADS = 256, FOUR = 4, FOURS = GROUP / FOUR; // codes per word; words per group
constexpr int MOST_ROWS = 65535;                             // of a grid

/* Floor: read codes and scales, write y: (sizeof(T) + 1) bytes an element. */
/* Anatomy. Parallel: over a row's words of 4 codes, one per thread; rows. Launch: words / 256 x rows blocks
 * of 256. Holds: 16 to 24 registers, no shared memory. Occupancy: none limits. Reads: 4 bytes per load, every
 * eighth word of a tile; the tile's other rows from the caches. Syncs: none. Fusion: with the product that
 * reads y, as decoding does. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    dequantize_kernel(const uint8_t *codes, const bf16 *scales, int rows, int groups, T *y) {
    const int at = int(blockIdx.x) * THREADS + int(threadIdx.x), group = at / FOURS, word = at % FOURS;
    if (group >= groups) return;
    for (int row = int(blockIdx.y); row < rows; row += int(gridDim.y)) {
        const int64_t tile = int64_t(row / GROUP_ROWS) * groups + group;
        const char4 four = *reinterpret_cast<const char4 *>(
            codes + (tile * GROUP + word * FOUR) * GROUP_ROWS + row % GROUP_ROWS * FOUR);
        const float scale = to_float(scales[tile * GROUP_ROWS + row % GROUP_ROWS]);
        const float values[FOUR] = {scale * float(four.x), scale * float(four.y), scale * float(four.z),
                                    scale * float(four.w)};
        store_floats<FOUR>(y + int64_t(row) * groups * GROUP + at * FOUR, values);
    }
}

} // namespace

template <class T>
static Status dequantize_cuda(Ctx *ctx, const void *contract) {
    const Dequantize *d = static_cast<const Dequantize *>(contract);
    const int rows = int(tensor_rows(d->x)), groups = int(tensor_width(d->x) / GROUP);
    if (d->x.dtype != I8) return fail(ERROR_INTERNAL, "dequantize: a GPU has no kernel for I4");
    const dim3 blocks(unsigned(divide_up(groups * FOURS, THREADS)),
                      unsigned(rows < MOST_ROWS ? rows : MOST_ROWS));
    PRIMITIVE (ctx, "dequantize", ELEMENTWISE)
        TRY(LAUNCH(ctx, dequantize_kernel<T>, blocks, THREADS, 0, static_cast<const uint8_t *>(d->x.data),
                   static_cast<const bf16 *>(d->x.scales), rows, groups, data_of<T>(d->y)));
    return OK;
}
SLOT(DEQUANTIZE, FORWARD, CUDA, NAIVE, F32, dequantize_cuda<float>);
SLOT(DEQUANTIZE, FORWARD, CUDA, NAIVE, BF16, dequantize_cuda<bf16>);
SLOT(DEQUANTIZE, FORWARD, CUDA, FUSED, F32, dequantize_cuda<float>);
SLOT(DEQUANTIZE, FORWARD, CUDA, FUSED, BF16, dequantize_cuda<bf16>);
