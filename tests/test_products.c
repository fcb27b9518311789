/* Products of many tiles, with and without epilogues, against the specification, as in a step of a real
 * model, by the library and on Hopper by our own kernel (kernels/gemm/cuda_hopper.cuh): more tiles than
 * clusters, tiles that are cut at the edges, k that ends inside a stage, several sweeps over the columns. */
#include "kernels/linear/linear.h"
#include "tests/support/compare.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    int64_t rows, in, out;
    bool bias;
    Activation activation;
    bool saves; // GELU's input is saved, and the backward pass follows, through the GELU of the layer below
    bool skip;  // a residual stream is added
} Case;

static const Case gpu_cases[] = {
    {2100, 1352, 2056, true, ACTIVATION_GELU_TANH, true, false}, // GELU with its input, GELU's gradient
    {1031, 264, 6152, true, ACTIVATION_GELU_TANH, false, false}, // GELU alone
    {2100, 1352, 2056, true, ACTIVATION_GELU, true, false},      // the same by erf
    {1031, 264, 6152, true, ACTIVATION_GELU, false, false},
    {600, 8200, 520, true, ACTIVATION_NONE, false, false}, // each row of tiles is swept separately
    {2311, 72, 1544, false, ACTIVATION_NONE, false, false},
};
enum { GPU_CASES = sizeof gpu_cases / sizeof *gpu_cases };

static const Case cpu_cases[] = {
    {256, 768, 2304, true, ACTIVATION_NONE, true, false}, // a layer of GPT-2
    {64, 768, 3072, true, ACTIVATION_GELU_TANH, true, false},
    {64, 768, 3072, true, ACTIVATION_GELU_TANH, false, false},
    {37, 3072, 768, true, ACTIVATION_NONE, false, true},
    {131, 257, 517, true, ACTIVATION_GELU, true, false}, // not a multiple of any tile size
    {131, 257, 517, true, ACTIVATION_GELU, false, false},
    {5, 1000, 33, false, ACTIVATION_RELU, false, false},
    {200, 31, 1, true, ACTIVATION_TANH, false, false},
    {19, 65, 4099, true, ACTIVATION_TANH, false, false},
    {7, 129, 255, false, ACTIVATION_NONE, true, true},
};
enum { CPU_CASES = sizeof cpu_cases / sizeof *cpu_cases };

enum { X, WEIGHT, BIAS, SKIP, DY, INPUT_PRE, INPUTS };
enum { PRE, Y, DX, DWEIGHT, DBIAS, OUTPUTS };

static void counts_of(const Case *c, int64_t in[INPUTS], int64_t out[OUTPUTS]) {
    const int64_t x = c->rows * c->in, y = c->rows * c->out, weight = c->out * c->in;
    const int64_t ins[INPUTS] = {x, weight, c->out, y, y, x};
    const int64_t outs[OUTPUTS] = {y, y, x, weight, c->out};
    for (int i = 0; i < INPUTS; i++) in[i] = ins[i];
    for (int o = 0; o < OUTPUTS; o++) out[o] = outs[o];
}

/* The activation of the layer below. */
static Activation gelu_of(const Case *c) {
    return c->activation ? c->activation : ACTIVATION_GELU_TANH;
}

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    const Dtype dtype = rig->ctx.dtype, wide = wide_dtype(&rig->ctx);
    const Shape x = shape2(c->rows, c->in), y = shape2(c->rows, c->out), none = {0};
    rig->ctx.training = c->saves;
    LinearForward f = {.x = rig_put(rig, "x", dtype, x, in[X]),
                       .weight = rig_put(rig, "weight", dtype, shape2(c->out, c->in), in[WEIGHT]),
                       .bias = rig_put(rig, "bias", dtype, c->bias ? shape1(c->out) : none, in[BIAS]),
                       .skip = rig_put(rig, "skip", dtype, c->skip ? y : none, in[SKIP]),
                       .pre = rig_blank(rig, "pre", dtype, c->saves && c->activation ? y : none),
                       .y = rig_blank(rig, "y", dtype, y),
                       .activation = c->activation};
    expect_ok(linear_forward(&rig->ctx, &f, ARENA_SAVED));
    rig_get(rig, f.y, out[Y]);
    if (!c->saves) return;
    double *nothing = zeros(c->out * c->in);
    LinearForward below = {.activation = gelu_of(c),
                           .pre = rig_put(rig, "input.pre", dtype, x, in[INPUT_PRE])};
    LinearBackward b = {.forward = &f,
                        .input = &below,
                        .dy = rig_put(rig, "dy", dtype, y, in[DY]),
                        .dy_is_dpre = true,
                        .dx = rig_blank(rig, "dx", dtype, x),
                        .dweight = rig_put(rig, "dweight", wide, f.weight.shape, nothing),
                        .dbias = rig_put(rig, "dbias", wide, c->bias ? shape1(c->out) : none, nothing)};
    expect_ok(linear_backward(&rig->ctx, &b));
    rig_get(rig, c->activation ? f.pre : f.y, out[PRE]);
    rig_get(rig, b.dx, out[DX]);
    rig_get(rig, b.dweight, out[DWEIGHT]);
    if (c->bias) rig_get(rig, b.dbias, out[DBIAS]);
}

/* The sum of the magnitudes of each output's terms: the same products on magnitudes, without GELU. */
static void run_plain(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    const Shape x = shape2(c->rows, c->in), y = shape2(c->rows, c->out), weight = shape2(c->out, c->in);
    double *nothing = zeros(c->out * c->in);
    LinearForward f = {.x = rig_put(rig, "x", F64, x, in[X]),
                       .weight = rig_put(rig, "weight", F64, weight, in[WEIGHT]),
                       .bias = rig_put(rig, "bias", F64, shape1(c->out), in[BIAS]),
                       .skip = rig_put(rig, "skip", F64, c->skip ? y : (Shape){0}, in[SKIP]),
                       .y = rig_blank(rig, "y", F64, y)};
    LinearBackward b = {.forward = &f,
                        .dy = rig_put(rig, "dy", F64, y, in[DY]),
                        .dx = rig_blank(rig, "dx", F64, x),
                        .dweight = rig_put(rig, "dweight", F64, weight, nothing),
                        .dbias = rig_put(rig, "dbias", F64, shape1(c->out), nothing)};
    expect_ok(linear_forward(&rig->ctx, &f, ARENA_SAVED));
    expect_ok(linear_backward(&rig->ctx, &b));
    rig_get(rig, f.y, out[Y]);
    rig_get(rig, b.dx, out[DX]);
    rig_get(rig, b.dweight, out[DWEIGHT]);
    rig_get(rig, b.dbias, out[DBIAS]);
}

static double slope(const Case *c, double z) {
    if (gelu_of(c) == ACTIVATION_GELU)
        return (1 + erf(z / sqrt(2))) / 2 + z * exp(-z * z / 2) / sqrt(2 * M_PI);
    const double t = tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z));
    return (1 + t) / 2 + z / 2 * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * z * z);
}

/* As in test_linear.c: GELU is no steeper than 1.13, and the hardware's tanh may err by four units. The
 * products' inputs are already rounded. On entry `bound` holds the magnitudes. */
static void bound_errors(const Case *c, Units u, double *const *in, double *const *want, double **bound) {
    const double steepest = 1.13, tanh_error = 4 * (u.product + u.wide);
    const double forward = sum_error(u.wide, c->in), backward = sum_error(u.wide, c->out);
    const double sum = sum_error(u.wide, c->rows + 1);
    for (int64_t i = 0; i < c->rows * c->out; i++) {
        /* The product may be stored before the bias is added, or the bias and the residual stream before
         * it. */
        const double *pre = c->saves ? want[PRE] : c->activation ? bound[Y] : want[Y];
        const double added = (c->bias ? fabs(in[BIAS][i % c->out]) : 0) + (c->skip ? fabs(in[SKIP][i]) : 0);
        const double stored = 2 * fabs(pre[i]) + added;
        const double error = forward * bound[Y][i] + u.storage * stored;
        bound[Y][i] = c->activation
                          ? steepest * error + tanh_error * fabs(pre[i]) + u.storage * fabs(want[Y][i])
                          : error;
        bound[PRE][i] = error;
    }
    for (int64_t i = 0; c->saves && i < c->rows * c->in; i++) {
        const double factor = fabs(slope(c, in[INPUT_PRE][i])), dx = fabs(want[DX][i]);
        const double product = factor > 1e-6 ? dx / factor : bound[DX][i];
        bound[DX][i] = backward * factor * bound[DX][i] + 2 * u.storage * dx + 2 * tanh_error * product;
    }
    for (int64_t i = 0; i < c->out * c->in; i++) bound[DWEIGHT][i] *= sum;
    for (int64_t i = 0; i < c->out; i++) bound[DBIAS][i] *= sum;
}

static void check(const Variant *variant, const Case *c) {
    static const char *const names[OUTPUTS] = {"pre", "y", "dx", "dweight", "dbias"};
    double *in[INPUTS], *magnitudes[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
    int64_t ins[INPUTS], outs[OUTPUTS];
    counts_of(c, ins, outs);
    for (int i = 0; i < INPUTS; i++) {
        in[i] = normals(ins[i], i == WEIGHT ? 1.5 / sqrt((double)c->in) : 1, variant->dtype);
        magnitudes[i] = zeros(ins[i]);
        for (int64_t k = 0; k < ins[i]; k++) magnitudes[i][k] = i == BIAS && !c->bias ? 0 : fabs(in[i][k]);
    }
    for (int o = 0; o < OUTPUTS; o++)
        got[o] = zeros(outs[o]), want[o] = zeros(outs[o]), bound[o] = zeros(outs[o]);
    rig_run_once(&specification, run_plain, c, magnitudes, bound);
    rig_run_once(&specification, run, c, in, want);
    bound_errors(c, units_of(variant), in, want, bound);
    rig_run(variant, run, c, in, got);
    for (int o = 0; o < OUTPUTS; o++) {
        if (o != Y && !c->saves) continue;
        if (o == DBIAS && !c->bias) continue;
        expect_close(got[o], want[o], bound[o], outs[o], "%s: %lld x %lld -> %lld%s%s, %s, %s", variant->name,
                     (long long)c->rows, (long long)c->in, (long long)c->out, c->bias ? " bias" : "",
                     c->skip ? " skip" : "", activation_name(c->activation), names[o]);
    }
}

static void products_follow_the_specification(void **state) {
    const Variant *variant = test_variant(state, OP_LINEAR);
    bool cpu = variant->backend == BACKEND_CPU;
    for (int i = 0; i < (cpu ? CPU_CASES : GPU_CASES); i++) {
        check(variant, cpu ? &cpu_cases[i] : &gpu_cases[i]);
        test_end(state); // the arrays are large
    }
}

int main(void) {
    const struct CMUnitTest library[] = {
        ON_VARIANT(products_follow_the_specification, 5, "cuda fused fp32"),
        ON_VARIANT(products_follow_the_specification, 7, "the library's, cuda fused bf16")};
    const struct CMUnitTest own[] = {
        ON_VARIANT(products_follow_the_specification, 7, "our own, cuda fused bf16")};
    const struct CMUnitTest onednn[] = {
        ON_VARIANT(products_follow_the_specification, 1, "oneDNN's where it is, cpu fused fp32"),
        ON_VARIANT(products_follow_the_specification, 9, "oneDNN's where it is, cpu fused bf16")};
    const struct CMUnitTest openblas[] = {
        ON_VARIANT(products_follow_the_specification, 1, "OpenBLAS's, cpu fused fp32"),
        ON_VARIANT(products_follow_the_specification, 9, "OpenBLAS's, cpu fused bf16")};
    setenv("FUSEBOX_TUNE", "library", 1);
    int failed = cmocka_run_group_tests(library, NULL, devices_end);
    setenv("FUSEBOX_TUNE", "own", 1);
    failed += cmocka_run_group_tests(own, NULL, devices_end);
    setenv("FUSEBOX_TUNE", "0", 1);
    failed += cmocka_run_group_tests(onednn, NULL, devices_end);
    setenv("FUSEBOX_ONEDNN", "none", 1);
    failed += cmocka_run_group_tests(openblas, NULL, devices_end);
    return failed;
}
