#include "tests/support/compare.h"

#include "kernels/dropout/mask.h"
#include "kernels/norm/norm.h"

#include <math.h>

typedef struct {
    int64_t rows, width;
    bool skip, accumulate, sums; // sums: dr_sums too
    double offset;               // added to every x: a mean much larger than the standard deviation
} Case;

enum { X, SKIP, WEIGHT, BIAS, DY, DR, DWEIGHT, DBIAS, DR_SUMS, INPUTS };
enum { OUT_R, OUT_Y, OUT_MEAN, OUT_RSTD, OUT_DR, OUT_DWEIGHT, OUT_DBIAS, OUT_DR_SUMS, OUTPUTS };
static const double EPS = 1e-5;

static const Case cases[] = {
    {1, 1, false, false, false, 0},      {1, 1, true, true, true, 0},
    {2, 2, true, false, false, 0},       {3, 3, false, true, true, 0},
    {1, 7, true, true, true, 0},         {5, 8, false, false, false, 0},
    {13, 17, true, true, false, 0},      {17, 31, false, false, false, 0},
    {64, 33, true, false, false, 0},     {7, 64, false, true, true, 0},
    {9, 65, true, true, true, 0},        {33, 96, true, false, false, 0},
    {31, 127, false, true, true, 0},     {12, 128, true, false, false, 0},
    {65, 130, false, false, false, 0},   {11, 255, true, true, false, 0},
    {6, 256, false, true, true, 0},      {128, 257, true, false, false, 0},
    {5, 384, true, true, true, 0},       {19, 768, false, false, false, 0},
    {3, 769, true, true, true, 0},       {257, 24, true, true, false, 0},
    {2, 1031, false, true, true, 0},     {4, 1600, true, false, false, 0},
    {1000, 40, false, false, false, 0},  {3, 4096, true, true, true, 0},
    {8, 200, false, false, false, 1000}, {8, 768, true, true, true, -300},
};
enum { CASES = sizeof cases / sizeof *cases };

enum { DRAW = 9 };

/* Drops half of the skip's elements, half of its samples, or both. */
enum { ELEMENTS = 1, SAMPLES = 2 };

/* Half: kept values are doubled, which is exact. */
static Dropout half(Rig *rig, uint32_t instance) {
    const int32_t draw = DRAW;
    return (Dropout){
        .rate = 0.5, .seed = 42, .instance = instance, .draw = rig_put_ints(rig, "draw", shape1(1), &draw)};
}

/* Rows per sample: the smallest divisor above one, if there is one. */
static int64_t sample_rows(const Case *c) {
    for (int64_t rows = 2; rows <= c->rows; rows++)
        if (c->rows % rows == 0) return rows;
    return 1;
}

static void run_with(Rig *rig, const Case *c, int drop, bool in_place, double *const *in,
                     double *const *out) {
    Ctx *ctx = &rig->ctx;
    const Dtype dtype = ctx->dtype, wide = wide_dtype(ctx);
    const Shape shape = shape2(c->rows, c->width), none = {0};
    ctx->training = true;
    NormForward f = {.x = rig_put(rig, "x", dtype, shape, in[X]),
                     .skip = rig_put(rig, "skip", dtype, c->skip ? shape : none, in[SKIP]),
                     .weight = rig_put(rig, "weight", dtype, shape1(c->width), in[WEIGHT]),
                     .bias = rig_put(rig, "bias", dtype, shape1(c->width), in[BIAS]),
                     .r = rig_blank(rig, "r", dtype, c->skip ? shape : none),
                     .y = rig_blank(rig, "y", dtype, shape),
                     .mean = rig_blank(rig, "mean", wide, shape1(c->rows)),
                     .rstd = rig_blank(rig, "rstd", wide, shape1(c->rows)),
                     .eps = EPS};
    if (drop & ELEMENTS) f.dropout = half(rig, 3);
    if (drop & SAMPLES) f.depth = half(rig, 4);
    f.depth_rows = sample_rows(c);
    NormBackward b = {
        .forward = &f,
        .dy = rig_put(rig, "dy", dtype, shape, in[DY]),
        .dr = c->accumulate ? rig_put(rig, "dr", dtype, shape, in[DR]) : rig_blank(rig, "dr", dtype, shape),
        .accumulate = c->accumulate,
        .dweight = rig_put(rig, "dweight", wide, shape1(c->width), in[DWEIGHT]),
        .dbias = rig_put(rig, "dbias", wide, shape1(c->width), in[DBIAS]),
        .dr_sums = rig_put(rig, "dr_sums", wide, c->sums ? shape1(c->width) : none, in[DR_SUMS])};
    if (drop) b.dskip = rig_blank(rig, "dskip", dtype, shape);
    if (in_place) b.dr = b.dy;
    expect_ok(norm_forward(ctx, &f, ARENA_SAVED));
    expect_ok(norm_backward(ctx, &b));
    rig_get(rig, c->skip ? f.r : f.x, out[OUT_R]);
    rig_get(rig, f.y, out[OUT_Y]);
    rig_get(rig, f.mean, out[OUT_MEAN]);
    rig_get(rig, f.rstd, out[OUT_RSTD]);
    rig_get(rig, b.dr, out[OUT_DR]);
    rig_get(rig, b.dweight, out[OUT_DWEIGHT]);
    rig_get(rig, b.dbias, out[OUT_DBIAS]);
    if (c->sums) rig_get(rig, b.dr_sums, out[OUT_DR_SUMS]);
    if (drop) rig_get(rig, b.dskip, out[OUTPUTS]);
}

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    run_with(rig, what, 0, false, in, out);
}

/* dr shares memory with dy. */
static void run_in_place(Rig *rig, const void *what, double *const *in, double *const *out) {
    run_with(rig, what, 0, true, in, out);
}

typedef struct {
    Case size;
    int drop;
} DropCase;

/* The same with half of the skip dropped; out: dskip, too, after the others. */
static void run_dropped(Rig *rig, const void *what, double *const *in, double *const *out) {
    const DropCase *c = what;
    run_with(rig, &c->size, c->drop, false, in, out);
}

static void make_inputs(const Case *c, Dtype dtype, double **in) {
    const Dtype wide = dtype == F64 ? F64 : F32;
    int64_t count = c->rows * c->width;
    in[X] = normals(count, 1, dtype);
    for (int64_t i = 0; i < count; i++) in[X][i] = rounded(dtype, in[X][i] + c->offset);
    in[SKIP] = normals(count, 0.5, dtype);
    in[WEIGHT] = normals(c->width, 1, dtype);
    in[BIAS] = normals(c->width, 1, dtype);
    in[DY] = normals(count, 1, dtype);
    in[DR] = normals(count, 1, dtype);
    in[DWEIGHT] = normals(c->width, 1, wide);
    in[DBIAS] = normals(c->width, 1, wide);
    in[DR_SUMS] = normals(c->width, 1, wide);
}

static int64_t output_count(const Case *c, int output) {
    if (output == OUT_MEAN || output == OUT_RSTD) return c->rows;
    return output >= OUT_DWEIGHT ? c->width : c->rows * c->width;
}

static void make_outputs(const Case *c, double **out) {
    for (int i = 0; i < OUTPUTS; i++) {
        out[i] = zeros(output_count(c, i));
    }
}

/* One row of the header's formulas in double precision, and the error bound of each result. Magnitudes: r is
 * stored once, n and g once in a naive form, a sum over C terms errs by sum_error. Errors of the second order
 * are covered by the factor 2 that the caller puts on every bound. */
static void model_row(const Case *c, Units u, double *const *in, int64_t row, double **want, double **bound) {
    const int64_t width = c->width;
    const double *w = in[WEIGHT], *dy = in[DY] + row * width;
    double sum = sum_error(u.wide, width), mean = 0, magnitude = 0, variance = 0, variance_error = 0;
    double *r = want[OUT_R] + row * width, *r_error = bound[OUT_R] + row * width;
    double *n = zeros(width), *n_error = zeros(width);
    for (int64_t i = 0; i < width; i++) {
        int64_t at = row * width + i;
        r[i] = in[X][at] + (c->skip ? in[SKIP][at] : 0);
        r_error[i] = c->skip ? u.storage * fabs(r[i]) : 0;
        mean += r[i] / (double)width;
        magnitude += fabs(r[i]) / (double)width;
    }
    double mean_error = (sum + u.wide + (c->skip ? u.storage : 0)) * magnitude;
    for (int64_t i = 0; i < width; i++) {
        double d = r[i] - mean;
        n_error[i] = r_error[i] + mean_error + u.wide * fabs(d);
        variance += d * d / (double)width;
        variance_error += (2 * fabs(d) * n_error[i] + n_error[i] * n_error[i]) / (double)width;
    }
    double rstd = 1 / sqrt(variance + EPS);
    double relative = (variance_error / 2 + sum * variance) * rstd * rstd + 4 * u.wide;
    want[OUT_MEAN][row] = mean;
    want[OUT_RSTD][row] = rstd;
    bound[OUT_MEAN][row] = mean_error;
    bound[OUT_RSTD][row] = relative * rstd;
    double g_mean = 0, gn_mean = 0, g_size = 0, gn_size = 0, gn_error = 0;
    for (int64_t i = 0; i < width; i++) {
        int64_t at = row * width + i;
        double g = dy[i] * w[i];
        n[i] = (r[i] - mean) * rstd;
        n_error[i] = n_error[i] * rstd + (relative + u.storage) * fabs(n[i]);
        want[OUT_Y][at] = n[i] * w[i] + in[BIAS][i];
        bound[OUT_Y][at] =
            n_error[i] * fabs(w[i]) + u.wide * fabs(n[i] * w[i]) + u.storage * fabs(want[OUT_Y][at]);
        g_mean += g / (double)width;
        gn_mean += g * n[i] / (double)width;
        g_size += fabs(g) / (double)width;
        gn_size += fabs(g * n[i]) / (double)width;
        gn_error += fabs(g) * n_error[i] / (double)width;
        want[OUT_DWEIGHT][i] += dy[i] * n[i];
        want[OUT_DBIAS][i] += dy[i];
        bound[OUT_DWEIGHT][i] +=
            fabs(dy[i]) * n_error[i] + (sum_error(u.wide, c->rows + 1) + u.storage) * fabs(dy[i] * n[i]);
        bound[OUT_DBIAS][i] += sum_error(u.wide, c->rows + 1) * fabs(dy[i]);
        if (!c->sums) continue;
        want[OUT_DR_SUMS][i] += in[DR][at];
        bound[OUT_DR_SUMS][i] += sum_error(u.wide, c->rows + 1) * fabs(in[DR][at]);
    }
    for (int64_t i = 0; i < width; i++) {
        int64_t at = row * width + i;
        double g = dy[i] * w[i], before = c->accumulate ? in[DR][at] : 0;
        double size = fabs(g) + g_size + fabs(n[i]) * gn_size;
        double dr = rstd * (g - g_mean - n[i] * gn_mean);
        double error = rstd * ((relative + 2 * u.storage + sum + 3 * u.wide) * size + n_error[i] * gn_size +
                               fabs(n[i]) * gn_error);
        want[OUT_DR][at] = before + dr;
        bound[OUT_DR][at] = error + u.storage * (fabs(dr) + fabs(before + dr));
    }
}

static void model(const Case *c, Units u, double *const *in, double **want, double **bound) {
    make_outputs(c, want);
    make_outputs(c, bound);
    for (int64_t i = 0; i < c->width; i++) {
        want[OUT_DWEIGHT][i] = in[DWEIGHT][i];
        want[OUT_DBIAS][i] = in[DBIAS][i];
        bound[OUT_DWEIGHT][i] = sum_error(u.wide, c->rows + 1) * fabs(in[DWEIGHT][i]);
        bound[OUT_DBIAS][i] = sum_error(u.wide, c->rows + 1) * fabs(in[DBIAS][i]);
        if (!c->sums) continue;
        want[OUT_DR_SUMS][i] = in[DR_SUMS][i];
        bound[OUT_DR_SUMS][i] = sum_error(u.wide, c->rows + 1) * fabs(in[DR_SUMS][i]);
    }
    for (int64_t row = 0; row < c->rows; row++) model_row(c, u, in, row, want, bound);
    for (int o = 0; o < OUTPUTS; o++) {
        int64_t count = output_count(c, o);
        for (int64_t i = 0; i < count; i++) bound[o][i] *= 2;
    }
}

static void compare(const Case *c, const Variant *variant, double **got, double **want, double **bound) {
    static const char *const names[OUTPUTS] = {"r", "y", "mean", "rstd", "dr", "dweight", "dbias", "dr_sums"};
    for (int o = 0; o < OUTPUTS; o++) {
        int64_t count = output_count(c, o);
        expect_close(got[o], want[o], bound[o], count, "%s: norm %lldx%lld%s%s%s, %s", variant->name,
                     (long long)c->rows, (long long)c->width, c->skip ? " skip" : "",
                     c->accumulate ? " accumulate" : "", c->sums ? " sums" : "", names[o]);
    }
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
        make_inputs(&cases[i], F64, in);
        make_outputs(&cases[i], got);
        model(&cases[i], units_of(&specification), in, want, bound);
        rig_run(&specification, run, &cases[i], in, got);
        compare(&cases[i], &specification, got, want, bound);
    }
}

static void form_follows_the_specification(void **state) {
    const Variant *variant = test_variant(state, OP_NORM);
    for (int i = 0; i < CASES; i++) {
        double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
        make_inputs(&cases[i], variant->dtype, in);
        make_outputs(&cases[i], got);
        model(&cases[i], units_of(variant), in, want, bound);
        rig_run_once(&specification, run, &cases[i], in, want);
        rig_run(variant, run, &cases[i], in, got);
        compare(&cases[i], variant, got, want, bound);
    }
}

static void gradients_may_be_made_in_place(void **state) {
    const Variant *variant = test_variant(state, OP_NORM);
    for (int i = 0; i < CASES; i++) {
        const Case *c = &cases[i];
        double *in[INPUTS], *beside[OUTPUTS], *got[OUTPUTS];
        if (c->accumulate) continue;
        make_inputs(c, variant->dtype, in);
        make_outputs(c, beside);
        make_outputs(c, got);
        rig_run(variant, run, c, in, beside);
        rig_run(variant, run_in_place, c, in, got);
        for (int o = OUT_DR; o <= OUT_DBIAS; o++)
            expect_equal(got[o], beside[o], output_count(c, o), "gradients in place");
    }
}

static void no_rows_are_harmless(void **state) {
    const Variant *variant = test_variant(state, OP_NORM);
    const Case c = {0, 48, true, true, true, 0};
    double *in[INPUTS], *got[OUTPUTS];
    make_inputs(&c, variant->dtype, in);
    make_outputs(&c, got);
    rig_run(variant, run, &c, in, got);
    expect_equal(got[OUT_DWEIGHT], in[DWEIGHT], c.width, "dweight");
    expect_equal(got[OUT_DBIAS], in[DBIAS], c.width, "dbias");
    expect_equal(got[OUT_DR_SUMS], in[DR_SUMS], c.width, "dr_sums");
}

static void differentiate_forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    double *all_in[INPUTS], *all_out[OUTPUTS];
    make_outputs(c, all_out);
    for (int i = 0; i < INPUTS; i++) all_in[i] = i <= BIAS ? in[i] : zeros(c->rows * c->width);
    all_out[OUT_Y] = out[0];
    if (c->skip) all_out[OUT_R] = out[1];
    run(rig, c, all_in, all_out);
}

static void differentiate_backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    double *all_in[INPUTS] = {in[0], in[1],           in[2],           in[3],          in[4],
                              in[5], zeros(c->width), zeros(c->width), zeros(c->width)};
    double *all_out[OUTPUTS];
    make_outputs(c, all_out);
    all_out[OUT_DWEIGHT] = out[WEIGHT];
    all_out[OUT_DBIAS] = out[BIAS];
    all_out[OUT_DR] = out[X];
    run(rig, c, all_in, all_out);
    for (int64_t i = 0; i < c->rows * c->width; i++) out[SKIP][i] = c->skip ? out[X][i] : 0;
}

/* With a skip, r is an output too; dr is added to its cotangent. */
static void gradients_are_slopes(void **state) {
    (void)state;
    const Case tiny[] = {{1, 3, true, true, false, 0},
                         {3, 5, false, false, false, 0},
                         {2, 8, true, true, true, 0},
                         {9, 13, true, true, true, 0}};
    for (int i = 0; i < 4; i++) {
        const Case *c = &tiny[i];
        int64_t count = c->rows * c->width;
        double *in[INPUTS];
        make_inputs(c, F64, in);
        for (int64_t k = 0; k < count; k++) in[X][k] *= 2;
        Differentiable d = {4,
                            c->skip ? 2 : 1,
                            {count, count, c->width, c->width},
                            {count, count},
                            differentiate_forward,
                            differentiate_backward};
        expect_gradients(&d, c, in, "norm");
    }
}

/* x times the masks. */
static double *masked(const DropCase *d, const double *x) {
    const Case *c = &d->size;
    const DropoutMask elements = {42, 0, 3, DRAW, UINT32_C(1) << 31, 2};
    const DropoutMask samples = {42, 0, 4, DRAW, UINT32_C(1) << 31, 2};
    double *y = zeros(c->rows * c->width);
    for (int64_t i = 0; i < c->rows * c->width; i++) {
        int64_t row = i / c->width, column = i % c->width, sample = row / sample_rows(c);
        bool kept = dropout_words(&elements, row, column / 4).word[column % 4] >= elements.least;
        bool whole = dropout_words(&samples, sample, NORM_DEPTH_BLOCK).word[0] >= samples.least;
        y[i] = x[i];
        if (d->drop & ELEMENTS) y[i] = kept ? 2 * y[i] : 0;
        if (d->drop & SAMPLES) y[i] = whole ? 2 * y[i] : 0;
    }
    return y;
}

/* Equal to a norm of the masked skip, except for a few roundings, because a compiler may fuse a multiply-add
 * in only one of them. The skip's gradient is exactly the masked dr. */
static void a_dropped_skip_is_a_masked_one(void **state) {
    static const Case sizes[] = {
        {1, 1, true, true, false, 0},     {5, 7, true, false, false, 0},    {13, 24, true, true, false, 0},
        {33, 130, true, false, false, 0}, {9, 768, true, true, false, 0},   {65, 512, true, false, false, 0},
        {3, 1600, true, true, false, 0},  {2, 4096, true, false, false, 0}, {2, 1031, true, true, false, 0}};
    const Variant *variant = test_variant(state, OP_NORM);
    for (size_t k = 0; k < 3 * sizeof sizes / sizeof *sizes; k++) {
        const DropCase dropped = {sizes[k / 3], ELEMENTS + (int)(k % 3)};
        const Case *c = &dropped.size;
        double *in[INPUTS], *want[OUTPUTS], *got[OUTPUTS + 1], unit = units_of(variant).storage;
        make_inputs(c, variant->dtype, in);
        make_outputs(c, want);
        make_outputs(c, got);
        got[OUTPUTS] = zeros(c->rows * c->width);
        rig_run(variant, run_dropped, &dropped, in, got);
        in[SKIP] = masked(&dropped, in[SKIP]);
        rig_run(variant, run, c, in, want);
        expect_equal(got[OUT_R], want[OUT_R], c->rows * c->width, "r");
        for (int o = OUT_Y; o <= OUT_DBIAS; o++) {
            int64_t count = output_count(c, o);
            double *bound = zeros(count);
            for (int64_t i = 0; i < count; i++) bound[i] = 32 * unit * (fabs(want[o][i]) + 1);
            expect_close(got[o], want[o], bound, count, "%s: norm of %lld, output %d", variant->name,
                         (long long)c->width, o);
        }
        expect_equal(got[OUTPUTS], masked(&dropped, got[OUT_DR]), c->rows * c->width, "dskip");
    }
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    Tensor x = tensor_view(NULL, F32, shape2(4, 8)), c = tensor_view(NULL, F32, shape1(8));
    Tensor rows = tensor_view(NULL, F32, shape1(4));
    const NormForward right = {
        .x = x, .weight = c, .bias = c, .y = x, .mean = rows, .rstd = rows, .eps = EPS};
    NormForward wrong[5] = {right, right, right, right, right};
    wrong[0].x = (Tensor){0};
    wrong[1].weight = rows;
    wrong[2].y.dtype = BF16;
    wrong[3].r = x; // and no skip
    wrong[4].y = tensor_columns(x, 0, 7);
    for (int i = 0; i < 5; i++) {
        Status status = norm_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_follows_the_formula),
                                       ONCE(gradients_are_slopes),
                                       ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(form_follows_the_specification),
                                       ON_EACH_VARIANT(gradients_may_be_made_in_place),
                                       ON_EACH_VARIANT(no_rows_are_harmless),
                                       ON_EACH_VARIANT(a_dropped_skip_is_a_masked_one)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
