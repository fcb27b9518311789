/* pool, a sequence at a time on all threads. */
#include "kernels/pool/pool.h"
#include "kernels/simd.h"

static void pool_one(const PoolForward *p, int64_t b) {
    int64_t rows = p->x.shape.d[1], width = tensor_width(p->x);
    float *y = float_row(p->y, b), share = 1 / (float)rows;
    memcpy(y, float_row(p->x, b * rows), (size_t)width * sizeof *y);
    if (p->kind == POOL_FIRST) return;
    for (int64_t t = 1; t < rows; t++) {
        const float *x = float_row(p->x, b * rows + t);
#pragma omp simd
        for (int64_t c = 0; c < width; c++) y[c] += x[c];
    }
#pragma omp simd
    for (int64_t c = 0; c < width; c++) y[c] *= share;
}

static Status pool_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const PoolForward *p = contract;
    PRIMITIVE (ctx, "pool") {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t b = 0; b < p->x.shape.d[0]; b++) pool_one(p, b);
    }
    return OK;
}
SLOT(POOL, FORWARD, CPU, FUSED, F32, pool_forward_cpu_fused);

static Status pool_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const PoolBackward *p = contract;
    int64_t rows = p->dx.shape.d[1], width = tensor_width(p->dx);
    bool first = p->forward->kind == POOL_FIRST;
    float share = first ? 1 : 1 / (float)rows;
    PRIMITIVE (ctx, "pool gradient") {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t row = 0; row < tensor_rows(p->dx); row++) {
            const float *dy = float_row(p->dy, row / rows);
            float *dx = float_row(p->dx, row), factor = first && row % rows ? 0 : share;
#pragma omp simd
            for (int64_t c = 0; c < width; c++) dx[c] = factor == 0 ? 0 : factor * dy[c];
        }
    }
    return OK;
}
SLOT(POOL, BACKWARD, CPU, FUSED, F32, pool_backward_cpu_fused);
