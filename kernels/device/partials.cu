#include "kernels/device/partials.cuh"

#include "kernels/device/cuda.cuh"

static constexpr int LANES = 32; // columns of a tile, and threads that share a column

/* Floor: parts * width * 4 bytes, which the first stage has just left in L2. */
static __global__ void add_partials(const float *partials, int64_t parts, int64_t width, float *first,
                                    int64_t first_width, float *second) {
    __shared__ float sums[LANES][LANES + 1];
    wait_for_previous();
    let_next_start();
    const int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x;
    float sum = 0.f;
    if (column < width) {
#pragma unroll 4
        for (int64_t part = threadIdx.y; part < parts; part += LANES) sum += partials[part * width + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
    for (int lane = 1; lane < LANES; lane++) sum += sums[lane][threadIdx.x];
    if (column < first_width)
        first[column] += sum;
    else
        second[column - first_width] += sum;
}

Status partials_add(Ctx *ctx, const float *partials, int64_t parts, int64_t width, float *first,
                    int64_t first_width, float *second) {
    const unsigned tiles = (unsigned)divide_up(width, LANES);
    return LAUNCH_EARLY(ctx, add_partials, tiles, dim3(LANES, LANES), 0, partials, parts, width, first,
                        first_width, second);
}
