#include "kernels/cuda/partials.cuh"

#include "kernels/cuda/packs.cuh"

static constexpr int LANES = 32; // columns per tile, and threads that share a column

/* Floor: parts * width * 4 bytes per target (blockIdx.y), read from L2, where the first stage left them. */
/* Anatomy. Parallel: over 32 columns of a target, a block each; 32 threads share a column. Launch: width / 32
 * x targets blocks of 32 x 32. Holds: 28 registers, 4 KiB shared. Occupancy: not limited: all warps fit.
 * Reads: 4 bytes a thread, a warp 128 neighbouring bytes, 4 in flight. Syncs: one barrier. Fusion: with the
 * first stage, by its last block to finish. */
static __global__ void add_partials(const float *partials, int64_t parts, int64_t width, SumTargets targets) {
    __shared__ float sums[LANES][LANES + 1];
    wait_for_previous();
    let_next_start();
    const int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x, step = gridDim.y * width;
    float sum = 0.f;
    if (column < width) {
        const float *from = partials + blockIdx.y * width + column;
#pragma unroll 4
        for (int64_t part = threadIdx.y; part < parts; part += LANES) sum += from[part * step];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
    for (int lane = 1; lane < LANES; lane++) sum += sums[lane][threadIdx.x];
    targets.to[blockIdx.y][column] += sum;
}

Status partials_add(Ctx *ctx, const float *partials, int64_t parts, int64_t width, SumTargets targets) {
    unsigned count = 0;
    while (count < 3 && targets.to[count]) count++;
    return LAUNCH_EARLY(ctx, add_partials, dim3((unsigned)divide_up(width, LANES), count), dim3(LANES, LANES),
                        0, partials, parts, width, targets);
}
