/* squared_relu: every form against the specification, and the specification's gradient against
 * differences. */
#include "kernels/squared_relu/squared_relu.h"
#include "tests/support/compare.h"

#include <math.h>

enum { ROWS = 37, WIDTH = 53, COUNT = ROWS * WIDTH };

/* in: x, dy; out: y, dx */
static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)what;
    const Dtype dtype = rig->ctx.dtype;
    const Shape shape = shape2(ROWS, WIDTH);
    const SquaredReluForward f = {.x = rig_put(rig, "x", dtype, shape, in[0]),
                                  .y = rig_blank(rig, "y", dtype, shape)};
    const SquaredReluBackward b = {.forward = &f,
                                   .dy = rig_put(rig, "dy", dtype, shape, in[1]),
                                   .dx = rig_blank(rig, "dx", dtype, shape)};
    expect_ok(squared_relu_forward(&rig->ctx, &f));
    expect_ok(squared_relu_backward(&rig->ctx, &b));
    rig_get(rig, f.y, out[0]);
    rig_get(rig, b.dx, out[1]);
}

/* One product rounds, and the store of its result: two units. A factor of 2 is exact. */
static void form_follows_the_specification(void **state) {
    const Variant *variant = test_variant(state, OP_SQUARED_RELU);
    double *in[2] = {normals(COUNT, 1, variant->dtype), normals(COUNT, 1, variant->dtype)};
    double *got[2] = {zeros(COUNT), zeros(COUNT)}, *want[2] = {zeros(COUNT), zeros(COUNT)};
    double *bound = zeros(COUNT);
    rig_run(&specification, run, NULL, in, want);
    rig_run(variant, run, NULL, in, got);
    for (int o = 0; o < 2; o++) {
        for (int i = 0; i < COUNT; i++) bound[i] = 2 * units_of(variant).storage * fabs(want[o][i]);
        expect_close(got[o], want[o], bound, COUNT, "%s: output %d", variant->name, o);
    }
}

static void forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    double *const inputs[2] = {in[0], zeros(COUNT)}, *const outputs[2] = {out[0], zeros(COUNT)};
    run(rig, what, inputs, outputs);
}

static void backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    double *const outputs[2] = {zeros(COUNT), out[0]};
    run(rig, what, in, outputs);
}

static void gradient_follows_differences(void **state) {
    (void)state;
    const Differentiable d = {.inputs = 1,
                              .outputs = 1,
                              .input_counts = {COUNT},
                              .output_counts = {COUNT},
                              .forward = forward,
                              .backward = backward};
    double *in[1] = {normals(COUNT, 1, F64)};
    expect_gradients(&d, NULL, in, "squared_relu");
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(gradient_follows_differences),
                                       ON_EACH_VARIANT(form_follows_the_specification)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
