/* pool: sequences on all threads. */
#include "kernels/pool/pool.h"
#include "kernels/real.h"
#include "kernels/simd.h"

enum { SLAB = 256 }; // columns per pass of a sum

static void mean_of_slab(const PoolForward *p, int64_t b, int64_t first, int64_t width) {
    int64_t rows = p->x.shape.d[1];
    float sum[SLAB] = {0}, share = 1 / (float)rows;
    for (int64_t t = 0; t < rows; t++) {
        const stored *x = stored_row(p->x, b * rows + t) + first;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) sum[c] += load(x[c]);
    }
    stored *y = stored_row(p->y, b) + first;
#pragma omp simd
    for (int64_t c = 0; c < width; c++) y[c] = store(sum[c] * share);
}

static void pool_one(const PoolForward *p, int64_t b) {
    int64_t width = tensor_width(p->x);
    if (p->kind == POOL_FIRST)
        memcpy(stored_row(p->y, b), stored_row(p->x, b * p->x.shape.d[1]), (size_t)width * sizeof(stored));
    else
        for (int64_t first = 0; first < width; first += SLAB)
            mean_of_slab(p, b, first, first + SLAB < width ? SLAB : width - first);
}

static Status pool_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const PoolForward *p = contract;
    PRIMITIVE (ctx, "pool", MEMORY) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t b = 0; b < p->x.shape.d[0]; b++) pool_one(p, b);
    }
    return OK;
}
SLOT(POOL, FORWARD, CPU, FUSED, STORED_DTYPE, pool_forward_cpu_fused);

static Status pool_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const PoolBackward *p = contract;
    int64_t rows = p->dx.shape.d[1], width = tensor_width(p->dx);
    bool first = p->forward->kind == POOL_FIRST;
    float share = first ? 1 : 1 / (float)rows;
    PRIMITIVE (ctx, "pool gradient", MEMORY) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t row = 0; row < tensor_rows(p->dx); row++) {
            const stored *dy = stored_row(p->dy, row / rows);
            stored *dx = stored_row(p->dx, row);
            float factor = first && row % rows ? 0 : share;
#pragma omp simd
            for (int64_t c = 0; c < width; c++) dx[c] = store(factor == 0 ? 0 : factor * load(dy[c]));
        }
    }
    return OK;
}
SLOT(POOL, BACKWARD, CPU, FUSED, STORED_DTYPE, pool_backward_cpu_fused);
