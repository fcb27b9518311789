#include "kernels/pool/pool.h"
#include "kernels/real.h"

static void copy_first(const stored *x, int64_t batch, int64_t rows, int64_t width, stored *y) {
    for (int64_t b = 0; b < batch; b++)
        for (int64_t c = 0; c < width; c++) y[b * width + c] = x[b * rows * width + c];
}

static void mean(const stored *x, int64_t batch, int64_t rows, int64_t width, stored *y) {
    for (int64_t b = 0; b < batch; b++)
        for (int64_t c = 0; c < width; c++) {
            real sum = 0;
            for (int64_t t = 0; t < rows; t++) sum += load(x[(b * rows + t) * width + c]);
            y[b * width + c] = store(sum / (real)rows);
        }
}

static Status pool_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const PoolForward *p = contract;
    const int64_t *d = p->x.shape.d;
    if (p->kind == POOL_FIRST)
        PRIMITIVE (ctx, "first rows", MEMORY, torch_call("aten::select"))
            copy_first(p->x.data, d[0], d[1], d[2], p->y.data);
    else
        PRIMITIVE (ctx, "mean", ELEMENTWISE, torch_call("aten::mean"))
            mean(p->x.data, d[0], d[1], d[2], p->y.data);
    return OK;
}
SLOT(POOL, FORWARD, CPU, NAIVE, STORED_DTYPE, pool_forward_cpu_naive);

static void put_first(const stored *dy, int64_t batch, int64_t rows, int64_t width, stored *dx) {
    for (int64_t i = 0; i < batch * rows * width; i++) {
        int64_t row = i / width;
        dx[i] = row % rows == 0 ? dy[row / rows * width + i % width] : store(0);
    }
}

static void spread(const stored *dy, int64_t batch, int64_t rows, int64_t width, stored *dx) {
    for (int64_t i = 0; i < batch * rows * width; i++)
        dx[i] = store(load(dy[i / (rows * width) * width + i % width]) / (real)rows);
}

static Status pool_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const PoolBackward *p = contract;
    const int64_t *d = p->dx.shape.d;
    if (p->forward->kind == POOL_FIRST)
        PRIMITIVE (ctx, "first rows gradient", MEMORY, torch_call("aten::select_backward"))
            put_first(p->dy.data, d[0], d[1], d[2], p->dx.data);
    else
        PRIMITIVE (ctx, "mean gradient", ELEMENTWISE, torch_call("aten::div"))
            spread(p->dy.data, d[0], d[1], d[2], p->dx.data);
    return OK;
}
SLOT(POOL, BACKWARD, CPU, NAIVE, STORED_DTYPE, pool_backward_cpu_naive);
