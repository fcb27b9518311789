/* Loops of naive forms: large ones run on several threads, and no bit depends on the number. OpenBLAS uses
 * OpenMP's threads. */
#include "kernels/norm/norm.h"
#include "tests/support/compare.h"

#include <cblas.h>
#include <glob.h>
#include <omp.h>
#include <stdlib.h>

#define STORED float
#include "kernels/real.h"

enum { THREADS = 3, ROWS = 67, WIDTH = 768 };

static int threads_that_ran(const Ctx *ctx, int64_t count) {
    bool ran[THREADS] = {false};
    EACH (ctx, i, count, 1) ran[omp_get_thread_num()] = true;
    return ran[0] + ran[1] + ran[2];
}

static int threads_of_elements(const Ctx *ctx, int64_t count) {
    float *thread = malloc((size_t)count * sizeof *thread);
    bool ran[THREADS] = {false};
    EACH_ELEMENT (ctx, i, count) thread[i] = (float)omp_get_thread_num();
    for (int64_t i = 0; i < count; i++) ran[(int)thread[i]] = true;
    free(thread);
    return ran[0] + ran[1] + ran[2];
}

static void large_loops_run_on_all_threads(void **state) {
    (void)state;
    Device *device;
    expect_ok(device_open_cpu(THREADS, &device));
    Ctx ctx = {.device = device};
    assert_int_equal(threads_that_ran(&ctx, EACH_LEAST), THREADS);
    assert_int_equal(threads_of_elements(&ctx, EACH_LEAST), THREADS);
    assert_int_equal(threads_that_ran(&ctx, EACH_LEAST - 1), 1);
    assert_int_equal(threads_of_elements(&ctx, EACH_LEAST - 1), 1);
    device->close(device);
}

/* One thread computes a row's statistics, or a column's sums; 67 rows are not a multiple of the threads. */
static void naive_bits_depend_on_no_number_of_threads(void **state) {
    (void)state;
    enum { N = ROWS * WIDTH, ALL = 4 * N + 4 * WIDTH + 2 * ROWS };
    float *values[2];
    double *const x = normals(N, 1, F32), *const dy = normals(N, 1, F32),
                  *const weight = normals(WIDTH, 1, F32);
    for (int k = 0; k < 2; k++) {
        Device *device;
        expect_ok(device_open_cpu(k ? THREADS : 1, &device));
        Ctx ctx = {.device = device, .dtype = F32, .training = true, .layer = -1};
        float *at = values[k] = calloc(ALL, sizeof *at);
        const Shape shapes[] = {
            shape2(ROWS, WIDTH), shape2(ROWS, WIDTH), shape2(ROWS, WIDTH), shape2(ROWS, WIDTH), shape1(WIDTH),
            shape1(WIDTH),       shape1(WIDTH),       shape1(WIDTH),       shape1(ROWS),        shape1(ROWS)};
        Tensor t[10];
        for (int i = 0; i < 10; at += shape_count(shapes[i++])) t[i] = tensor_view(at, F32, shapes[i]);
        for (int i = 0; i < N; i++) ((float *)t[0].data)[i] = (float)x[i];
        for (int i = 0; i < N; i++) ((float *)t[2].data)[i] = (float)dy[i];
        for (int i = 0; i < WIDTH; i++) ((float *)t[4].data)[i] = (float)weight[i];
        NormForward forward = {
            .x = t[0], .weight = t[4], .bias = t[5], .y = t[1], .mean = t[8], .rstd = t[9], .eps = 1e-5};
        const NormBackward backward = {
            .forward = &forward, .dy = t[2], .dr = t[3], .dweight = t[6], .dbias = t[7]};
        static char memory[16 * N]; // of scratch
        ctx.arenas[ARENA_SCRATCH] = (Arena){.name = "scratch", .base = memory, .capacity = sizeof memory};
        expect_ok(norm_forward(&ctx, &forward, ARENA_SAVED));
        expect_ok(norm_backward(&ctx, &backward));
        arena_close(&ctx.arenas[ARENA_SCRATCH]);
        device->close(device);
    }
    assert_true(values[0][3 * N] != 0);
    assert_memory_equal(values[0], values[1], ALL * sizeof *values[0]);
    for (int k = 0; k < 2; k++) free(values[k]);
}

/* Debian prefers the build with threads of its own where both are installed. */
static void openblas_starts_no_threads_of_its_own(void **state) {
    (void)state;
    glob_t found;
    const int missing = glob("/usr/lib/*/openblas-openmp", 0, NULL, &found);
    globfree(&found);
    if (missing) skip();
    assert_int_equal(openblas_get_parallel(), OPENBLAS_OPENMP);
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(large_loops_run_on_all_threads),
                                       ONCE(openblas_starts_no_threads_of_its_own),
                                       ONCE(naive_bits_depend_on_no_number_of_threads)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
