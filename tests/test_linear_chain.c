/* Two linear layers whose backward passes share the work: the upper layer computes the gradient of the lower
 * layer's pre-activation. Gradients against central differences. */
#include "kernels/linear/linear.h"
#include "tests/support/compare.h"

/* Two layers; the upper layer's backward pass computes the gradient of the lower layer's GELU. */
typedef struct {
    int64_t rows, in, hidden, out;
} Chain;

static void chain(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Chain *c = what;
    Ctx *ctx = &rig->ctx;
    const Shape x = shape2(c->rows, c->in), hidden = shape2(c->rows, c->hidden), y = shape2(c->rows, c->out);
    const Shape weight1 = shape2(c->hidden, c->in), weight2 = shape2(c->out, c->hidden);
    ctx->training = true;
    LinearForward lower = {.x = rig_put(rig, "x", F64, x, in[0]),
                           .weight = rig_put(rig, "weight1", F64, weight1, in[1]),
                           .bias = rig_put(rig, "bias1", F64, shape1(c->hidden), in[2]),
                           .pre = rig_blank(rig, "pre", F64, hidden),
                           .y = rig_blank(rig, "hidden", F64, hidden),
                           .activation = ACTIVATION_GELU_TANH};
    LinearForward upper = {.x = lower.y,
                           .weight = rig_put(rig, "weight2", F64, weight2, in[3]),
                           .bias = rig_put(rig, "bias2", F64, shape1(c->out), in[4]),
                           .y = rig_blank(rig, "y", F64, y)};
    expect_ok(linear_forward(ctx, &lower, ARENA_SAVED));
    expect_ok(linear_forward(ctx, &upper, ARENA_SAVED));
    if (!in[5]) {
        rig_get(rig, upper.y, out[0]);
        return;
    }
    double *nothing = zeros(c->hidden * (c->in + c->out + 1));
    LinearBackward second = {.forward = &upper,
                             .input = &lower,
                             .dy = rig_put(rig, "dy", F64, y, in[5]),
                             .dx = rig_blank(rig, "dpre", F64, hidden),
                             .dweight = rig_put(rig, "dweight2", F64, weight2, nothing),
                             .dbias = rig_put(rig, "dbias2", F64, shape1(c->out), nothing)};
    LinearBackward first = {.forward = &lower,
                            .dy = second.dx,
                            .dy_is_dpre = true,
                            .dx = rig_blank(rig, "dx", F64, x),
                            .dweight = rig_put(rig, "dweight1", F64, weight1, nothing),
                            .dbias = rig_put(rig, "dbias1", F64, shape1(c->hidden), nothing)};
    expect_ok(linear_backward(ctx, &second));
    expect_ok(linear_backward(ctx, &first));
    const Tensor gradients[5] = {first.dx, first.dweight, first.dbias, second.dweight, second.dbias};
    for (int i = 0; i < 5; i++) rig_get(rig, gradients[i], out[i]);
}

static void chain_forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    double *const inputs[6] = {in[0], in[1], in[2], in[3], in[4], NULL};
    chain(rig, what, inputs, out);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    const Chain chains[] = {{1, 2, 3, 2}, {4, 3, 5, 2}, {7, 11, 13, 5}};
    for (int i = 0; i < 3; i++) {
        const Chain *c = &chains[i];
        Differentiable d = {5,
                            1,
                            {c->rows * c->in, c->hidden * c->in, c->hidden, c->out * c->hidden, c->out},
                            {c->rows * c->out},
                            chain_forward,
                            chain};
        double *in[5];
        for (int k = 0; k < 5; k++) in[k] = normals(d.input_counts[k], 0.7, F64);
        expect_gradients(&d, c, in, "linear, GELU, linear");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(gradients_are_slopes)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
