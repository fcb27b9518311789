/* The same on a GPU: eight kernels, and one. */
#include "tests/bench/gelu.h"

#include <algorithm>
#include <vector>

enum { COUNT = 8 * 1024 * 3072, REPEATS = 15, THREADS = 256 };

template <class F>
__global__ void map_one(const float *x, float *y, F f) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < COUNT) y[i] = f(x[i]);
}

template <class F>
__global__ void map_two(const float *a, const float *b, float *y, F f) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < COUNT) y[i] = f(a[i], b[i]);
}

template <class F>
static void one(const float *x, float *y, F f) {
    map_one<<<(COUNT + THREADS - 1) / THREADS, THREADS>>>(x, y, f);
}

template <class F>
static void two(const float *a, const float *b, float *y, F f) {
    map_two<<<(COUNT + THREADS - 1) / THREADS, THREADS>>>(a, b, y, f);
}

static void by_primitives(const float *z, float *a, float *y) {
    one(z, a, [] __device__(float x) { return x * x * x; });
    one(a, y, [] __device__(float x) { return x * 0.044715f; });
    two(z, y, a, [] __device__(float x, float w) { return x + w; });
    one(a, y, [] __device__(float x) { return x * 0.7978845608f; });
    one(y, a, [] __device__(float x) { return tanhf(x); });
    one(a, y, [] __device__(float x) { return x + 1; });
    two(z, y, a, [] __device__(float x, float w) { return x * w; });
    one(a, y, [] __device__(float x) { return x * 0.5f; });
}

static void in_one_kernel(const float *z, float *y) {
    one(z, y, [] __device__(float x) {
        return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    });
}

bool gelu_cuda(GeluTimes *times) {
    float *z, *a, *y;
    cudaEvent_t events[3];
    if (cudaMalloc(&z, COUNT * sizeof *z) || cudaMalloc(&a, COUNT * sizeof *a) ||
        cudaMalloc(&y, COUNT * sizeof *y))
        return false;
    for (auto &event : events) cudaEventCreate(&event);
    one(z, z, [] __device__(float x) { return (float)(threadIdx.x % 21) / 4 - 2.5f; });
    std::vector<float> ms[2];
    for (int r = 0; r < REPEATS + 3; r++) {
        float first, second;
        cudaEventRecord(events[0]);
        by_primitives(z, a, y);
        cudaEventRecord(events[1]);
        in_one_kernel(z, y);
        cudaEventRecord(events[2]);
        if (cudaEventSynchronize(events[2]) != cudaSuccess) return false;
        cudaEventElapsedTime(&first, events[0], events[1]);
        cudaEventElapsedTime(&second, events[1], events[2]);
        if (r < 3) continue; // the first are slow
        ms[0].push_back(first);
        ms[1].push_back(second);
    }
    for (auto &form : ms) std::sort(form.begin(), form.end());
    *times = GeluTimes{COUNT, ms[0][REPEATS / 2], ms[1][REPEATS / 2]};
    for (auto &event : events) cudaEventDestroy(event);
    cudaFree(z);
    cudaFree(a);
    cudaFree(y);
    return true;
}
