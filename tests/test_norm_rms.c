/* RMS normalization: of rows, with the residual add, and of the heads of packed projections. */
#include "tests/support/compare.h"

#include "kernels/dropout/mask.h"
#include "kernels/norm/norm.h"

#include <math.h>

typedef struct {
    int64_t rows, heads, width;
    int64_t gap; // columns of a packed projection around x, y, dy and dr; no skip then
    bool skip, accumulate, sums;
    bool in_place; // dr shares memory with dy
} Case;

enum { X, SKIP, WEIGHT, DY, DR, DWEIGHT, DR_SUMS, INPUTS };
enum { OUT_R, OUT_Y, OUT_RSTD, OUT_DR, OUT_DWEIGHT, OUT_DR_SUMS, OUTPUTS };
static const double EPS = 1e-5;

static const Case cases[] = {
    {1, 1, 1, 0, false, false, false, false},    {1, 1, 1, 0, true, true, true, false},
    {3, 1, 3, 0, false, true, false, false},     {13, 1, 17, 0, true, true, true, false},
    {64, 1, 33, 0, true, false, false, false},   {9, 1, 64, 0, false, false, false, true},
    {33, 1, 96, 0, true, false, false, false},   {6, 1, 256, 0, true, true, false, false},
    {128, 1, 257, 0, true, false, false, false}, {5, 1, 576, 0, true, true, false, false},
    {19, 1, 896, 0, false, false, false, false}, {3, 1, 769, 0, true, true, true, false},
    {4, 1, 2048, 0, true, true, false, false},   {7, 1, 1031, 0, false, true, false, false},
    {2, 1, 4096, 0, true, false, false, false},  {2, 1, 9000, 0, true, true, false, false},
    {3, 1, 20000, 0, true, true, false, false},  {500, 1, 40, 0, true, true, false, false},
    {5, 3, 8, 0, false, false, false, false},    {5, 3, 7, 4, false, false, false, true},
    {17, 2, 64, 128, false, false, false, true}, {9, 7, 128, 256, false, false, false, true},
    {33, 4, 80, 24, false, true, false, false},  {3, 2, 96, 1, false, false, false, false},
    {700, 5, 16, 32, false, false, false, true}, {11, 1, 128, 8, false, true, false, false},
};
enum { CASES = sizeof cases / sizeof *cases };

/* A view of heads * width columns in rows that have `gap` more columns, half of them before the view; these
 * hold marks. */
static Tensor put_view(Rig *rig, const char *name, const Case *c, const double *values) {
    const int64_t width = c->heads * c->width, stride = width + c->gap;
    double *packed = zeros(c->rows * stride);
    for (int64_t i = 0; i < c->rows * stride; i++) packed[i] = NAN;
    for (int64_t i = 0; i < c->rows * width && values; i++)
        packed[i / width * stride + c->gap / 2 + i % width] = values[i];
    Tensor all = rig_put(rig, name, rig->ctx.dtype, shape2(c->rows, stride), packed);
    return tensor_columns(all, c->gap / 2, width);
}

static void expect_gap_untouched(Rig *rig, const Case *c, Tensor view) {
    if (c->gap == 0 || rig->ctx.measuring) return;
    const int64_t width = tensor_width(view), stride = view.stride, before = c->gap / 2;
    char *start = (char *)view.data - (size_t)before * dtype_size(view.dtype);
    double *values = zeros(c->rows * stride);
    rig_get(rig, tensor_view(start, view.dtype, shape2(c->rows, stride)), values);
    for (int64_t i = 0; i < c->rows * stride; i++)
        if (i % stride < before || i % stride >= before + width) assert_true(isnan(values[i]));
}

/* With `drop`, half of the skip is dropped; kept values are doubled, which is exact. out: dskip comes after
 * the others. */
enum { DRAW = 9 };

static void run_with(Rig *rig, const Case *c, bool drop, double *const *in, double *const *out) {
    const int32_t draw = DRAW;
    Ctx *ctx = &rig->ctx;
    const Dtype dtype = ctx->dtype, wide = wide_dtype(ctx);
    const Shape shape = shape2(c->rows, c->heads * c->width), none = {0};
    ctx->training = true;
    NormForward f = {.kind = NORM_RMS,
                     .x = put_view(rig, "x", c, in[X]),
                     .skip = rig_put(rig, "skip", dtype, c->skip ? shape : none, in[SKIP]),
                     .weight = rig_put(rig, "weight", dtype, shape1(c->width), in[WEIGHT]),
                     .y = put_view(rig, "y", c, NULL),
                     .eps = EPS};
    NormBackward b = {.forward = &f,
                      .dy = put_view(rig, "dy", c, in[DY]),
                      .accumulate = c->accumulate,
                      .dweight = rig_put(rig, "dweight", wide, shape1(c->width), in[DWEIGHT]),
                      .dr_sums =
                          rig_put(rig, "dr_sums", wide, c->sums ? shape1(c->width) : none, in[DR_SUMS])};
    if (drop) {
        f.dropout = (Dropout){0.5, 42, 3, rig_put_ints(rig, "draw", shape1(1), &draw)};
        b.dskip = rig_blank(rig, "dskip", dtype, shape);
    }
    b.dr = c->in_place ? b.dy : put_view(rig, "dr", c, c->accumulate ? in[DR] : NULL);
    expect_ok(norm_forward(ctx, &f, ARENA_SAVED));
    expect_ok(norm_backward(ctx, &b));
    rig_get(rig, c->skip ? f.r : f.x, out[OUT_R]);
    rig_get(rig, f.y, out[OUT_Y]);
    rig_get(rig, f.rstd, out[OUT_RSTD]);
    rig_get(rig, b.dr, out[OUT_DR]);
    rig_get(rig, b.dweight, out[OUT_DWEIGHT]);
    if (c->sums) rig_get(rig, b.dr_sums, out[OUT_DR_SUMS]);
    if (drop) rig_get(rig, b.dskip, out[OUTPUTS]);
    expect_gap_untouched(rig, c, f.y);
    expect_gap_untouched(rig, c, b.dr);
}

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    run_with(rig, what, false, in, out);
}

static void run_dropped(Rig *rig, const void *what, double *const *in, double *const *out) {
    run_with(rig, what, true, in, out);
}

static void make_inputs(const Case *c, Dtype dtype, double **in) {
    const Dtype wide = dtype == F64 ? F64 : F32;
    int64_t count = c->rows * c->heads * c->width;
    in[X] = normals(count, 1, dtype);
    in[SKIP] = normals(count, 0.5, dtype);
    in[WEIGHT] = normals(c->width, 1, dtype);
    in[DY] = normals(count, 1, dtype);
    in[DR] = normals(count, 1, dtype);
    in[DWEIGHT] = normals(c->width, 1, wide);
    in[DR_SUMS] = normals(c->width, 1, wide);
}

static int64_t output_count(const Case *c, int output) {
    if (output == OUT_RSTD) return c->rows * c->heads;
    return output >= OUT_DWEIGHT ? c->width : c->rows * c->heads * c->width;
}

static void make_outputs(const Case *c, double **out) {
    for (int i = 0; i < OUTPUTS; i++) out[i] = zeros(output_count(c, i));
}

/* One row of the header's formulas in double precision, and the error bound of each result, as in test_norm:
 * r is stored once, n and g once in a naive form, a sum over C terms errs by sum_error. */
static void model_row(const Case *c, Units u, double *const *in, int64_t row, double **want, double **bound) {
    const int64_t width = c->width, first = row * width;
    const double sum = sum_error(u.wide, width), rows = sum_error(u.wide, c->rows * c->heads + 1);
    const double *w = in[WEIGHT], *dy = in[DY] + first;
    double *r = want[OUT_R] + first, *n = zeros(width), square = 0;
    const double stored = c->skip ? u.storage : 0; // relative, of r
    for (int64_t i = 0; i < width; i++) {
        r[i] = in[X][first + i] + (c->skip ? in[SKIP][first + i] : 0);
        bound[OUT_R][first + i] = stored * fabs(r[i]);
        square += r[i] * r[i] / (double)width;
    }
    const double rstd = 1 / sqrt(square + EPS), relative = stored + sum / 2 + 4 * u.wide;
    want[OUT_RSTD][row] = rstd;
    bound[OUT_RSTD][row] = relative * rstd;
    const double n_error = relative + stored + u.storage + u.wide; // relative, of n
    double gn_mean = 0, gn_size = 0;
    for (int64_t i = 0; i < width; i++) {
        n[i] = r[i] * rstd;
        want[OUT_Y][first + i] = n[i] * w[i];
        bound[OUT_Y][first + i] = (n_error + u.wide + u.storage) * fabs(n[i] * w[i]);
        gn_mean += dy[i] * w[i] * n[i] / (double)width;
        gn_size += fabs(dy[i] * w[i] * n[i]) / (double)width;
        want[OUT_DWEIGHT][i] += dy[i] * n[i];
        bound[OUT_DWEIGHT][i] += (n_error + rows + u.storage) * fabs(dy[i] * n[i]);
        if (!c->sums) continue;
        want[OUT_DR_SUMS][i] += in[DR][first + i];
        bound[OUT_DR_SUMS][i] += rows * fabs(in[DR][first + i]);
    }
    for (int64_t i = 0; i < width; i++) {
        double g = dy[i] * w[i], before = c->accumulate ? in[DR][first + i] : 0;
        double dr = rstd * (g - n[i] * gn_mean);
        double error =
            rstd * ((relative + 2 * u.storage + 3 * u.wide) * fabs(g) +
                    (relative + 2 * n_error + 2 * u.storage + sum + 4 * u.wide) * fabs(n[i]) * gn_size);
        want[OUT_DR][first + i] = before + dr;
        bound[OUT_DR][first + i] = error + u.storage * (fabs(dr) + fabs(before + dr));
    }
}

static void model(const Case *c, Units u, double *const *in, double **want, double **bound) {
    const double rows = sum_error(u.wide, c->rows * c->heads + 1);
    make_outputs(c, want);
    make_outputs(c, bound);
    for (int64_t i = 0; i < c->width; i++) {
        want[OUT_DWEIGHT][i] = in[DWEIGHT][i];
        bound[OUT_DWEIGHT][i] = rows * fabs(in[DWEIGHT][i]);
        if (!c->sums) continue;
        want[OUT_DR_SUMS][i] = in[DR_SUMS][i];
        bound[OUT_DR_SUMS][i] = rows * fabs(in[DR_SUMS][i]);
    }
    for (int64_t row = 0; row < c->rows * c->heads; row++) model_row(c, u, in, row, want, bound);
    for (int o = 0; o < OUTPUTS; o++) // errors of the second order
        for (int64_t i = 0; i < output_count(c, o); i++) bound[o][i] *= 2;
}

static void compare(const Case *c, const Variant *variant, double **got, double **want, double **bound) {
    static const char *const names[OUTPUTS] = {"r", "y", "rstd", "dr", "dweight", "dr_sums"};
    for (int o = 0; o < OUTPUTS; o++)
        expect_close(got[o], want[o], bound[o], output_count(c, o), "%s: RMS norm %lldx%lldx%lld%s%s%s, %s",
                     variant->name, (long long)c->rows, (long long)c->heads, (long long)c->width,
                     c->skip ? " skip" : "", c->accumulate ? " accumulate" : "", c->sums ? " sums" : "",
                     names[o]);
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

/* out: y of a run beside x; then of one in place, as inference normalizes queries and keys. */
static void run_inference(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    for (int in_place = 0; in_place < 2; in_place++) {
        NormForward f = {.kind = NORM_RMS,
                         .x = put_view(rig, "x", c, in[X]),
                         .weight = rig_put(rig, "weight", rig->ctx.dtype, shape1(c->width), in[WEIGHT]),
                         .eps = EPS};
        f.y = in_place ? f.x : put_view(rig, "y", c, NULL);
        expect_ok(norm_forward(&rig->ctx, &f, ARENA_SCRATCH));
        rig_get(rig, f.y, out[in_place]);
        expect_gap_untouched(rig, c, f.y);
    }
}

static void normalizes_in_place(void **state) {
    const Variant *variant = test_variant(state, OP_NORM);
    for (int i = 0; i < CASES; i++) {
        const Case *c = &cases[i];
        const int64_t count = c->rows * c->heads * c->width;
        if (c->skip) continue;
        double *in[INPUTS], *out[2] = {zeros(count), zeros(count)};
        make_inputs(c, variant->dtype, in);
        rig_run(variant, run_inference, c, in, out);
        expect_equal(out[1], out[0], count, "y in place");
    }
}

static double *masked(const Case *c, const double *x) {
    const DropoutMask mask = {42, 0, 3, DRAW, UINT32_C(1) << 31, 2};
    double *y = zeros(c->rows * c->width);
    for (int64_t i = 0; i < c->rows * c->width; i++) {
        int64_t row = i / c->width, column = i % c->width;
        y[i] = dropout_words(&mask, row, column / 4).word[column % 4] >= mask.least ? 2 * x[i] : 0;
    }
    return y;
}

/* Equal to a norm of the masked skip, except for a few roundings, because a compiler may fuse a multiply-add
 * in only one of them. The skip's gradient is exactly the masked dr. */
static void a_dropped_skip_is_a_masked_one(void **state) {
    const Variant *variant = test_variant(state, OP_NORM);
    for (int k = 0; k < CASES; k++) {
        const Case *c = &cases[k];
        if (!c->skip || c->sums) continue;
        double *in[INPUTS], *want[OUTPUTS], *got[OUTPUTS + 1], unit = units_of(variant).storage;
        make_inputs(c, variant->dtype, in);
        make_outputs(c, want);
        make_outputs(c, got);
        got[OUTPUTS] = zeros(c->rows * c->width);
        rig_run(variant, run_dropped, c, in, got);
        in[SKIP] = masked(c, in[SKIP]);
        rig_run(variant, run, c, in, want);
        expect_equal(got[OUT_R], want[OUT_R], c->rows * c->width, "r");
        for (int o = OUT_Y; o <= OUT_DWEIGHT; o++) {
            int64_t count = output_count(c, o);
            double *bound = zeros(count);
            for (int64_t i = 0; i < count; i++) bound[i] = 32 * unit * (fabs(want[o][i]) + 1);
            expect_close(got[o], want[o], bound, count, "%s: RMS norm of %lld, output %d", variant->name,
                         (long long)c->width, o);
        }
        expect_equal(got[OUTPUTS], masked(c, got[OUT_DR]), c->rows * c->width, "dskip");
    }
}

static void no_rows_are_harmless(void **state) {
    const Variant *variant = test_variant(state, OP_NORM);
    const Case c = {0, 3, 16, 8, false, false, false, false};
    double *in[INPUTS], *got[OUTPUTS];
    make_inputs(&c, variant->dtype, in);
    make_outputs(&c, got);
    rig_run(variant, run, &c, in, got);
    expect_equal(got[OUT_DWEIGHT], in[DWEIGHT], c.width, "dweight");
}

static void differentiate_forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    double *all_in[INPUTS], *all_out[OUTPUTS];
    make_outputs(c, all_out);
    for (int i = 0; i < INPUTS; i++) all_in[i] = i <= WEIGHT ? in[i] : zeros(c->rows * c->heads * c->width);
    all_out[OUT_Y] = out[0];
    if (c->skip) all_out[OUT_R] = out[1];
    run(rig, c, all_in, all_out);
}

static void differentiate_backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    double *all_in[INPUTS] = {in[0], in[1], in[2], in[3], in[4], zeros(c->width), zeros(c->width)};
    double *all_out[OUTPUTS];
    make_outputs(c, all_out);
    all_out[OUT_DWEIGHT] = out[WEIGHT];
    all_out[OUT_DR] = out[X];
    run(rig, c, all_in, all_out);
    for (int64_t i = 0; i < c->rows * c->heads * c->width; i++) out[SKIP][i] = c->skip ? out[X][i] : 0;
}

/* With a skip, r is an output too; dr is added to its cotangent. */
static void gradients_are_slopes(void **state) {
    (void)state;
    const Case tiny[] = {{1, 1, 3, 0, true, true, false, false},
                         {3, 1, 5, 0, false, false, false, false},
                         {2, 3, 4, 5, false, false, false, true},
                         {9, 1, 13, 0, true, true, true, false}};
    for (int i = 0; i < 4; i++) {
        const Case *c = &tiny[i];
        int64_t count = c->rows * c->heads * c->width;
        double *in[INPUTS];
        make_inputs(c, F64, in);
        Differentiable d = {3,
                            c->skip ? 2 : 1,
                            {count, count, c->width},
                            {count, count},
                            differentiate_forward,
                            differentiate_backward};
        expect_gradients(&d, c, in, "RMS norm");
    }
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    Tensor x = tensor_view(NULL, F32, shape2(4, 24)), head = tensor_view(NULL, F32, shape1(8));
    Tensor rows = tensor_view(NULL, F32, shape1(12));
    const NormForward right = {.kind = NORM_RMS, .x = x, .weight = head, .y = x, .rstd = rows, .eps = EPS};
    NormForward wrong[6] = {right, right, right, right, right, right};
    wrong[0].bias = head;
    wrong[1].mean = rows;
    wrong[2].weight = tensor_view(NULL, F32, shape1(7)); // 24 is not a multiple of
    wrong[3].skip = wrong[3].r = x;                      // and heads
    wrong[4].rstd = head;
    wrong[5].kind = NORM_LAYER;
    for (int i = 0; i < 6; i++) {
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
                                       ON_EACH_VARIANT(normalizes_in_place),
                                       ON_EACH_VARIANT(no_rows_are_harmless),
                                       ON_EACH_VARIANT(a_dropped_skip_is_a_masked_one)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
