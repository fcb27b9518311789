/* pool: the first row or the mean of each sequence, in every form; the specification's gradient against
 * differences. */
#include "kernels/pool/pool.h"
#include "tests/support/compare.h"

#include <math.h>

typedef struct {
    PoolKind kind;
    int64_t batch, rows, width;
} Case;

static const Case cases[] = {{POOL_FIRST, 1, 1, 1},    {POOL_MEAN, 1, 1, 1},    {POOL_FIRST, 3, 5, 7},
                             {POOL_MEAN, 3, 5, 7},     {POOL_FIRST, 9, 17, 64}, {POOL_MEAN, 9, 17, 64},
                             {POOL_FIRST, 2, 197, 40}, {POOL_MEAN, 2, 197, 40}, {POOL_MEAN, 5, 33, 130}};
enum { CASES = sizeof cases / sizeof *cases };

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    const Dtype dtype = rig->ctx.dtype;
    const Shape all = shape3(c->batch, c->rows, c->width), some = shape2(c->batch, c->width);
    PoolForward f = {
        .kind = c->kind, .x = rig_put(rig, "x", dtype, all, in[0]), .y = rig_blank(rig, "y", dtype, some)};
    const PoolBackward b = {
        .forward = &f, .dy = rig_put(rig, "dy", dtype, some, in[1]), .dx = rig_blank(rig, "dx", dtype, all)};
    expect_ok(pool_forward(&rig->ctx, &f, ARENA_SAVED));
    expect_ok(pool_backward(&rig->ctx, &b));
    rig_get(rig, f.y, out[0]);
    rig_get(rig, b.dx, out[1]);
}

static void model(const Case *c, Units u, double *const *in, double **want, double **bound) {
    int64_t counted = c->kind == POOL_FIRST ? 1 : c->rows;
    for (int64_t i = 0; i < c->batch * c->rows * c->width; i++) {
        int64_t row = i / c->width, at = row / c->rows * c->width + i % c->width;
        if (row % c->rows >= counted) continue;
        want[0][at] += in[0][i] / (double)counted;
        bound[0][at] += sum_error(u.wide, c->rows) * fabs(in[0][i]) / (double)counted;
        want[1][i] = in[1][at] / (double)counted;
        bound[1][i] = counted == 1 ? 0 : 2 * u.storage * fabs(want[1][i]);
    }
    for (int64_t i = 0; i < c->batch * c->width; i++)
        bound[0][i] = counted == 1 ? 0 : bound[0][i] + 2 * u.storage * fabs(want[0][i]);
}

static void follow(const Variant *variant, bool formula) {
    for (int i = 0; i < CASES; i++) {
        const Case *c = &cases[i];
        int64_t all = c->batch * c->rows * c->width, some = c->batch * c->width;
        double *in[2] = {normals(all, 1, variant->dtype), normals(some, 1, variant->dtype)};
        double *got[2] = {zeros(some), zeros(all)}, *want[2] = {zeros(some), zeros(all)};
        double *bound[2] = {zeros(some), zeros(all)};
        model(c, units_of(variant), in, want, bound);
        if (!formula) rig_run_once(&specification, run, c, in, want);
        rig_run(variant, run, c, in, got);
        expect_close(got[0], want[0], bound[0], some, "%s: pool %d, y", variant->name, i);
        expect_close(got[1], want[1], bound[1], all, "%s: pool %d, dx", variant->name, i);
    }
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    follow(&specification, true);
}

static void form_follows_the_specification(void **state) {
    follow(test_variant(state, OP_POOL), false);
}

static void forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    double *inputs[2] = {in[0], zeros(c->batch * c->width)};
    double *outputs[2] = {out[0], zeros(c->batch * c->rows * c->width)};
    run(rig, what, inputs, outputs);
}

static void backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    double *outputs[2] = {zeros(c->batch * c->width), out[0]};
    run(rig, what, in, outputs);
}

static void gradient_follows_differences(void **state) {
    (void)state;
    for (int kind = POOL_FIRST; kind <= POOL_MEAN; kind++) {
        const Case c = {(PoolKind)kind, 3, 5, 4};
        const Differentiable d = {.inputs = 1,
                                  .outputs = 1,
                                  .input_counts = {60},
                                  .output_counts = {12},
                                  .forward = forward,
                                  .backward = backward};
        double *in[1] = {normals(60, 1, F64)};
        expect_gradients(&d, &c, in, "pool");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_follows_the_formula),
                                       ONCE(gradient_follows_differences),
                                       ON_EACH_VARIANT(form_follows_the_specification)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
