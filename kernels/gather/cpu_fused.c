/* gather: whole rows, on all threads. */
#include "kernels/gather/gather.h"
#include "kernels/real.h"
#include "kernels/simd.h"

static Status gather_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const GatherForward *g = contract;
    int64_t rows = tensor_rows(g->y);
    size_t bytes = (size_t)tensor_width(g->y) * sizeof(stored);
    const int32_t *from = g->rows.data;
    PRIMITIVE (ctx, "gather", MEMORY, torch_call("aten::index_select")) {
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t m = 0; m < rows; m++) {
            if (from[m] < 0)
                memset(stored_row(g->y, m), 0, bytes);
            else
                memcpy(stored_row(g->y, m), stored_row(g->x, from[m]), bytes);
        }
    }
    return OK;
}
SLOT(GATHER, FORWARD, CPU, FUSED, STORED_DTYPE, gather_forward_cpu_fused);

static Status gather_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const GatherBackward *g = contract;
    int64_t rows = tensor_rows(g->dy);
    size_t bytes = (size_t)tensor_width(g->dy) * sizeof(stored);
    const int32_t *from = g->forward->rows.data;
    PRIMITIVE (ctx, "clear and scatter", MEMORY) {
        memset(g->dx.data, 0, tensor_bytes(g->dx));
#pragma omp parallel for num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t m = 0; m < rows; m++)
            if (from[m] >= 0) memcpy(stored_row(g->dx, from[m]), stored_row(g->dy, m), bytes);
    }
    return OK;
}
SLOT(GATHER, BACKWARD, CPU, FUSED, STORED_DTYPE, gather_backward_cpu_fused);
