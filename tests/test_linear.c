#include "tests/support/compare.h"

#include "kernels/linear/linear.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    int64_t rows, in, out;
    bool bias, gelu, saves; // saves: pre is saved for the backward pass
    bool input;             // x = gelu(pre of a layer below), whose gradient is requested
    bool done;              // dy is already dpre
    bool logits;            // y is fp32 whatever the dtype
    Activation kind;        // replaces GELU_TANH
    bool accumulate;        // dx +=
    int parts;              // layers that weight holds; 0: one
    bool skip;              // added to y
    bool invariant;         // with FUSE_INVARIANT
} Case;

enum { X, WEIGHT, BIAS, DY, DWEIGHT, DBIAS, INPUT_PRE, DX, SKIP, INPUTS };
enum { OUT_PRE, OUT_Y, OUT_DX, OUT_DWEIGHT, OUT_DBIAS, OUTPUTS };

static const Case cases[] = {
    {1, 1, 1, true, false, true, false, false, .logits = false},
    {1, 5, 3, true, true, true, false, false, .logits = false},
    {3, 7, 1, false, false, true, false, false, .logits = false},
    {2, 8, 16, true, true, true, true, false, .logits = false},
    {5, 13, 17, true, true, true, false, true, .logits = false},
    {8, 16, 24, true, false, true, true, false, .logits = false},
    {17, 31, 33, true, true, true, true, false, .logits = false},
    {1, 64, 64, true, true, false, false, false, .logits = false},
    {33, 64, 65, false, true, true, false, false, .logits = false},
    {7, 65, 64, true, false, true, false, false, .logits = false},
    {64, 48, 192, true, true, true, false, false, .logits = false},
    {64, 192, 48, true, false, true, true, false, .logits = false},
    {65, 40, 130, true, true, true, true, true, .logits = false},
    {13, 127, 96, true, false, false, false, false, .logits = false},
    {127, 24, 100, true, true, true, false, false, .logits = false},
    {130, 128, 56, false, false, true, true, false, .logits = false},
    {2, 300, 257, true, true, true, true, false, .logits = false},
    {257, 72, 7, true, true, true, false, false, .logits = false},
    {31, 256, 128, true, true, true, true, false, .logits = false},
    {1000, 8, 11, true, false, true, false, false, .logits = false},
    {3, 768, 40, true, true, true, false, false, .logits = false},
    {128, 128, 128, true, true, true, true, false, .logits = false},
    {11, 96, 384, true, true, false, false, false, .logits = false},
    {4, 1031, 19, true, false, true, true, false, .logits = false},
    {257, 129, 65, false, true, false, false, false, .logits = false},
    {1, 64, 257, false, false, false, false, false, .logits = true},
    {9, 96, 130, false, false, false, false, false, .logits = true},
    {5, 13, 17, true, true, true, true, false, .kind = ACTIVATION_GELU},
    {33, 64, 65, true, true, true, false, false, .kind = ACTIVATION_GELU},
    {128, 96, 64, true, true, true, true, true, .kind = ACTIVATION_GELU},
    {3, 40, 130, true, true, false, false, false, .kind = ACTIVATION_GELU},
    {31, 65, 72, true, true, true, true, false, .kind = ACTIVATION_RELU},
    {64, 48, 128, true, true, true, false, false, .kind = ACTIVATION_RELU},
    {9, 17, 33, false, true, true, false, true, .kind = ACTIVATION_RELU},
    {2, 72, 24, true, true, false, false, false, .kind = ACTIVATION_RELU},
    {65, 24, 40, true, true, true, true, false, .kind = ACTIVATION_TANH},
    {1, 24, 40, true, true, false, false, false, .kind = ACTIVATION_TANH},
    {17, 31, 33, true, false, true, false, false, .accumulate = true},
    {64, 128, 384, true, false, true, false, false, .accumulate = true},
    {130, 24, 40, true, true, true, false, true, .accumulate = true},
    {33, 24, 72, true, false, true, false, false, .parts = 3},
    {5, 7, 9, true, false, true, false, false, .parts = 3, .accumulate = true},
    {64, 40, 130, false, false, true, false, false, .parts = 2},
    {3, 16, 48, true, false, false, false, false, .parts = 3},
    {64, 192, 48, true, false, true, false, false, .skip = true},
    {33, 24, 72, false, false, true, true, false, .skip = true},
    {3, 768, 40, true, false, true, false, false, .skip = true},
    {1, 64, 257, false, false, false, false, false, .skip = true},
    {257, 129, 65, true, false, false, false, false, .skip = true},
    {130, 256, 128, true, false, true, true, false, .skip = true, .kind = ACTIVATION_RELU},
    {9, 520, 130, true, true, false, false, false, .logits = false},
    {40, 1032, 96, true, true, true, false, false, .kind = ACTIVATION_RELU},
    {64, 2048, 33, false, false, false, false, false, .logits = true},
    {24, 136, 70, true, false, true, false, false, .skip = true},
    {1, 72, 40, true, true, true, false, false, .invariant = true},
    {20, 1000, 65, true, false, true, false, false, .skip = true, .invariant = true},
    {200, 264, 136, true, true, true, false, false, .invariant = true},
    {129, 648, 300, false, false, false, false, false, .logits = true, .invariant = true},
    {20, 96, 65, true, false, true, false, false, .skip = true},
    {1, 64, 40, true, false, false, false, false, .skip = true, .invariant = true},
    {33, 544, 100, false, false, false, false, false, .logits = true, .invariant = true},
    {300, 4096, 72, true, true, true, false, false, .invariant = true},
};
enum { CASES = sizeof cases / sizeof *cases };

static int64_t input_count(const Case *c, int i) {
    const int64_t counts[INPUTS] = {c->rows * c->in,  c->out * c->in,  c->out,
                                    c->rows * c->out, c->out * c->in,  c->out,
                                    c->rows * c->in,  c->rows * c->in, c->rows * c->out};
    return counts[i];
}

static Activation activation_of(const Case *c) {
    return c->kind == ACTIVATION_NONE ? ACTIVATION_GELU_TANH : c->kind;
}

static int64_t output_count(const Case *c, int o) {
    const int64_t counts[OUTPUTS] = {c->rows * c->out, c->rows * c->out, c->rows * c->in, c->out * c->in,
                                     c->out};
    return counts[o];
}

static Shape when(bool present, Shape shape) {
    return present ? shape : (Shape){0};
}

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    Ctx *ctx = &rig->ctx;
    const Dtype dtype = ctx->dtype, wide = wide_dtype(ctx);
    const Shape x = shape2(c->rows, c->in), weight = shape2(c->out, c->in), y = shape2(c->rows, c->out);
    const Shape bias = when(c->bias, shape1(c->out));
    ctx->training = c->saves;
    LinearForward f = {.x = rig_put(rig, "x", dtype, x, in[X]),
                       .weight = rig_put(rig, "weight", dtype, weight, in[WEIGHT]),
                       .bias = rig_put(rig, "bias", dtype, bias, in[BIAS]),
                       .pre = rig_blank(rig, "pre", dtype, when(c->gelu && c->saves, y)),
                       .y = rig_blank(rig, "y", c->logits ? wide : dtype, y),
                       .skip = rig_put(rig, "skip", dtype, when(c->skip, y), in[SKIP]),
                       .activation = c->gelu ? activation_of(c) : ACTIVATION_NONE,
                       .parts = c->parts};
    if (c->invariant) ctx->fuses |= FUSE_INVARIANT;
    expect_ok(linear_forward(ctx, &f, ARENA_SAVED));
    ctx->fuses &= ~FUSE_INVARIANT;
    rig_get(rig, f.y, out[OUT_Y]);
    if (!c->saves) return;
    LinearForward below = {.activation = activation_of(c),
                           .pre = rig_put(rig, "input.pre", dtype, when(c->input, x), in[INPUT_PRE])};
    LinearBackward b = {.forward = &f,
                        .input = c->input ? &below : NULL,
                        .dy = rig_put(rig, "dy", dtype, y, in[DY]),
                        .dy_is_dpre = c->done,
                        .dx = c->accumulate ? rig_put(rig, "dx", dtype, x, in[DX])
                                            : rig_blank(rig, "dx", dtype, x),
                        .accumulate = c->accumulate,
                        .dweight = rig_put(rig, "dweight", wide, weight, in[DWEIGHT]),
                        .dbias = rig_put(rig, "dbias", wide, bias, in[DBIAS])};
    expect_ok(linear_backward(ctx, &b));
    rig_get(rig, f.pre, out[OUT_PRE]);
    rig_get(rig, b.dx, out[OUT_DX]);
    rig_get(rig, b.dweight, out[OUT_DWEIGHT]);
    rig_get(rig, b.dbias, out[OUT_DBIAS]);
}

static void make_inputs(const Case *c, Dtype dtype, double **in) {
    for (int i = 0; i < INPUTS; i++) {
        bool wide = i == DWEIGHT || i == DBIAS;
        double scale = i == WEIGHT ? 1.5 / sqrt((double)c->in) : 1;
        in[i] = normals(input_count(c, i), scale, wide && dtype == BF16 ? F32 : dtype);
    }
}

static void make_outputs(const Case *c, double **out) {
    for (int o = 0; o < OUTPUTS; o++) out[o] = zeros(output_count(c, o));
}

static double value(Activation activation, double z) {
    switch (activation) {
    case ACTIVATION_GELU_TANH: return z / 2 * (1 + tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
    case ACTIVATION_GELU: return z / 2 * (1 + erf(z / sqrt(2)));
    case ACTIVATION_RELU: return fmax(z, 0);
    case ACTIVATION_TANH: return tanh(z);
    case ACTIVATION_NONE:
    case ACTIVATION_SWIGLU: break;
    }
    return NAN;
}

static double slope_of(Activation activation, double z) {
    double inner = sqrt(2 / M_PI) * (z + 0.044715 * z * z * z), t = tanh(inner);
    switch (activation) {
    case ACTIVATION_GELU_TANH:
        return (1 + t) / 2 + z / 2 * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * z * z);
    case ACTIVATION_GELU: return (1 + erf(z / sqrt(2))) / 2 + z * exp(-z * z / 2) / sqrt(2 * M_PI);
    case ACTIVATION_RELU: return z > 0;
    case ACTIVATION_TANH: return 1 - tanh(z) * tanh(z);
    case ACTIVATION_NONE:
    case ACTIVATION_SWIGLU: break;
    }
    return NAN;
}

/* |gelu'| <= 1.13 and |gelu''| <= 1.13 everywhere. tanh itself may have an error of four unit roundoffs of
 * the product (a library's epilogue in tf32 and bf16 uses the hardware's tanh); gelu multiplies it by z/2,
 * and the slope, through t and t^2, by at most 1/2 + |z| * 0.8 * (1 + 0.134 z^2) * (1 - t^2) < 2. The same
 * bounds hold for the other activations; but a ReLU's slope may be 0 or 1 if the error interval contains
 * 0. */
static const double STEEPEST = 1.13;

static double tanh_error(Units u) {
    return 4 * (u.product + u.wide);
}

static void model_forward(const Case *c, Units u, double *const *in, double **want, double **bound) {
    const double error = product_error(u, c->in);
    for (int64_t n = 0; n < c->rows; n++)
        for (int64_t o = 0; o < c->out; o++) {
            double pre = c->bias ? in[BIAS][o] : 0, size = fabs(pre);
            for (int64_t i = 0; i < c->in; i++) {
                double term = in[X][n * c->in + i] * in[WEIGHT][o * c->in + i];
                pre += term;
                size += fabs(term);
            }
            /* The product may be stored before the bias is added; size - |bias| bounds the product alone. */
            double pre_error = error * size + u.storage * (size + fabs(pre));
            int64_t at = n * c->out + o;
            want[OUT_PRE][at] = pre;
            bound[OUT_PRE][at] = pre_error;
            want[OUT_Y][at] = c->gelu ? value(activation_of(c), pre) : pre;
            bound[OUT_Y][at] =
                c->gelu ? STEEPEST * pre_error + tanh_error(u) * fabs(pre) + u.storage * fabs(want[OUT_Y][at])
                        : pre_error;
            if (!c->skip) continue;
            want[OUT_Y][at] += in[SKIP][at];
            bound[OUT_Y][at] += error * fabs(in[SKIP][at]) + u.storage * fabs(want[OUT_Y][at]);
        }
}

static void model_backward(const Case *c, Units u, double *const *in, double **want, double **bound) {
    double *dpre = zeros(c->rows * c->out), *dpre_error = zeros(c->rows * c->out);
    for (int64_t at = 0; at < c->rows * c->out; at++) {
        bool slope = c->gelu && !c->done;
        dpre[at] = in[DY][at] * (slope ? slope_of(activation_of(c), want[OUT_PRE][at]) : 1);
        bool kink = activation_of(c) == ACTIVATION_RELU && fabs(want[OUT_PRE][at]) <= bound[OUT_PRE][at];
        if (slope && kink)
            dpre_error[at] = fabs(in[DY][at]);
        else if (slope)
            dpre_error[at] = fabs(in[DY][at]) * (STEEPEST * bound[OUT_PRE][at] + 2 * tanh_error(u)) +
                             u.storage * fabs(dpre[at]);
    }
    const double error = product_error(u, c->out), sum = sum_error(u.wide, c->rows + 1);
    for (int64_t n = 0; n < c->rows; n++)
        for (int64_t i = 0; i < c->in; i++) {
            int64_t at = n * c->in + i;
            double dx = 0, size = 0, carried = 0;
            for (int64_t o = 0; o < c->out; o++) {
                double w = in[WEIGHT][o * c->in + i];
                dx += dpre[n * c->out + o] * w;
                size += fabs(dpre[n * c->out + o] * w);
                carried += dpre_error[n * c->out + o] * fabs(w);
            }
            double dx_error = carried + error * size + u.storage * fabs(dx);
            double slope = c->input ? slope_of(activation_of(c), in[INPUT_PRE][at]) : 1;
            if (c->parts)
                dx_error += 2 * u.storage * c->parts * size; // the parts' sums are stored in between
            want[OUT_DX][at] = dx * slope;
            bound[OUT_DX][at] = dx_error * fabs(slope);
            if (c->accumulate) {
                want[OUT_DX][at] += in[DX][at];
                bound[OUT_DX][at] += (u.storage + 2 * u.wide) * (fabs(in[DX][at]) + fabs(dx));
            }
            if (c->input) bound[OUT_DX][at] += 2 * tanh_error(u) * size + u.storage * fabs(dx * slope);
        }
    for (int64_t at = 0; at < c->out * c->in; at++) {
        want[OUT_DWEIGHT][at] = in[DWEIGHT][at];
        bound[OUT_DWEIGHT][at] = sum * fabs(in[DWEIGHT][at]);
    }
    for (int64_t o = 0; c->bias && o < c->out; o++) {
        want[OUT_DBIAS][o] = in[DBIAS][o];
        bound[OUT_DBIAS][o] = sum * fabs(in[DBIAS][o]);
    }
    for (int64_t n = 0; n < c->rows; n++)
        for (int64_t o = 0; o < c->out; o++) {
            double d = dpre[n * c->out + o], d_error = dpre_error[n * c->out + o];
            for (int64_t i = 0; i < c->in; i++) {
                double x = in[X][n * c->in + i];
                want[OUT_DWEIGHT][o * c->in + i] += d * x;
                bound[OUT_DWEIGHT][o * c->in + i] += d_error * fabs(x) + (2 * u.product + sum) * fabs(d * x);
            }
            if (!c->bias) continue;
            want[OUT_DBIAS][o] += d;
            bound[OUT_DBIAS][o] += d_error + sum * fabs(d);
        }
}

static void model(const Case *c, Units u, double *const *in, double **want, double **bound) {
    make_outputs(c, want);
    make_outputs(c, bound);
    model_forward(c, u, in, want, bound);
    if (c->saves) model_backward(c, u, in, want, bound);
    if (!c->gelu || !c->saves)
        for (int64_t i = 0; i < c->rows * c->out; i++) want[OUT_PRE][i] = bound[OUT_PRE][i] = 0;
}

static void follow(const Variant *variant, bool formula) {
    static const char *const names[OUTPUTS] = {"pre", "y", "dx", "dweight", "dbias"};
    for (int k = 0; k < CASES; k++) {
        const Case *c = &cases[k];
        double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
        make_inputs(c, variant->dtype, in);
        make_outputs(c, got);
        model(c, units_of(variant), in, want, bound);
        if (!formula) rig_run_once(&specification, run, c, in, want);
        rig_run(variant, run, c, in, got);
        for (int o = 0; o < OUTPUTS; o++)
            expect_close(got[o], want[o], bound[o], output_count(c, o),
                         "%s: linear %lldx%lld->%lld%s %s%s, %s", variant->name, (long long)c->rows,
                         (long long)c->in, (long long)c->out, c->bias ? " bias" : "",
                         c->gelu ? activation_name(activation_of(c)) : "", c->input ? " after it" : "",
                         names[o]);
    }
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    follow(&specification, true);
}

static void form_follows_the_specification(void **state) {
    follow(test_variant(state, OP_LINEAR), false);
}

static void no_rows_are_harmless(void **state) {
    const Variant *variant = test_variant(state, OP_LINEAR);
    const Case c = {0, 16, 24, true, true, true, false, false, .logits = false};
    double *in[INPUTS], *got[OUTPUTS];
    make_inputs(&c, variant->dtype, in);
    make_outputs(&c, got);
    rig_run(variant, run, &c, in, got);
    expect_equal(got[OUT_DWEIGHT], in[DWEIGHT], c.out * c.in, "dweight");
    expect_equal(got[OUT_DBIAS], in[DBIAS], c.out, "dbias");
}

/* A plain layer with a bias. */
static LinearForward plain_layer(Rig *rig, const Case *c, double *const *in) {
    const Dtype dtype = rig->ctx.dtype;
    rig->ctx.training = true;
    return (LinearForward){.x = rig_put(rig, "x", dtype, shape2(c->rows, c->in), in[X]),
                           .weight = rig_put(rig, "weight", dtype, shape2(c->out, c->in), in[WEIGHT]),
                           .bias = rig_put(rig, "bias", dtype, shape1(c->out), in[BIAS]),
                           .y = rig_blank(rig, "y", dtype, shape2(c->rows, c->out))};
}

/* Like `run`, but in two passes: dx, then dweight and dbias; without dbias if another operation computes
 * it. */
static void run_two_passes(Rig *rig, const void *what, bool sums, double *const *in, double *const *out) {
    const Dtype dtype = rig->ctx.dtype, wide = wide_dtype(&rig->ctx);
    const LinearForward f = plain_layer(rig, what, in);
    LinearBackward first = {.forward = &f,
                            .dy = rig_put(rig, "dy", dtype, f.y.shape, in[DY]),
                            .dx = rig_blank(rig, "dx", dtype, f.x.shape)};
    LinearBackward second = {
        .forward = &f, .dy = first.dy, .dweight = rig_put(rig, "dweight", wide, f.weight.shape, in[DWEIGHT])};
    if (sums) second.dbias = rig_put(rig, "dbias", wide, f.bias.shape, in[DBIAS]);
    expect_ok(linear_backward(&rig->ctx, &first));
    expect_ok(linear_backward(&rig->ctx, &second));
    rig_get(rig, first.dx, out[OUT_DX]);
    rig_get(rig, second.dweight, out[OUT_DWEIGHT]);
    if (sums) rig_get(rig, second.dbias, out[OUT_DBIAS]);
}

static void run_in_two(Rig *rig, const void *what, double *const *in, double *const *out) {
    run_two_passes(rig, what, true, in, out);
}

static void run_without_sums(Rig *rig, const void *what, double *const *in, double *const *out) {
    run_two_passes(rig, what, false, in, out);
}

static void gradients_may_come_apart(void **state) {
    const Variant *variant = test_variant(state, OP_LINEAR);
    const Case c = {33, 40, 24, true, false, true, false, false, .logits = false};
    double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS];
    make_inputs(&c, variant->dtype, in);
    make_outputs(&c, got);
    make_outputs(&c, want);
    rig_run(variant, run, &c, in, want);
    rig_run(variant, run_without_sums, &c, in, got);
    for (int o = OUT_DX; o < OUT_DBIAS; o++) expect_equal(got[o], want[o], output_count(&c, o), "no sums");
    rig_run(variant, run_in_two, &c, in, got);
    for (int o = OUT_DX; o < OUTPUTS; o++) expect_equal(got[o], want[o], output_count(&c, o), "two passes");
}

/* GELU of large z, where z^3 is huge and tanh is 1: nothing may overflow to NaN. */
static void large_inputs_stay_finite(void **state) {
    const Variant *variant = test_variant(state, OP_LINEAR);
    const Case c = {8, 1, 8, true, true, true, false, false, .logits = false};
    double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS];
    make_inputs(&c, variant->dtype, in);
    make_outputs(&c, got);
    make_outputs(&c, want);
    for (int i = 0; i < 8; i++) {
        in[X][i] = i % 2 ? -4096 : 4096;
        in[WEIGHT][i] = i < 4 ? 4096 : 1;
    }
    rig_run_once(&specification, run, &c, in, want);
    rig_run(variant, run, &c, in, got);
    for (int o = 0; o < OUTPUTS; o++) {
        int64_t count = output_count(&c, o);
        double *bound = zeros(count), largest = 0;
        for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(want[o][i]));
        for (int64_t i = 0; i < count; i++) bound[i] = 16 * units_of(variant).product * largest;
        expect_close(got[o], want[o], bound, count, "%s: large inputs, output %d", variant->name, o);
    }
}

static void slope_for_itself(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    double *all_in[INPUTS], *all_out[OUTPUTS];
    make_outputs(c, all_out);
    for (int i = 0; i < INPUTS; i++) all_in[i] = zeros(input_count(c, i));
    all_in[X] = in[0];
    all_in[WEIGHT] = in[1];
    if (in[2]) all_in[DY] = in[2];
    all_out[in[2] ? OUT_DX : OUT_Y] = out[0];
    if (in[2]) all_out[OUT_DWEIGHT] = out[1];
    run(rig, c, all_in, all_out);
}

static void alone(Rig *rig, const void *what, double *const *in, double *const *out) {
    double *const inputs[3] = {in[0], in[1], NULL};
    slope_for_itself(rig, what, inputs, out);
}

/* The same with the layer's own gradient instead of the one in the layer above, for each activation. */
static void own_gradients_are_slopes(void **state) {
    (void)state;
    for (Activation kind = ACTIVATION_GELU_TANH; kind <= ACTIVATION_TANH; kind++) {
        const Case c = {4, 5, 4, false, true, true, false, false, .kind = kind};
        double *in[2] = {normals(20, 1, F64), normals(20, 1, F64)};
        Differentiable d = {2, 1, {20, 20}, {16}, alone, slope_for_itself};
        expect_gradients(&d, &c, in, activation_name(kind));
    }
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true, .training = true};
    const LinearForward right = {.x = tensor_view(NULL, F32, shape2(4, 8)),
                                 .weight = tensor_view(NULL, F32, shape2(6, 8)),
                                 .y = tensor_view(NULL, F32, shape2(4, 6))};
    LinearForward wrong[] = {right, right, right, right, right, right, right};
    wrong[0].x = tensor_view(NULL, F32, shape2(4, 7));
    wrong[1].bias = tensor_view(NULL, F32, shape1(8));
    wrong[2].activation = ACTIVATION_GELU_TANH;
    wrong[2].pre = tensor_view(NULL, F32, shape2(4, 7));
    wrong[3].pre = right.y; // and no activation
    wrong[4].activation = ACTIVATION_COUNT;
    wrong[5].skip = right.x; // as wide as x, not as y
    wrong[6].skip = wrong[6].pre = right.y;
    wrong[6].activation = ACTIVATION_RELU;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Status status = linear_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
    for (int i = 0; i < ARENA_COUNT; i++) arena_close(&ctx.arenas[i]);
}

/* Memory that was planned for many rows suffices for fewer. */
static void fewer_rows_need_no_more(void **state) {
    (void)state;
    enum { MOST = 80 };
    size_t peaks[MOST + 1] = {0};
    for (int64_t rows = 1; rows <= MOST; rows++) {
        Ctx ctx = {
            .device = test_device(BACKEND_CPU), .dtype = BF16, .fuses = 1u << OP_LINEAR, .measuring = true};
        LinearForward l = {.x = tensor_view(NULL, BF16, shape2(rows, 8192)),
                           .weight = tensor_view(NULL, BF16, shape2(64, 8192)),
                           .y = tensor_view(NULL, BF16, shape2(rows, 64))};
        expect_ok(linear_forward(&ctx, &l, ARENA_SAVED));
        peaks[rows] = ctx.arenas[ARENA_SCRATCH].peak;
        assert_true(peaks[rows] >= peaks[rows - 1]);
        for (int i = 0; i < ARENA_COUNT; i++) arena_close(&ctx.arenas[i]);
    }
}

typedef struct {
    int64_t rows, in, out, most; // most: rows at a time
    bool gated;                  // and no bias
} Pieces;

/* y of all rows, computed `most` rows at a time, under `invariant`. */
static void run_in_pieces(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Pieces *c = what;
    Ctx *ctx = &rig->ctx;
    const Tensor x = rig_put(rig, "x", ctx->dtype, shape2(c->rows, c->in), in[X]);
    const int64_t width = c->gated ? c->out / 2 : c->out;
    const Tensor y = rig_blank(rig, "y", ctx->dtype, shape2(c->rows, width));
    LinearForward f = {.weight = rig_put(rig, "weight", ctx->dtype, shape2(c->out, c->in), in[WEIGHT])};
    if (c->gated)
        f.activation = ACTIVATION_SWIGLU;
    else
        f.bias = rig_put(rig, "bias", ctx->dtype, shape1(c->out), in[BIAS]);
    ctx->fuses |= FUSE_INVARIANT;
    for (int64_t first = 0, rows; first < c->rows; first += rows) {
        rows = c->rows - first < c->most ? c->rows - first : c->most;
        f.x = tensor_elements(x, first * c->in, shape2(rows, c->in));
        f.y = tensor_elements(y, first * width, shape2(rows, width));
        expect_ok(linear_forward(ctx, &f, ARENA_SAVED));
    }
    ctx->fuses &= ~FUSE_INVARIANT;
    rig_get(rig, y, out[0]);
}

/* Products of rows and weights of many sizes, so that some are denormal. */
static void expect_rows_alone(const Variant *variant, Pieces c, const int64_t *most, size_t count) {
    double *in[INPUTS] = {[X] = normals(c.rows * c.in, 1, F64),
                          [WEIGHT] = normals(c.out * c.in, 1, F64),
                          [BIAS] = normals(c.out, 1e-38, F64)};
    for (int64_t n = 0; n < c.rows * c.in; n++) in[X][n] *= pow(10, -(double)(n / c.in % 20));
    for (int64_t n = 0; n < c.out * c.in; n++) in[WEIGHT][n] *= pow(10, -(double)(n / c.in % 25));
    const int64_t outputs = c.rows * (c.gated ? c.out / 2 : c.out);
    double *want = zeros(outputs), *got = zeros(outputs);
    c.most = c.rows;
    rig_run(variant, run_in_pieces, &c, in, &want);
    for (size_t i = 0; i < count; i++) {
        c.most = most[i];
        rig_run(variant, run_in_pieces, &c, in, &got);
        expect_equal(got, want, outputs, "in pieces");
    }
}

static void rows_of_a_fuse_do_not_know_each_other(void **state) {
    static const int64_t shapes[][2] = {{32, 32},   {96, 37},  {576, 72}, {160, 129},
                                        {1024, 40}, {64, 256}, {40, 33}};
    static const int64_t most[] = {1, 2, 3, 4, 5, 6, 7}, many[] = {1, 60, 100, 500};
    const Variant *variant = test_variant(state, OP_LINEAR);
    if (variant->form != FORM_FUSED) skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_rows_alone(variant, (Pieces){.rows = 20, .in = shapes[i][0], .out = shapes[i][1]}, most,
                          sizeof most / sizeof *most);
    if (variant->backend != BACKEND_CUDA) return;
    /* each form of tiles for many rows, and the product that takes inputs of one slice */
    const Pieces large[] = {{.rows = 100, .in = 1096, .out = 72},
                            {.rows = 1000, .in = 600, .out = 576},
                            {.rows = 1000, .in = 600, .out = 576, .gated = true},
                            {.rows = 1000, .in = 1096, .out = 1200},
                            {.rows = 1000, .in = 1096, .out = 1200, .gated = true},
                            {.rows = 1000, .in = 600, .out = 3000},
                            {.rows = 1000, .in = 600, .out = 3008, .gated = true},
                            {.rows = 1000, .in = 184, .out = 1200},
                            {.rows = 1000, .in = 184, .out = 1200, .gated = true}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        expect_rows_alone(variant, large[i], many, sizeof many / sizeof *many);
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_follows_the_formula),
                                       ONCE(own_gradients_are_slopes),
                                       ONCE(wrong_contracts_are_refused),
                                       ONCE(fewer_rows_need_no_more),
                                       ON_EACH_VARIANT(form_follows_the_specification),
                                       ON_EACH_VARIANT(no_rows_are_harmless),
                                       ON_EACH_VARIANT(gradients_may_come_apart),
                                       ON_EACH_VARIANT(large_inputs_stay_finite),
                                       ON_EACH_VARIANT(rows_of_a_fuse_do_not_know_each_other)};
    const struct CMUnitTest own[] = {
        ON_VARIANT(form_follows_the_specification, 7, "our own products, cuda fused bf16")};
    int failed = cmocka_run_group_tests(tests, NULL, devices_end);
    setenv("FUSEBOX_TUNE", "own", 1); // kernels/gemm/cuda_hopper.cuh
    failed += cmocka_run_group_tests(own, NULL, devices_end);
    return failed;
}
