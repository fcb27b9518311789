/* Activations, and their derivatives times a gradient, that an 8-bit layer defers to the cast of the layer
 * that reads it (kernels/linear/linear.h), checked byte by byte. x is the identity, and all other operands
 * are e4m3 numbers, so that pre is exactly the weight transposed. The reader's weight is the identity, so
 * that its y is the activation rounded to 8 bits, and dweight is the rounded dpre. Forms that do not defer
 * must give the same. */
#include "base/float8.h"
#include "kernels/linear/linear.h"
#include "tests/support/compare.h"

#include <math.h>

typedef struct {
    Activation activation;
    int64_t rows, hidden; // x is (rows, rows)
} Pair;

static const Pair pairs[] = {
    {ACTIVATION_GELU_TANH, 32, 48}, {ACTIVATION_GELU, 16, 16},   {ACTIVATION_RELU, 48, 144},
    {ACTIVATION_TANH, 144, 32},     {ACTIVATION_SWIGLU, 32, 48}, {ACTIVATION_SWIGLU, 144, 272},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* e4m3 numbers divided by 16. The largest activations are clipped at 448/128; gradients are not clipped. */
enum { WEIGHT_SCALE = 16, ACTIVATION_SCALE = 128, GRADIENT_SCALE = 8 };

enum { X, WEIGHT, BIAS, READER, DY, SCALES, READER_SCALES, SEEN, DWEIGHT, INPUTS };
enum { OUT_Y, OUT_DWEIGHT, OUT_DBIAS, OUT_SEEN, OUTPUTS };

typedef struct {
    const Pair *pair;
    bool fp8;
} Run;

static int64_t outputs_of(const Pair *p) {
    return p->hidden * (activation_gated(p->activation) ? 2 : 1);
}

static bool has_bias(const Pair *p) {
    return !activation_gated(p->activation);
}

static void run_pair(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Run *run = what;
    const Pair *p = run->pair;
    Ctx *ctx = &rig->ctx;
    const Dtype dtype = ctx->dtype, wide = wide_dtype(ctx);
    const int64_t O = outputs_of(p), H = p->hidden;
    const Shape each = shape1(OPERANDS), seen = shape2(OPERANDS, CAST_SEEN), y = shape2(p->rows, H);
    const Shape bias = has_bias(p) ? shape1(O) : (Shape){0};
    ctx->training = ctx->scaled = true;
    if (run->fp8) ctx->fuses |= FUSE_FP8;
    LinearForward layer = {.x = rig_put(rig, "x", dtype, shape2(p->rows, p->rows), in[X]),
                           .weight = rig_put(rig, "weight", dtype, shape2(O, p->rows), in[WEIGHT]),
                           .bias = rig_put(rig, "bias", dtype, bias, in[BIAS]),
                           .activation = p->activation,
                           .fp8 = true,
                           .scales = rig_put(rig, "scales", F32, each, in[SCALES]),
                           .seen = rig_put(rig, "seen", wide, seen, in[SEEN]),
                           .may_defer = true};
    LinearForward reader = {.weight = rig_put(rig, "reader", dtype, shape2(H, H), in[READER]),
                            .y = rig_blank(rig, "reader's y", dtype, y),
                            .fp8 = true,
                            .scales = rig_put(rig, "reader's scales", F32, each, in[READER_SCALES]),
                            .seen = rig_put(rig, "reader's seen", wide, seen, in[SEEN]),
                            .input = &layer};
    Tensor gradient;
    ctx->call = "layer";
    expect_ok(linear_forward(ctx, &layer, ARENA_SAVED));
    reader.x = layer.y;
    ctx->call = "reader";
    expect_ok(linear_forward(ctx, &reader, ARENA_SAVED));
    rig_get(rig, reader.y, out[OUT_Y]);
    expect_ok(linear_take_gradient(ctx, &layer, &gradient));
    const LinearBackward first = {.forward = &reader,
                                  .input = &layer,
                                  .dy = rig_put(rig, "dy", dtype, y, in[DY]),
                                  .dx = gradient,
                                  .dweight =
                                      rig_put(rig, "reader's dweight", wide, shape2(H, H), in[READER])};
    expect_ok(linear_backward(ctx, &first));
    const LinearBackward second = {.forward = &layer,
                                   .dy = gradient,
                                   .dy_is_dpre = true,
                                   .dweight = rig_put(rig, "dweight", wide, shape2(O, p->rows), in[DWEIGHT]),
                                   .dbias = rig_put(rig, "dbias", wide, bias, in[BIAS])};
    expect_ok(linear_backward(ctx, &second));
    rig_get(rig, second.dweight, out[OUT_DWEIGHT]);
    if (has_bias(p)) rig_get(rig, second.dbias, out[OUT_DBIAS]);
    rig_get(rig, tensor_elements(reader.seen, OPERAND_X * CAST_SEEN, shape1(CAST_SEEN)), out[OUT_SEEN]);
    rig_get(rig, tensor_elements(layer.seen, OPERAND_DPRE * CAST_SEEN, shape1(CAST_SEEN)),
            out[OUT_SEEN] + CAST_SEEN);
}

static double *identity(int64_t n) {
    double *x = zeros(n * n);
    for (int64_t i = 0; i < n; i++) x[i * n + i] = 1;
    return x;
}

static double *numbers_of_e4m3(int64_t count, double scale) {
    double *x = normals(count, 1, F32);
    for (int64_t i = 0; i < count; i++)
        x[i] = (double)e4m3_to_float(e4m3_from_float((float)(x[i] * scale))) / scale;
    return x;
}

/* The magnitude that a form may round before it rounds to 8 bits, which is that of the factors. Slopes are
 * below 1.13. */
static double size_of(const Pair *p, double *const *in, int64_t row, int64_t output, bool gradient) {
    const double *weight = in[WEIGHT];
    const int64_t H = p->hidden, column = output % H;
    const double dy = 1.13 * fabs(in[DY][row * H + column]);
    const double own = fabs(weight[output * p->rows + row]);
    if (!activation_gated(p->activation)) return gradient ? dy : own;
    const double other = fabs(weight[(output < H ? output + H : column) * p->rows + row]);
    return gradient ? dy * other : own * other;
}

/* Whether `got` is a valid result for `exact`: the e4m3 number, divided by `scale`, nearest to some value
 * within `error` of it. */
static void expect_rounded(double got, double exact, double error, double scale, const char *name) {
    const double most = 448 / scale, clipped = fmax(fmin(exact, most), -most);
    const double magnitude = (fabs(clipped) + error) * scale;
    const double half = magnitude > 0x1p-6 ? exp2(floor(log2(magnitude)) - 4) : 0x1p-10;
    if ((double)e4m3_to_float(e4m3_from_float((float)(got * scale))) != got * scale)
        fail_msg("%s: %.9g times %g is no number of 8 bits", name, got, scale);
    if (fabs(got - clipped) > half / scale + error)
        fail_msg("%s: %.9g became %.9g, further than %g + %g", name, exact, got, half / scale, error);
}

/* Up to four roundings of stored values, and the hardware's tanh, accurate to 2^-11, which bf16 epilogues may
 * use. */
static double error_of(const Variant *variant, double exact, double size) {
    const Units u = units_of(variant);
    return 4 * u.storage * fabs(exact) + (variant->dtype == BF16 ? 0x1p-9 : 0x1p-18) * size;
}

static void check_pair(const Variant *variant, const Pair *p) {
    const int64_t O = outputs_of(p), H = p->hidden, rows = p->rows;
    double scales[OPERANDS] = {1, WEIGHT_SCALE, GRADIENT_SCALE};
    double reader_scales[OPERANDS] = {ACTIVATION_SCALE, 1, WEIGHT_SCALE};
    double *in[INPUTS] = {identity(rows),
                          numbers_of_e4m3(O * rows, WEIGHT_SCALE),
                          zeros(O),
                          identity(H),
                          numbers_of_e4m3(rows * H, WEIGHT_SCALE),
                          scales,
                          reader_scales,
                          zeros(OPERANDS * CAST_SEEN),
                          zeros(O * rows)};
    const int64_t counts[OUTPUTS] = {rows * H, O * rows, O, 2 * CAST_SEEN};
    double *got[OUTPUTS], *exact[OUTPUTS], most[2] = {0}, errors[2] = {0};
    for (int o = 0; o < OUTPUTS; o++) got[o] = zeros(counts[o]), exact[o] = zeros(counts[o]);
    rig_run_once(&specification, run_pair, &(Run){p, false}, in, exact);
    rig_run(variant, run_pair, &(Run){p, true}, in, got);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t h = 0; h < H; h++) {
            const double y = exact[OUT_Y][row * H + h];
            const double error = error_of(variant, y, size_of(p, in, row, h, false));
            expect_rounded(got[OUT_Y][row * H + h], y, error, ACTIVATION_SCALE, "activation");
            most[0] = fmax(most[0], fabs(y)), errors[0] = fmax(errors[0], error);
        }
    for (int64_t output = 0; output < O; output++) {
        double sum = 0, bound = 0;
        for (int64_t row = 0; row < rows; row++) {
            const double dpre = exact[OUT_DWEIGHT][output * rows + row];
            const double error = error_of(variant, dpre, size_of(p, in, row, output, true));
            expect_rounded(got[OUT_DWEIGHT][output * rows + row], dpre, error, GRADIENT_SCALE, "gradient");
            most[1] = fmax(most[1], fabs(dpre)), errors[1] = fmax(errors[1], error);
            sum += dpre, bound += error + sum_error(units_of(variant).wide, rows) * fabs(dpre);
        }
        if (has_bias(p) && fabs(got[OUT_DBIAS][output] - sum) > bound)
            fail_msg("bias %d: %.9g, not %.9g within %g", (int)output, got[OUT_DBIAS][output], sum, bound);
    }
    for (int i = 0; i < 2; i++) {
        const double limit = 448.0 / (i ? GRADIENT_SCALE : ACTIVATION_SCALE);
        assert_true(fabs(got[OUT_SEEN][i * CAST_SEEN] - most[i]) <= errors[i]);
        if (fabs(most[i] - limit) > errors[i])
            assert_true(got[OUT_SEEN][i * CAST_SEEN + 1] == (most[i] > limit));
    }
}

static void specification_rounds(void **state) {
    (void)state;
    for (int i = 0; i < PAIRS; i++) check_pair(&specification, &pairs[i]);
}

static void forms_round_what_was_deferred(void **state) {
    const Variant *variant = test_variant(state, OP_LINEAR);
    for (int i = 0; i < PAIRS; i++) check_pair(variant, &pairs[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONCE(specification_rounds),
        ON_EACH_VARIANT(forms_round_what_was_deferred),
    };
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
