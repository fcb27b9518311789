#include "tests/support/compare.h"

#include "kernels/loss/loss.h"

#include <math.h>

typedef struct {
    int64_t rows, width, vocab, padded;
    int ignored;   // number of rows in three with the target -1
    bool training; // with the gradient
    double scale;
    double spread; // of the logits
    bool bias;
    double smoothing;
    double count; // the divisor of scale; 0: no such tensor; NOTHING: a tensor that holds 0
} Case;

enum { HIDDEN, WEIGHT, BIAS, LOSS, DWEIGHT, DBIAS, INPUTS };
enum { OUT_LOSSES, OUT_LOSS, OUT_DHIDDEN, OUT_DWEIGHT, OUT_DBIAS, OUTPUTS };
enum { NOTHING = -1 };

static const Case cases[] = {
    {1, 1, 1, 1, 0, true, 1, .spread = 1},
    {1, 3, 2, 8, 0, true, 1, .spread = 1},
    {2, 8, 5, 128, 1, true, 0.5, .spread = 1},
    {3, 7, 17, 17, 0, true, 0.25, .spread = 1},
    {5, 16, 31, 32, 2, true, 0.2, .spread = 1},
    {8, 24, 64, 64, 0, false, 0.125, .spread = 1},
    {13, 33, 65, 128, 1, true, 0.1, .spread = 1},
    {17, 64, 127, 128, 0, true, 0.05, .spread = 3},
    {31, 48, 128, 128, 1, true, 0.03, .spread = 1},
    {33, 65, 130, 256, 0, true, 0.03, .spread = 1},
    {64, 32, 255, 256, 0, true, 0.015, .spread = 2},
    {7, 96, 256, 256, 2, true, 0.1, .spread = 1},
    {65, 40, 257, 384, 1, true, 0.015, .spread = 1},
    {12, 128, 300, 384, 0, false, 0.1, .spread = 1},
    {127, 8, 97, 128, 0, true, 0.01, .spread = 1},
    {130, 72, 50, 128, 1, true, 0.01, .spread = 1},
    {3, 257, 513, 640, 0, true, 0.3, .spread = 1},
    {257, 16, 61, 64, 1, true, 0.004, .spread = 1},
    {4, 384, 1000, 1024, 0, true, 0.25, .spread = 2},
    {2, 768, 1031, 1152, 1, true, 0.5, .spread = 1},
    {600, 12, 41, 128, 0, true, 0.002, .spread = 1},
    {5, 56, 5003, 5120, 1, true, 0.2, .spread = 1},
    {6, 64, 70, 128, 3, true, 0, .spread = 1},
    {9, 24, 40, 128, 1, true, 0.5, .spread = 1, .bias = true},
    {33, 17, 65, 72, 1, true, 1, .spread = 1, .bias = true, .smoothing = 0.1, .count = 22},
    {12, 40, 257, 384, 0, true, 0.5, .spread = 2, .smoothing = 0.25, .count = 12},
    {5, 16, 31, 33, 3, true, 1, .spread = 1, .bias = true, .smoothing = 0.1, .count = NOTHING},
    {7, 64, 5003, 5120, 1, true, 0.2, .spread = 1, .bias = true, .smoothing = 0.1},
    {14, 32, 90, 128, 1, false, 1, .spread = 1, .bias = true, .smoothing = 0.2, .count = 9},
    {700, 8, 41, 48, 1, true, 1, .spread = 1, .bias = true, .count = 466},
    {5, 8, 120003, 120064, 1, true, 0.2, .spread = 1, .bias = true, .smoothing = 0.1},
    {3, 8, 70001, 70016, 1, true, 0.2, .spread = 1},
    {4, 8, 151936, 151936, 1, true, 0.2, .spread = 2},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct {
    Case size;
    const int32_t *targets;
} Batch;

static int64_t input_count(const Case *c, int i) {
    const int64_t bias = c->bias ? c->padded : 0;
    const int64_t counts[INPUTS] = {
        c->rows * c->width, c->padded * c->width, bias, 1, c->padded * c->width, bias};
    return counts[i];
}

static double scale_of(const Case *c) {
    return c->count == NOTHING ? 0 : c->count > 0 ? c->scale / c->count : c->scale;
}

static int64_t output_count(const Case *c, int o) {
    const int64_t counts[OUTPUTS] = {c->rows, 1, c->rows * c->width, c->padded * c->width,
                                     c->bias ? c->padded : 0};
    return counts[o];
}

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Batch *batch = what;
    const Case *c = &batch->size;
    Ctx *ctx = &rig->ctx;
    const Dtype dtype = ctx->dtype, wide = wide_dtype(ctx);
    const Shape hidden = shape2(c->rows, c->width), weight = shape2(c->padded, c->width), none = {0};
    const Shape bias = c->bias ? shape1(c->padded) : none;
    const double count = fmax(c->count, 0);
    ctx->training = c->training;
    Loss l = {.hidden = rig_put(rig, "hidden", dtype, hidden, in[HIDDEN]),
              .weight = rig_put(rig, "weight", dtype, weight, in[WEIGHT]),
              .targets = rig_put_ints(rig, "targets", shape1(c->rows), batch->targets),
              .bias = rig_put(rig, "bias", dtype, bias, in[BIAS]),
              .vocab = c->vocab,
              .scale = c->scale,
              .count = rig_put(rig, "count", wide, c->count != 0 ? shape1(1) : none, &count),
              .smoothing = c->smoothing,
              .losses = rig_blank(rig, "losses", wide, shape1(c->rows)),
              .loss = rig_put(rig, "loss", wide, shape1(1), in[LOSS]),
              .dhidden = rig_blank(rig, "dhidden", dtype, c->training ? hidden : none),
              .dweight = rig_put(rig, "dweight", wide, c->training ? weight : none, in[DWEIGHT]),
              .dbias = rig_put(rig, "dbias", wide, c->training ? bias : none, in[DBIAS])};
    expect_ok(loss_forward(ctx, &l, ARENA_SAVED));
    rig_get(rig, l.losses, out[OUT_LOSSES]);
    rig_get(rig, l.loss, out[OUT_LOSS]);
    if (!c->training) return;
    expect_ok(loss_backward(ctx, &l));
    rig_get(rig, l.dhidden, out[OUT_DHIDDEN]);
    rig_get(rig, l.dweight, out[OUT_DWEIGHT]);
    rig_get(rig, l.dbias, out[OUT_DBIAS]);
}

/* The head's padding rows are large, so that any influence is visible. */
static void make_inputs(const Case *c, Dtype dtype, Batch *batch, double **in) {
    const Dtype wide = dtype == F64 ? F64 : F32;
    int32_t *targets = integers(c->rows, (int32_t)c->vocab);
    for (int64_t n = 0; n < c->rows; n++)
        if (n % 3 < c->ignored) targets[n] = -1;
    *batch = (Batch){*c, targets};
    in[HIDDEN] = normals(input_count(c, HIDDEN), 1, dtype);
    in[WEIGHT] = normals(input_count(c, WEIGHT), c->spread / sqrt((double)c->width), dtype);
    in[LOSS] = normals(1, 1, wide);
    in[DWEIGHT] = normals(input_count(c, DWEIGHT), 0.01, wide);
    in[BIAS] = normals(input_count(c, BIAS), 1, dtype);
    in[DBIAS] = normals(input_count(c, DBIAS), 0.01, wide);
    for (int64_t v = c->vocab; c->bias && v < c->padded; v++) in[BIAS][v] = v % 2 ? 64 : -64;
    for (int64_t i = c->vocab * c->width; i < c->padded * c->width; i++) in[WEIGHT][i] = i % 2 ? 64 : -64;
}

static void make_outputs(const Case *c, double **out) {
    for (int o = 0; o < OUTPUTS; o++) out[o] = zeros(output_count(c, o));
}

/* One row: its loss, and p and the error of every dlogit. A logit errs by the product's rounding (and by one
 * rounding of the storage, where a form keeps its logits in it); p = exp(logit - lse) then errs relatively by
 * twice the largest such error, and by the sum over the vocabulary. */
static void model_row(const Batch *batch, Units u, double *const *in, int64_t n, double *dlogits,
                      double *errors, double **want, double **bound) {
    const Case *c = &batch->size;
    const double *hidden = in[HIDDEN] + n * c->width;
    const int32_t target = batch->targets[n];
    double largest = -INFINITY, error = 0, sum = 0, magnitude = 0, mean = 0;
    for (int64_t v = 0; v < c->vocab; v++) {
        double bias = c->bias ? in[BIAS][v] : 0, size = fabs(bias);
        dlogits[v] = bias;
        for (int64_t i = 0; i < c->width; i++) {
            double term = hidden[i] * in[WEIGHT][v * c->width + i];
            dlogits[v] += term;
            size += fabs(term);
        }
        largest = fmax(largest, dlogits[v]);
        magnitude = fmax(magnitude, fabs(dlogits[v]));
        mean += dlogits[v] / (double)c->vocab;
        error = fmax(error, product_error(u, c->width) * size + u.storage * fabs(dlogits[v]));
    }
    for (int64_t v = 0; v < c->vocab; v++) sum += exp(dlogits[v] - largest);
    double lse = largest + log(sum), rounding = sum_error(u.wide, c->vocab) + 8 * u.wide * (1 + magnitude);
    double relative = expm1(fmin(2 * error + rounding, 700));
    double smoothing = c->smoothing, smoothed = smoothing * sum_error(u.wide, c->vocab) * magnitude;
    want[OUT_LOSSES][n] = target < 0 ? 0 : lse - (1 - smoothing) * dlogits[target] - smoothing * mean;
    bound[OUT_LOSSES][n] = target < 0 ? 0 : 2 * error + rounding + smoothed;
    for (int64_t v = 0; v < c->vocab; v++) {
        double p = exp(dlogits[v] - lse), q = (1 - smoothing) * (v == target) + smoothing / (double)c->vocab;
        double slope = target < 0 ? 0 : p - q;
        double stored = fabs(slope) + (smoothing > 0 ? p + q : 0); // intermediate roundings
        dlogits[v] = scale_of(c) * slope;
        errors[v] = target < 0 ? 0
                               : scale_of(c) * (fmin(p * relative, 1) +
                                                (u.storage * (smoothing > 0 ? 2 : 1) + 3 * u.wide) * stored);
    }
}

static void model(const Batch *batch, Units u, double *const *in, double **want, double **bound) {
    const Case *c = &batch->size;
    const double sum = sum_error(u.wide, c->rows + 1), across = product_error(u, c->vocab);
    double *dlogits = zeros(c->vocab), *errors = zeros(c->vocab);
    make_outputs(c, want);
    make_outputs(c, bound);
    want[OUT_LOSS][0] = in[LOSS][0];
    bound[OUT_LOSS][0] = sum * fabs(in[LOSS][0]);
    for (int64_t i = 0; c->training && i < c->padded * c->width; i++) {
        want[OUT_DWEIGHT][i] = in[DWEIGHT][i];
        if (i < c->vocab * c->width) bound[OUT_DWEIGHT][i] = sum * fabs(in[DWEIGHT][i]);
    }
    for (int64_t v = 0; c->training && c->bias && v < c->padded; v++) {
        want[OUT_DBIAS][v] = in[DBIAS][v];
        if (v < c->vocab) bound[OUT_DBIAS][v] = sum * fabs(in[DBIAS][v]);
    }
    for (int64_t n = 0; n < c->rows; n++) {
        model_row(batch, u, in, n, dlogits, errors, want, bound);
        double loss = scale_of(c) * want[OUT_LOSSES][n];
        want[OUT_LOSS][0] += loss;
        bound[OUT_LOSS][0] += scale_of(c) * bound[OUT_LOSSES][n] + (sum + 2 * u.wide) * fabs(loss);
        for (int64_t v = 0; c->training && c->bias && v < c->vocab; v++) {
            want[OUT_DBIAS][v] += dlogits[v];
            bound[OUT_DBIAS][v] += errors[v] + (u.storage + sum) * fabs(dlogits[v]);
        }
        for (int64_t v = 0; c->training && v < c->vocab; v++)
            for (int64_t i = 0; i < c->width; i++) {
                int64_t at = n * c->width + i, row = v * c->width + i;
                double d = dlogits[v], w = fabs(in[WEIGHT][row]), h = fabs(in[HIDDEN][at]);
                want[OUT_DHIDDEN][at] += d * in[WEIGHT][row];
                bound[OUT_DHIDDEN][at] += (errors[v] + (across + u.storage) * fabs(d)) * w;
                want[OUT_DWEIGHT][row] += d * in[HIDDEN][at];
                bound[OUT_DWEIGHT][row] += (errors[v] + (2 * u.product + sum) * fabs(d)) * h;
            }
    }
}

static void compare(const Case *c, const char *variant, double **got, double **want, double **bound) {
    static const char *const names[OUTPUTS] = {"losses", "loss", "dhidden", "dweight", "dbias"};
    for (int o = 0; o < OUTPUTS; o++)
        expect_close(got[o], want[o], bound[o], output_count(c, o),
                     "%s: loss N=%lld C=%lld V=%lld of %lld, %s", variant, (long long)c->rows,
                     (long long)c->width, (long long)c->vocab, (long long)c->padded, names[o]);
}

static void follow(const Variant *variant, bool formula) {
    for (int k = 0; k < CASES; k++) {
        Batch batch;
        double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
        make_inputs(&cases[k], variant->dtype, &batch, in);
        make_outputs(&cases[k], got);
        model(&batch, units_of(variant), in, want, bound);
        if (!formula) rig_run_once(&specification, run, &batch, in, want);
        rig_run(variant, run, &batch, in, got);
        compare(&cases[k], variant->name, got, want, bound);
    }
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    follow(&specification, true);
}

static void form_follows_the_specification(void **state) {
    follow(test_variant(state, OP_LOSS), false);
}

/* Logits of +-1e4: exp overflows unless the maximum is subtracted first. Some rows are certain and right
 * (loss 0), some certain and wrong (loss 2e4). All numbers are powers of two, so that nothing is rounded. */
static void large_logits_stay_finite(void **state) {
    const Variant *variant = test_variant(state, OP_LOSS);
    const Case c = {8, 8, 40, 64, 0, true, 0.125, .spread = 1};
    Batch batch;
    double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS];
    make_inputs(&c, variant->dtype, &batch, in);
    make_outputs(&c, got);
    make_outputs(&c, want);
    int32_t *targets = integers(c.rows, 1);
    for (int64_t n = 0; n < c.rows; n++) {
        targets[n] = (int32_t)(n % 2 ? n : 39);
        for (int64_t i = 0; i < c.width; i++) in[HIDDEN][n * c.width + i] = i == n ? 128 : 0;
    }
    for (int64_t v = 0; v < c.vocab; v++)
        for (int64_t i = 0; i < c.width; i++) in[WEIGHT][v * c.width + i] = i == v ? 64 : -64;
    batch.targets = targets;
    rig_run_once(&specification, run, &batch, in, want);
    rig_run(variant, run, &batch, in, got);
    assert_true(want[OUT_LOSSES][0] == 16384 && want[OUT_LOSSES][1] == 0);
    for (int o = 0; o < OUTPUTS; o++) {
        double *bound = zeros(output_count(&c, o));
        for (int64_t i = 0; i < output_count(&c, o); i++)
            bound[i] = 4 * units_of(variant).wide * fmax(fabs(want[o][i]), o == OUT_DWEIGHT ? 16 : 0);
        expect_close(got[o], want[o], bound, output_count(&c, o), "%s: large logits, output %d",
                     variant->name, o);
    }
}

static void no_rows_are_harmless(void **state) {
    const Variant *variant = test_variant(state, OP_LOSS);
    const Case c = {0, 16, 24, 32, 0, true, 1, .spread = 1};
    Batch batch;
    double *in[INPUTS], *got[OUTPUTS];
    make_inputs(&c, variant->dtype, &batch, in);
    make_outputs(&c, got);
    rig_run(variant, run, &batch, in, got);
    expect_equal(got[OUT_LOSS], in[LOSS], 1, "loss");
    expect_equal(got[OUT_DWEIGHT], in[DWEIGHT], c.padded * c.width, "dweight");
}

static void differentiate(Rig *rig, const void *what, double *const *in, double *const *out, bool backward) {
    const Batch *batch = what;
    const Case *c = &batch->size;
    double *all_in[INPUTS] = {in[HIDDEN], in[WEIGHT], in[BIAS]}, *all_out[OUTPUTS];
    for (int i = LOSS; i < INPUTS; i++) all_in[i] = zeros(input_count(c, i));
    make_outputs(c, all_out);
    if (backward) {
        all_out[OUT_DHIDDEN] = out[HIDDEN];
        all_out[OUT_DWEIGHT] = out[WEIGHT];
        all_out[OUT_DBIAS] = out[BIAS];
    } else
        all_out[OUT_LOSS] = out[0];
    run(rig, what, all_in, all_out);
    if (!backward || rig->ctx.measuring) return;
    for (int o = 0; o < LOSS; o++)
        for (int64_t i = 0; i < input_count(c, o); i++) out[o][i] *= in[LOSS][0];
}

static void differentiate_forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    differentiate(rig, what, in, out, false);
}

static void differentiate_backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    differentiate(rig, what, in, out, true);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    const Case tiny[] = {
        {2, 3, 4, 4, 0, true, 0.5, .spread = 1},
        {3, 2, 5, 8, 1, true, 1, .spread = 2},
        {9, 7, 11, 16, 1, true, 0.2, .spread = 1},
        {5, 6, 9, 12, 1, true, 1, .spread = 1, .bias = true, .smoothing = 0.3, .count = 3},
    };
    for (int k = 0; k < 4; k++) {
        Batch batch;
        double *in[INPUTS];
        make_inputs(&tiny[k], F64, &batch, in);
        Differentiable d = {
            3,
            1,
            {input_count(&tiny[k], HIDDEN), input_count(&tiny[k], WEIGHT), input_count(&tiny[k], BIAS)},
            {1},
            differentiate_forward,
            differentiate_backward};
        expect_gradients(&d, &batch, in, "loss");
    }
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const Loss right = {.hidden = tensor_view(NULL, F32, shape2(4, 8)),
                        .weight = tensor_view(NULL, F32, shape2(16, 8)),
                        .targets = tensor_view(NULL, I32, shape1(4)),
                        .vocab = 13,
                        .losses = tensor_view(NULL, F32, shape1(4)),
                        .loss = tensor_view(NULL, F32, shape1(1))};
    Loss wrong[5] = {right, right, right, right, right};
    wrong[0].vocab = 17;
    wrong[1].targets.dtype = F32;
    wrong[2].weight = tensor_view(NULL, F32, shape2(16, 9));
    wrong[3].losses = tensor_view(NULL, F32, shape1(5));
    wrong[4].smoothing = 1;
    for (int i = 0; i < 5; i++) {
        Status status = loss_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

/* The scratch for `rows` rows with a vocabulary so large that a chunk of logits has few rows. */
static size_t scratch_for(const Ctx *like, int64_t rows) {
    enum { WIDTH = 8, VOCAB = 1 << 21 };
    Ctx ctx = *like;
    for (int i = 0; i < ARENA_COUNT; i++) ctx.arenas[i] = (Arena){.name = "measured"};
    ctx.measuring = ctx.training = true;
    const Dtype wide = wide_dtype(&ctx);
    Loss l = {.hidden = tensor_view(NULL, ctx.dtype, shape2(rows, WIDTH)),
              .weight = tensor_view(NULL, ctx.dtype, shape2(VOCAB, WIDTH)),
              .targets = tensor_view(NULL, I32, shape1(rows)),
              .vocab = VOCAB,
              .losses = tensor_view(NULL, wide, shape1(rows)),
              .loss = tensor_view(NULL, wide, shape1(1)),
              .dhidden = tensor_view(NULL, ctx.dtype, shape2(rows, WIDTH)),
              .dweight = tensor_view(NULL, wide, shape2(VOCAB, WIDTH))};
    expect_ok(loss_forward(&ctx, &l, ARENA_SAVED));
    expect_ok(loss_backward(&ctx, &l));
    const size_t peak = ctx.arenas[ARENA_SCRATCH].peak;
    for (int i = 0; i < ARENA_COUNT; i++) arena_close(&ctx.arenas[i]);
    return peak;
}

static void measure_rows(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)what;
    (void)in;
    (void)out;
    size_t before = 0;
    for (int64_t rows = 1; rows <= 400 && !rig->ctx.measuring; rows++) {
        const size_t peak = scratch_for(&rig->ctx, rows);
        if (peak < before)
            fail_msg("%s: %lld rows take less scratch than one row less", rig->variant->name,
                     (long long)rows);
        before = peak;
    }
}

/* Memory is planned for the longest batch; shorter batches must fit. */
static void fewer_rows_take_no_more_scratch(void **state) {
    rig_run_once(test_variant(state, OP_LOSS), measure_rows, NULL, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_follows_the_formula),
                                       ONCE(gradients_are_slopes),
                                       ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(form_follows_the_specification),
                                       ON_EACH_VARIANT(large_logits_stay_finite),
                                       ON_EACH_VARIANT(no_rows_are_harmless),
                                       ON_EACH_VARIANT(fewer_rows_take_no_more_scratch)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
