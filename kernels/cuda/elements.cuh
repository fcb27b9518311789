/* elements: elementwise kernels shared by naive forms. */
#pragma once

#include "kernels/cuda/packs.cuh"

/* sum = x + y; sum may be x or y. For LAUNCH_ELEMENTS. */
/* Anatomy. Parallel: over packs of elements, one per thread and iteration. Launch: grid stride, at most 32
 * blocks of 256 per multiprocessor. Holds: 16 to 28 registers, no shared memory. Occupancy: not limited: all
 * warps fit. Reads: 16 bytes per load, coalesced; one element where rows are not aligned. Syncs: none.
 * Fusion: with what reads the sum, as the fused forms do. */
template <class T, int N>
static __global__ void add_elements(const T *x, const T *y, int64_t count, T *sum) {
    for (int64_t i = thread_index() * N; i < count; i += thread_count() * N) {
        float a[N], b[N];
        load_floats(x + i, a);
        load_floats(y + i, b);
#pragma unroll
        for (int e = 0; e < N; e++) a[e] += b[e];
        store_floats(sum + i, a);
    }
}
