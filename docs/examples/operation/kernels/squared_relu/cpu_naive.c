#include "kernels/real.h"
#include "kernels/squared_relu/squared_relu.h"

static void relu(const Ctx *ctx, const stored *x, int64_t count, stored *y) {
    EACH_ELEMENT (ctx, i, count) y[i] = load(x[i]) > 0 ? x[i] : store(0);
}

static void scale(const Ctx *ctx, real factor, int64_t count, stored *x) {
    EACH_ELEMENT (ctx, i, count) x[i] = store(factor * load(x[i]));
}

static void multiply(const Ctx *ctx, const stored *a, const stored *b, int64_t count, stored *y) {
    EACH_ELEMENT (ctx, i, count) y[i] = store(load(a[i]) * load(b[i]));
}

static Status squared_relu_forward_cpu_naive(Ctx *ctx, const void *contract) {
    const SquaredReluForward *s = contract;
    int64_t count = tensor_count(s->x);
    PRIMITIVE (ctx, "ReLU", ACTIVATION) relu(ctx, s->x.data, count, s->y.data);
    PRIMITIVE (ctx, "square", ACTIVATION) multiply(ctx, s->y.data, s->y.data, count, s->y.data);
    return OK;
}
SLOT(SQUARED_RELU, FORWARD, CPU, NAIVE, STORED_DTYPE, squared_relu_forward_cpu_naive);

static Status squared_relu_backward_cpu_naive(Ctx *ctx, const void *contract) {
    const SquaredReluBackward *s = contract;
    int64_t count = tensor_count(s->dx);
    PRIMITIVE (ctx, "ReLU", ACTIVATION) relu(ctx, s->forward->x.data, count, s->dx.data);
    PRIMITIVE (ctx, "scale", ACTIVATION) scale(ctx, 2, count, s->dx.data);
    PRIMITIVE (ctx, "multiply", ACTIVATION) multiply(ctx, s->dx.data, s->dy.data, count, s->dx.data);
    return OK;
}
SLOT(SQUARED_RELU, BACKWARD, CPU, NAIVE, STORED_DTYPE, squared_relu_backward_cpu_naive);
