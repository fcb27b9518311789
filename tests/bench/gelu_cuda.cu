/* The GELU benchmark on a GPU: eight kernels, and one. */
#include "tests/bench/gelu.h"

#include <algorithm>
#include <vector>

enum { COUNT = 8 * 1024 * 3072, REPEATS = 15, THREADS = 256 };

typedef enum { CUBE, BEND, ADD, SCALE, TANH, ADD_ONE, MULTIPLY, HALVE, GELU } Primitive;

template <Primitive primitive>
__device__ float value(float a, float b) {
    switch (primitive) {
    case CUBE: return a * a * a;
    case BEND: return a * 0.044715f;
    case ADD: return a + b;
    case SCALE: return a * 0.7978845608f;
    case TANH: return tanhf(a);
    case ADD_ONE: return a + 1;
    case MULTIPLY: return a * b;
    case HALVE: return a * 0.5f;
    case GELU: return 0.5f * a * (1 + tanhf(0.7978845608f * (a + 0.044715f * a * a * a)));
    }
    return 0;
}

/* Four elements, 16 bytes, per thread: as in eager frameworks. */
template <Primitive primitive>
__global__ void pass(const float4 *x, const float4 *other, float4 *y) {
    const int i = int(blockIdx.x * THREADS + threadIdx.x);
    if (i >= COUNT / 4) return;
    const float4 a = x[i], b = other ? other[i] : a;
    y[i] = {value<primitive>(a.x, b.x), value<primitive>(a.y, b.y), value<primitive>(a.z, b.z),
            value<primitive>(a.w, b.w)};
}

template <Primitive primitive>
static void run(const float *x, const float *other, float *y) {
    pass<primitive><<<(COUNT / 4 + THREADS - 1) / THREADS, THREADS>>>(reinterpret_cast<const float4 *>(x),
                                                                      reinterpret_cast<const float4 *>(other),
                                                                      reinterpret_cast<float4 *>(y));
}

__global__ void spread(float *z) {
    const int i = int(blockIdx.x * THREADS + threadIdx.x);
    if (i < COUNT) z[i] = float(i % 21) / 4 - 2.5f;
}

static void by_primitives(const float *z, float *a, float *y) {
    run<CUBE>(z, NULL, a);
    run<BEND>(a, NULL, y);
    run<ADD>(z, y, a);
    run<SCALE>(a, NULL, y);
    run<TANH>(y, NULL, a);
    run<ADD_ONE>(a, NULL, y);
    run<MULTIPLY>(z, y, a);
    run<HALVE>(a, NULL, y);
}

bool gelu_cuda(GeluTimes *times) {
    float *z, *a, *y;
    cudaEvent_t events[3];
    if (cudaMalloc(&z, COUNT * sizeof *z) || cudaMalloc(&a, COUNT * sizeof *a) ||
        cudaMalloc(&y, COUNT * sizeof *y))
        return false;
    for (auto &event : events) cudaEventCreate(&event);
    spread<<<(COUNT + THREADS - 1) / THREADS, THREADS>>>(z);
    std::vector<float> ms[2];
    for (int r = 0; r < REPEATS + 3; r++) {
        float first, second;
        cudaEventRecord(events[0]);
        by_primitives(z, a, y);
        cudaEventRecord(events[1]);
        run<GELU>(z, NULL, y);
        cudaEventRecord(events[2]);
        if (cudaEventSynchronize(events[2]) != cudaSuccess) return false;
        cudaEventElapsedTime(&first, events[0], events[1]);
        cudaEventElapsedTime(&second, events[1], events[2]);
        if (r < 3) continue; // the first runs are slow
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
