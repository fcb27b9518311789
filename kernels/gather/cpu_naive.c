#include "kernels/gather/gather.h"
#include "kernels/real.h"

static void gather(const Ctx *ctx, const stored *x, const int32_t *from, int64_t rows, int64_t width,
                   stored *y) {
    EACH (ctx, m, rows, width)
        for (int64_t c = 0; c < width; c++)
            y[m * width + c] = from[m] < 0 ? store(0) : x[from[m] * width + c];
}

static Status gather_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const GatherForward *g = contract;
    PRIMITIVE (ctx, "gather", MEMORY, torch_call("aten::index_select"))
        gather(ctx, g->x.data, g->rows.data, tensor_rows(g->y), tensor_width(g->y), g->y.data);
    return OK;
}
SLOT(GATHER, FORWARD, CPU, NAIVE, STORED_DTYPE, gather_forward_cpu_naive);

static void clear(const Ctx *ctx, int64_t count, stored *x) {
    EACH_ELEMENT (ctx, i, count) x[i] = store(0);
}

static void scatter(const stored *dy, const int32_t *from, int64_t rows, int64_t width, stored *dx) {
    for (int64_t m = 0; m < rows; m++)
        for (int64_t c = 0; c < width && from[m] >= 0; c++) dx[from[m] * width + c] = dy[m * width + c];
}

static Status gather_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const GatherBackward *g = contract;
    const GatherForward *f = g->forward;
    PRIMITIVE (ctx, "clear", MEMORY, torch_call("aten::zero_")) clear(ctx, tensor_count(g->dx), g->dx.data);
    PRIMITIVE (ctx, "scatter", MEMORY, torch_call("aten::index_add_"))
        scatter(g->dy.data, f->rows.data, tensor_rows(g->dy), tensor_width(g->dy), g->dx.data);
    return OK;
}
SLOT(GATHER, BACKWARD, CPU, NAIVE, STORED_DTYPE, gather_backward_cpu_naive);
