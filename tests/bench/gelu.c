/* GELU (the tanh form) by primitives, each a pass over memory, and as one pass. Prints a JSON object. */
#include "tests/bench/gelu.h"

#include "base/memory.h"
#include "kernels/device/device.h"
#include "kernels/simd.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20, REPEATS = 15 };

/* y = 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))), as eager code computes it. */
static void by_primitives(const float *z, int64_t n, float *a, float *y) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) a[i] = z[i] * z[i] * z[i];
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * 0.044715f;
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) a[i] = z[i] + y[i];
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * 0.7978845608f;
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) a[i] = simd_tanh(y[i]);
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + 1;
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) a[i] = z[i] * y[i];
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * 0.5f;
}

static void in_one_pass(const float *z, int64_t n, float *y) {
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        y[i] = 0.5f * z[i] * (1 + simd_tanh(0.7978845608f * (z[i] + 0.044715f * z[i] * z[i] * z[i])));
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static bool run_on_cpu(GeluTimes *times) {
    float *z = memory_array(COUNT, sizeof *z), *a = memory_array(COUNT, sizeof *a);
    float *y = memory_array(COUNT, sizeof *y);
    double ms[2][REPEATS];
    if (!z || !a || !y) return false;
    for (int64_t i = 0; i < COUNT; i++) z[i] = (float)(i % 2001 - 1000) / 200;
    for (int r = 0; r < REPEATS; r++) {
        double start = device_clock();
        by_primitives(z, COUNT, a, y);
        double middle = device_clock();
        in_one_pass(z, COUNT, y);
        ms[0][r] = 1e3 * (middle - start);
        ms[1][r] = 1e3 * (device_clock() - middle);
    }
    for (int form = 0; form < 2; form++) qsort(ms[form], REPEATS, sizeof **ms, compare);
    *times = (GeluTimes){COUNT, ms[0][REPEATS / 2], ms[1][REPEATS / 2]};
    memory_free(z);
    memory_free(a);
    memory_free(y);
    return true;
}

int main(void) {
    GeluTimes times;
    bool done = gelu_cuda && gelu_cuda(&times);
    if (!done && !run_on_cpu(&times)) return 1;
    double bytes = 4.0 * (double)times.count;
    /* Two of the eight primitives read two tensors. */
    printf("{\"count\": %lld, \"forms\": [{\"form\": \"primitives\", \"ms\": %.6f, \"launches\": 8, "
           "\"bytes\": %.0f}, "
           "{\"form\": \"one kernel\", \"ms\": %.6f, \"launches\": 1, \"bytes\": %.0f}]}\n",
           (long long)times.count, times.primitives, 18 * bytes, times.one, 2 * bytes);
    return 0;
}
