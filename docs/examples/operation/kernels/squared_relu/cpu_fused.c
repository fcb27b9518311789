/* squared_relu, one pass over memory. */
#include "kernels/real.h"
#include "kernels/simd.h"
#include "kernels/squared_relu/squared_relu.h"

static Status squared_relu_forward_cpu_fused(Ctx *ctx, const void *contract) {
    const SquaredReluForward *s = contract;
    const stored *x = s->x.data;
    stored *y = s->y.data;
    PRIMITIVE (ctx, "squared ReLU", ACTIVATION) {
#pragma omp parallel for simd num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t i = 0; i < tensor_count(s->x); i++) {
            float r = load(x[i]) > 0 ? load(x[i]) : 0;
            y[i] = store(r * r);
        }
    }
    return OK;
}
SLOT(SQUARED_RELU, FORWARD, CPU, FUSED, STORED_DTYPE, squared_relu_forward_cpu_fused);

static Status squared_relu_backward_cpu_fused(Ctx *ctx, const void *contract) {
    const SquaredReluBackward *s = contract;
    const stored *x = s->forward->x.data, *dy = s->dy.data;
    stored *dx = s->dx.data;
    PRIMITIVE (ctx, "squared ReLU gradient", ACTIVATION) {
#pragma omp parallel for simd num_threads(cpu_threads(ctx)) schedule(static)
        for (int64_t i = 0; i < tensor_count(s->dx); i++)
            dx[i] = store(load(x[i]) > 0 ? 2 * load(x[i]) * load(dy[i]) : 0);
    }
    return OK;
}
SLOT(SQUARED_RELU, BACKWARD, CPU, FUSED, STORED_DTYPE, squared_relu_backward_cpu_fused);
