/* patch: the specification against the header's formulas in double precision and its gradient against finite
 * differences; every form against the specification. */
#include "kernels/patch/patch.h"
#include "tests/support/compare.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    int64_t batch, height, width, channels, size, outputs;
    bool token;
} Case;

enum { WEIGHT, BIAS, TOKEN, POSITION, DY, DWEIGHT, DBIAS, DTOKEN, DPOSITION, INPUTS };
enum { OUT_Y, OUT_X, OUT_DWEIGHT, OUT_DBIAS, OUT_DTOKEN, OUT_DPOSITION, OUTPUTS };

/* Edges outside all patches, odd sides and widths, a single patch, patches of one pixel, and sizes that suit
 * vectors. */
static const Case cases[] = {
    {1, 1, 1, 1, 1, 1, false},     {1, 1, 1, 1, 1, 1, true},    {2, 4, 4, 3, 2, 8, true},
    {3, 5, 7, 1, 2, 5, true},      {2, 9, 6, 3, 3, 13, false},  {2, 8, 24, 4, 8, 32, true},
    {1, 17, 33, 3, 16, 24, true},  {5, 28, 28, 1, 7, 40, true}, {3, 28, 28, 1, 4, 64, false},
    {2, 32, 32, 3, 16, 130, true}, {7, 16, 16, 2, 8, 33, true}, {4, 48, 48, 3, 16, 96, false},
};
enum { CASES = sizeof cases / sizeof *cases };

static const double MEAN[PATCH_CHANNELS] = {0.485, 0.456, 0.406, 0.1};
static const double DEVIATION[PATCH_CHANNELS] = {0.229, 0.224, 0.225, 2};

typedef struct {
    Case size;
    const uint8_t *pixels;
} Batch;

static int64_t patches_of(const Case *c) {
    return (c->height / c->size) * (c->width / c->size);
}
static int64_t rows_of(const Case *c) {
    return patches_of(c) + c->token;
}
static int64_t inputs_of(const Case *c) {
    return c->channels * c->size * c->size;
}

static int64_t count_of(const Case *c, int input) {
    switch (input) {
    case WEIGHT:
    case DWEIGHT: return c->outputs * inputs_of(c);
    case TOKEN:
    case DTOKEN: return c->token ? c->outputs : 0;
    case POSITION:
    case DPOSITION: return rows_of(c) * c->outputs;
    case DY: return c->batch * rows_of(c) * c->outputs;
    default: return c->outputs;
    }
}

static int64_t output_count(const Case *c, int output) {
    if (output == OUT_Y) return count_of(c, DY);
    return output == OUT_X ? c->batch * rows_of(c) * inputs_of(c)
                           : count_of(c, DWEIGHT + output - OUT_DWEIGHT);
}

static PatchForward put_forward(Rig *rig, const Batch *batch, double *const *in) {
    const Case *c = &batch->size;
    const Dtype dtype = rig->ctx.dtype;
    const Shape pixels = shape4(c->batch, c->height, c->width, c->channels), none = {0};
    PatchForward f = {.pixels = rig_put_bytes(rig, "pixels", pixels, batch->pixels),
                      .size = c->size,
                      .weight = rig_put(rig, "weight", dtype, shape2(c->outputs, inputs_of(c)), in[WEIGHT]),
                      .bias = rig_put(rig, "bias", dtype, shape1(c->outputs), in[BIAS]),
                      .token = rig_put(rig, "token", dtype, c->token ? shape1(c->outputs) : none, in[TOKEN]),
                      .position =
                          rig_put(rig, "position", dtype, shape2(rows_of(c), c->outputs), in[POSITION]),
                      .y = rig_blank(rig, "y", dtype, shape3(c->batch, rows_of(c), c->outputs))};
    for (int i = 0; i < c->channels; i++) {
        f.mean[i] = MEAN[i];
        f.deviation[i] = DEVIATION[i];
    }
    return f;
}

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Batch *batch = what;
    const Case *c = &batch->size;
    Ctx *ctx = &rig->ctx;
    const Dtype wide = wide_dtype(ctx);
    const Shape none = {0};
    ctx->training = true;
    PatchForward f = put_forward(rig, batch, in);
    const PatchBackward b = {.forward = &f,
                             .dy = rig_put(rig, "dy", ctx->dtype, f.y.shape, in[DY]),
                             .dweight = rig_put(rig, "dweight", wide, f.weight.shape, in[DWEIGHT]),
                             .dbias = rig_put(rig, "dbias", wide, f.bias.shape, in[DBIAS]),
                             .dtoken =
                                 rig_put(rig, "dtoken", wide, c->token ? f.token.shape : none, in[DTOKEN]),
                             .dposition = rig_put(rig, "dposition", wide, f.position.shape, in[DPOSITION])};
    expect_ok(patch_forward(ctx, &f, ARENA_SAVED));
    expect_ok(patch_backward(ctx, &b));
    rig_get(rig, f.y, out[OUT_Y]);
    rig_get(rig, f.x, out[OUT_X]);
    rig_get(rig, b.dweight, out[OUT_DWEIGHT]);
    rig_get(rig, b.dbias, out[OUT_DBIAS]);
    rig_get(rig, b.dtoken, out[OUT_DTOKEN]);
    rig_get(rig, b.dposition, out[OUT_DPOSITION]);
}

static const uint8_t *bytes_of(const Case *c) {
    int64_t count = c->batch * c->height * c->width * c->channels;
    const int32_t *values = integers(count, 256);
    uint8_t *bytes = (uint8_t *)zeros(count / 8 + 1);
    for (int64_t i = 0; i < count; i++) bytes[i] = (uint8_t)values[i];
    return bytes;
}

static void make_inputs(const Case *c, Dtype dtype, Batch *batch, double **in) {
    *batch = (Batch){*c, bytes_of(c)};
    for (int i = 0; i < INPUTS; i++)
        in[i] = normals(count_of(c, i), 1, i < DWEIGHT ? dtype : dtype == F64 ? F64 : F32);
}

static void make_outputs(const Case *c, double **out) {
    for (int o = 0; o < OUTPUTS; o++) out[o] = zeros(output_count(c, o));
}

/* Adds a term to element `at` of a sum in `wide` precision. */
static void add_to(double *want, double *bound, int64_t at, double value, double error) {
    want[at] += value;
    bound[at] += error * fabs(value);
}

/* One row of x and y. An input is scaled and shifted in fp32 and then stored. The product's sum may be stored
 * after each of three additions. */
static void model_row(const Batch *batch, Units u, double *const *in, int64_t row, double **want,
                      double **bound) {
    const Case *c = &batch->size;
    int64_t rows = rows_of(c), K = inputs_of(c), C = c->outputs, P = c->size, b = row / rows, t = row % rows;
    int64_t n = t - c->token, across = c->width / P;
    double *x = want[OUT_X] + row * K, *x_error = bound[OUT_X] + row * K;
    for (int64_t k = 0; k < K && n >= 0; k++) {
        int64_t channel = k / (P * P), i = n / across * P + k / P % P, j = n % across * P + k % P;
        double byte = batch->pixels[((b * c->height + i) * c->width + j) * c->channels + channel];
        x[k] = (byte / 255 - MEAN[channel]) / DEVIATION[channel];
        x_error[k] = 4 * u.wide * (byte / 255 + MEAN[channel]) / DEVIATION[channel] + u.storage * fabs(x[k]);
    }
    for (int64_t o = 0; o < C; o++) {
        const double *weight = in[WEIGHT] + o * K, added = n < 0 ? in[TOKEN][o] : in[BIAS][o];
        double y = 0, size = fabs(added) + fabs(in[POSITION][t * C + o]), error = 0;
        for (int64_t k = 0; k < K; k++) {
            y += x[k] * weight[k];
            size += fabs(x[k] * weight[k]);
            error += x_error[k] * fabs(weight[k]);
        }
        want[OUT_Y][row * C + o] = y + added + in[POSITION][t * C + o];
        bound[OUT_Y][row * C + o] = error + (product_error(u, K) + 3 * (u.storage + u.wide)) * size;
    }
}

static void model(const Batch *batch, Units u, double *const *in, double **want, double **bound) {
    const Case *c = &batch->size;
    int64_t rows = rows_of(c), K = inputs_of(c), C = c->outputs, terms = c->batch * rows;
    double sum = sum_error(u.wide, terms + 1), product = product_error(u, terms) + sum;
    make_outputs(c, want);
    make_outputs(c, bound);
    for (int o = OUT_DWEIGHT; o < OUTPUTS; o++)
        for (int64_t i = 0; i < output_count(c, o); i++)
            add_to(want[o], bound[o], i, in[DWEIGHT + o - OUT_DWEIGHT][i], sum);
    for (int64_t row = 0; row < terms; row++) {
        int64_t t = row % rows;
        model_row(batch, u, in, row, want, bound);
        for (int64_t o = 0; o < C; o++) {
            double dy = in[DY][row * C + o];
            bool patch = t >= c->token;
            add_to(want[OUT_DPOSITION], bound[OUT_DPOSITION], t * C + o, dy, sum);
            add_to(want[patch ? OUT_DBIAS : OUT_DTOKEN], bound[patch ? OUT_DBIAS : OUT_DTOKEN], o, dy, sum);
            for (int64_t k = 0; k < K; k++) {
                add_to(want[OUT_DWEIGHT], bound[OUT_DWEIGHT], o * K + k, dy * want[OUT_X][row * K + k],
                       product);
                bound[OUT_DWEIGHT][o * K + k] += fabs(dy) * bound[OUT_X][row * K + k];
            }
        }
    }
}

static void follow(const Variant *variant, bool formula) {
    static const char *const names[OUTPUTS] = {"y", "x", "dweight", "dbias", "dtoken", "dposition"};
    for (int i = 0; i < CASES; i++) {
        const Case *c = &cases[i];
        Batch batch;
        double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
        make_inputs(c, variant->dtype, &batch, in);
        make_outputs(c, got);
        model(&batch, units_of(variant), in, want, bound);
        if (!formula) rig_run_once(&specification, run, &batch, in, want);
        rig_run(variant, run, &batch, in, got);
        for (int o = 0; o < OUTPUTS; o++)
            expect_close(got[o], want[o], bound[o], output_count(c, o),
                         "%s: patch B=%lld %lldx%lldx%lld P=%lld C=%lld%s, %s", variant->name,
                         (long long)c->batch, (long long)c->height, (long long)c->width,
                         (long long)c->channels, (long long)c->size, (long long)c->outputs,
                         c->token ? " token" : "", names[o]);
    }
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    follow(&specification, true);
}

static void form_follows_the_specification(void **state) {
    follow(test_variant(state, OP_PATCH), false);
}

/* ---- gradients ---- */

static void forward(Rig *rig, const void *what, double *const *in, double *const *out) {
    rig->ctx.training = false;
    PatchForward f = put_forward(rig, what, in);
    expect_ok(patch_forward(&rig->ctx, &f, ARENA_SAVED));
    rig_get(rig, f.y, out[0]);
}

static void backward(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = &((const Batch *)what)->size;
    double *all[INPUTS], *results[OUTPUTS];
    for (int i = 0; i < INPUTS; i++) all[i] = i <= DY ? in[i] : zeros(count_of(c, i));
    make_outputs(c, results);
    for (int i = 0; i < 4; i++) results[OUT_DWEIGHT + i] = out[i];
    run(rig, what, all, results);
}

static void gradient_follows_differences(void **state) {
    (void)state;
    const Case c = {2, 6, 7, 3, 3, 5, true};
    Batch batch;
    double *in[INPUTS];
    make_inputs(&c, F64, &batch, in);
    Differentiable d = {.inputs = 4,
                        .outputs = 1,
                        .output_counts = {count_of(&c, DY)},
                        .forward = forward,
                        .backward = backward};
    for (int i = 0; i < 4; i++) d.input_counts[i] = count_of(&c, i);
    expect_gradients(&d, &batch, in, "patch");
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const PatchForward right = {.pixels = tensor_view(NULL, U8, shape4(2, 6, 6, 3)),
                                .deviation = {1, 1, 1},
                                .size = 3,
                                .weight = tensor_view(NULL, F32, shape2(8, 27)),
                                .bias = tensor_view(NULL, F32, shape1(8)),
                                .position = tensor_view(NULL, F32, shape2(4, 8)),
                                .x = tensor_view(NULL, F32, shape3(2, 4, 27)),
                                .y = tensor_view(NULL, F32, shape3(2, 4, 8))};
    PatchForward wrong[5] = {right, right, right, right, right};
    wrong[0].deviation[2] = 0;
    wrong[1].size = 7;
    wrong[2].position.shape = shape2(5, 8);
    wrong[3].pixels.dtype = I32;
    wrong[4].token = tensor_view(NULL, F32, shape1(8)); // this case has five positions
    for (int i = 0; i < 5; i++) {
        Status status = patch_forward(&ctx, &wrong[i], ARENA_SAVED);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_follows_the_formula),
                                       ONCE(gradient_follows_differences), ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(form_follows_the_specification)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
