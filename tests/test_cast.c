/* cast: e4m3 against a search among all its numbers; the operation's bytes, transposes and scales in every
 * form; and linear layers of 8 bits, whose products are those of the rounded operands. */
#include "base/float8.h"
#include "data/safetensors.h"
#include "kernels/cast/cast.h"
#include "kernels/linear/linear.h"
#include "tests/support/compare.h"
#include "tests/support/program.h"

#include <math.h>
#include <string.h>

/* ---- the number ---- */

/* By its definition: sign, exponent, fraction. */
static double code_value(int code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const double magnitude = exponent ? ldexp(1 + fraction / 8.0, exponent - 7) : ldexp(fraction / 8.0, -6);
    return code & 0x80 ? -magnitude : magnitude;
}

/* The code whose value is nearest; of two the even one. */
static int nearest_code(double x) {
    int best = 0;
    for (int code = 0; code < 0x7F; code++) {
        const double distance = fabs(code_value(code) - fabs(x)), before = fabs(code_value(best) - fabs(x));
        if (distance < before || (distance == before && code % 2 == 0)) best = code;
    }
    return best | (signbit(x) ? 0x80 : 0);
}

static void every_code_has_its_value(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++) {
        const float value = e4m3_to_float((uint8_t)code);
        if ((code & 0x7F) == 0x7F) {
            assert_true(isnan(value));
        } else {
            assert_true((double)value == code_value(code));
            assert_int_equal(e4m3_from_float(value), code);
        }
    }
}

static void numbers_become_the_nearest(void **state) {
    (void)state;
    const double *draws = normals(20000, 1, F32);
    for (int i = 0; i < 20000; i++) {
        const float x = (float)ldexp(draws[i], i % 24 - 14);
        if (fabsf(x) <= 464) assert_int_equal(e4m3_from_float(x), nearest_code((double)x));
    }
    for (int code = 0; code < 0x7E; code++) { // ties, and the numbers beside them
        const float middle = (float)(code_value(code) + code_value(code + 1)) / 2;
        assert_int_equal(e4m3_from_float(middle), code % 2 ? code + 1 : code);
        assert_int_equal(e4m3_from_float(nextafterf(middle, 0)), code);
        assert_int_equal(e4m3_from_float(nextafterf(middle, 1000)), code + 1);
    }
    assert_int_equal(e4m3_from_float(464), 0x7E);
    const float beyond[] = {464.0001F, 1e30F, INFINITY, NAN};
    for (int i = 0; i < 4; i++) assert_int_equal(e4m3_from_float(-beyond[i]) & 0x7F, 0x7F);
}

static void a_scale_is_the_largest_that_fits(void **state) {
    (void)state;
    for (int e = -120; e < 128; e++)
        for (int m = 0; m < 8; m++) {
            const float magnitude = ldexpf(1 + (float)m / 8, e), s = e4m3_scale(magnitude);
            assert_true(magnitude * s <= 448);
            assert_true(magnitude * s > 224 || s == 0x1p117F);
            assert_true(frexpf(s, &(int){0}) == 0.5F);
        }
    assert_true(e4m3_scale(1.75F) == 256 && e4m3_scale(nextafterf(1.75F, 2)) == 128);
    assert_true(e4m3_scale(0) == 0x1p117F);
    assert_true(isnan(e4m3_scale(INFINITY)) && isnan(e4m3_scale(NAN)));
}

/* ---- the operation ---- */

typedef struct {
    int64_t rows, width;
    double size; // of the numbers
    bool bytes;  // y and t, else rounded
} CastCase;

static const CastCase cast_cases[] = {
    {1, 1, 1, true},        {3, 7, 1, true},       {16, 16, 1e-3, true},  {48, 80, 40, true},
    {128, 128, 1e-6, true}, {144, 272, 1, true},   {512, 768, 1e4, true}, {33, 64, 1, true},
    {1, 1, 1, false},       {5, 13, 1e-20, false}, {64, 48, 1e20, false}, {127, 129, 1, false},
    {16, 2064, 0, true},    {16, 16, 0, false},
};
enum { CAST_CASES = sizeof cast_cases / sizeof *cast_cases };

static void get_bytes(Rig *rig, Tensor t, double *values) {
    uint8_t bytes[1024];
    const int64_t count = tensor_count(t);
    for (int64_t at = 0; at < count && !rig->ctx.measuring; at += (int64_t)sizeof bytes) {
        const int64_t n = count - at < (int64_t)sizeof bytes ? count - at : (int64_t)sizeof bytes;
        expect_ok(rig->ctx.device->download(rig->ctx.device, bytes, (uint8_t *)t.data + at, (size_t)n));
        for (int64_t i = 0; i < n; i++) values[at + i] = bytes[i];
    }
}

static void run_cast(Rig *rig, const void *what, double *const *in, double *const *out) {
    const CastCase *c = what;
    const Dtype dtype = rig->ctx.dtype;
    const Shape shape = shape2(c->rows, c->width), none = {0};
    const Cast cast = {.x = rig_put(rig, "x", dtype, shape, in[0]),
                       .y = rig_blank(rig, "y", E4M3, c->bytes ? shape : none),
                       .t = rig_blank(rig, "t", E4M3, c->bytes ? shape2(c->width, c->rows) : none),
                       .scale = rig_blank(rig, "scale", F32, shape1(1)),
                       .rounded = rig_blank(rig, "rounded", dtype, c->bytes ? none : shape)};
    expect_ok(cast_forward(&rig->ctx, &cast));
    rig_get(rig, cast.scale, out[0]);
    if (c->bytes) {
        get_bytes(rig, cast.y, out[1]);
        get_bytes(rig, cast.t, out[2]);
    } else {
        rig_get(rig, cast.rounded, out[1]);
    }
}

/* 1 / s of these numbers. */
static double inverse_scale(const double *x, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(x[i]));
    return most > 0 ? fmax(exp2(ceil(log2(most / 448))), 0x1p-117) : 0x1p-117;
}

static void check_casts(const Variant *variant) {
    for (int k = 0; k < CAST_CASES; k++) {
        const CastCase *c = &cast_cases[k];
        const int64_t count = c->rows * c->width;
        double *in = normals(count, c->size, variant->dtype), *want[3], *got[3];
        for (int o = 0; o < 3; o++) {
            want[o] = zeros(o ? count : 1);
            got[o] = zeros(o ? count : 1);
        }
        const double scale = want[0][0] = inverse_scale(in, count);
        for (int64_t i = 0; i < count; i++) {
            const int code = nearest_code(in[i] / scale);
            want[1][i] = c->bytes ? code : code_value(code) * scale;
            if (c->bytes) want[2][i % c->width * c->rows + i / c->width] = code;
        }
        rig_run(variant, run_cast, c, &in, got);
        expect_equal(got[0], want[0], 1, "scale");
        expect_equal(got[1], want[1], count, c->bytes ? "y" : "rounded");
        expect_equal(got[2], want[2], count, "t");
    }
}

/* ---- a given scale, recorded maxima, sums ---- */

/* `given` times the largest magnitude is above 448 if `clips` is true, else below. */
typedef struct {
    int64_t rows, width;
    bool bytes, sums, clips;
    double seen; // the largest magnitude so far, in units of this tensor's
} GivenCase;

static const GivenCase given_cases[] = {
    {16, 16, true, true, false, 0},   {48, 80, true, true, true, 0},    {144, 272, true, true, false, 2},
    {256, 128, true, false, true, 2}, {33, 64, true, true, true, 0.5},  {7, 13, true, true, false, 0.5},
    {16, 48, false, false, false, 0}, {5, 13, false, false, true, 0.5},
};
enum { GIVEN_CASES = sizeof given_cases / sizeof *given_cases };
enum { IN_X, IN_GIVEN, IN_SEEN, IN_SUMS, GIVEN_INPUTS };
enum { OUT_SCALE, OUT_VALUES, OUT_T, OUT_SEEN, OUT_SUMS, GIVEN_OUTPUTS };

static void run_given(Rig *rig, const void *what, double *const *in, double *const *out) {
    const GivenCase *c = what;
    const Dtype dtype = rig->ctx.dtype, wide = wide_dtype(&rig->ctx);
    const Shape shape = shape2(c->rows, c->width), none = {0};
    const Cast cast = {.x = rig_put(rig, "x", dtype, shape, in[IN_X]),
                       .y = rig_blank(rig, "y", E4M3, c->bytes ? shape : none),
                       .t = rig_blank(rig, "t", E4M3, c->bytes ? shape2(c->width, c->rows) : none),
                       .scale = rig_blank(rig, "scale", F32, shape1(1)),
                       .rounded = rig_blank(rig, "rounded", dtype, c->bytes ? none : shape),
                       .given = rig_put(rig, "given", F32, shape1(1), in[IN_GIVEN]),
                       .seen = rig_put(rig, "seen", wide, shape1(CAST_SEEN), in[IN_SEEN]),
                       .sums = rig_put(rig, "sums", wide, c->sums ? shape1(c->width) : none, in[IN_SUMS])};
    expect_ok(cast_forward(&rig->ctx, &cast));
    rig_get(rig, cast.scale, out[OUT_SCALE]);
    rig_get(rig, cast.seen, out[OUT_SEEN]);
    if (c->sums) rig_get(rig, cast.sums, out[OUT_SUMS]);
    if (c->bytes) {
        get_bytes(rig, cast.y, out[OUT_VALUES]);
        get_bytes(rig, cast.t, out[OUT_T]);
    } else {
        rig_get(rig, cast.rounded, out[OUT_VALUES]);
    }
}

static double largest(const double *x, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(x[i]));
    return most;
}

/* Sums rows in order, and bounds the error of any other order. */
static void check_sums(const Variant *variant, const GivenCase *c, double *const *in, const double *got) {
    double *want = zeros(c->width), *bound = zeros(c->width);
    for (int64_t column = 0; column < c->width; column++) {
        double size = fabs(in[IN_SUMS][column]);
        want[column] = in[IN_SUMS][column];
        for (int64_t i = column; i < c->rows * c->width; i += c->width) {
            want[column] += in[IN_X][i];
            size += fabs(in[IN_X][i]);
        }
        bound[column] = sum_error(units_of(variant).wide, c->rows + 1) * size;
    }
    expect_close(got, want, bound, c->width, "%s: sums of %lld rows", variant->name, (long long)c->rows);
}

static void check_given(const Variant *variant, const GivenCase *c) {
    const int64_t count = c->rows * c->width;
    const Dtype wide = variant->dtype == BF16 ? F32 : variant->dtype;
    double *x = normals(count, 1, variant->dtype), most = largest(x, count);
    double given = (c->clips ? 4 : 0.5) / inverse_scale(x, count);
    double seen[CAST_SEEN] = {rounded(wide, c->seen * most), 0};
    double *in[GIVEN_INPUTS] = {x, &given, seen, normals(c->width, 1, wide)};
    double *got[GIVEN_OUTPUTS], *want[GIVEN_OUTPUTS];
    const int64_t counts[GIVEN_OUTPUTS] = {1, count, count, CAST_SEEN, c->width};
    for (int o = 0; o < GIVEN_OUTPUTS; o++) got[o] = zeros(counts[o]), want[o] = zeros(counts[o]);
    want[OUT_SCALE][0] = 1 / given;
    want[OUT_SEEN][0] = fmax(seen[0], most);
    want[OUT_SEEN][1] = c->clips;
    for (int64_t i = 0; i < count; i++) {
        const int code = nearest_code(x[i] * given); // 448 is the nearest number to anything beyond it
        want[OUT_VALUES][i] = c->bytes ? code : code_value(code) / given;
        if (c->bytes) want[OUT_T][i % c->width * c->rows + i / c->width] = code;
    }
    rig_run(variant, run_given, c, in, got);
    expect_equal(got[OUT_SCALE], want[OUT_SCALE], 1, "scale");
    expect_equal(got[OUT_VALUES], want[OUT_VALUES], count, c->bytes ? "y" : "rounded");
    expect_equal(got[OUT_T], want[OUT_T], count, "t");
    expect_equal(got[OUT_SEEN], want[OUT_SEEN], CAST_SEEN, "seen");
    if (c->sums) check_sums(variant, c, in, got[OUT_SUMS]);
}

static void specification_casts_by_a_given_scale(void **state) {
    (void)state;
    for (int i = 0; i < GIVEN_CASES; i++) check_given(&specification, &given_cases[i]);
}

static void forms_cast_by_a_given_scale(void **state) {
    const Variant *variant = test_variant(state, OP_CAST);
    for (int i = 0; i < GIVEN_CASES; i++) check_given(variant, &given_cases[i]);
}

static void specification_casts(void **state) {
    (void)state;
    check_casts(&specification);
}

static void forms_cast(void **state) {
    check_casts(test_variant(state, OP_CAST));
}

/* A value that is not finite must be visible in every output: a NaN scale ensures that. */
static void what_is_not_finite_stays_seen(void **state) {
    const Variant *variant = test_variant(state, OP_CAST);
    const CastCase c = {16, 32, 1, false};
    const double faults[] = {INFINITY, -INFINITY, NAN};
    for (int k = 0; k < 3; k++) {
        double *in = normals(16 * 32, 1, variant->dtype), *got[3] = {zeros(1), zeros(16 * 32), zeros(1)};
        in[77] = faults[k];
        rig_run_once(variant, run_cast, &c, &in, got);
        assert_true(isnan(got[0][0]));
        for (int i = 0; i < 16 * 32; i++) assert_true(isnan(got[1][i]));
    }
}

/* ---- linear layers of 8 bits ---- */

typedef struct {
    int64_t rows, in, out;
    bool bias, gelu, skip;
    int parts;
    bool fp8;
    bool cast; // the weight comes in 8 bits
} Layer;

enum { X, WEIGHT, BIAS, DY, SKIP, DWEIGHT, DBIAS, INPUTS };
enum { OUT_Y, OUT_DX, OUT_DWEIGHT, OUT_DBIAS, OUTPUTS };

static const Layer layers[] = {
    {3, 7, 5, true, false, false, 0, true, false},         {16, 16, 16, false, false, false, 0, true, false},
    {48, 80, 96, true, false, false, 0, true, false},      {128, 64, 192, true, false, false, 3, true, false},
    {64, 128, 256, true, true, false, 0, true, false},     {33, 40, 24, true, true, false, 0, true, false},
    {256, 512, 128, true, false, true, 0, true, false},    {17, 24, 40, false, false, true, 0, true, false},
    {512, 1024, 512, false, false, false, 0, true, false}, {48, 80, 96, true, false, false, 0, true, true},
    {64, 128, 256, true, true, false, 0, true, true},      {17, 24, 40, false, false, true, 0, true, true},
};
enum { LAYERS = sizeof layers / sizeof *layers };

static void layer_counts(const Layer *l, int64_t counts[INPUTS]) {
    const int64_t all[INPUTS] = {
        [X] = l->rows * l->in,     [WEIGHT] = l->out * l->in,  [BIAS] = l->out, [DY] = l->rows * l->out,
        [SKIP] = l->rows * l->out, [DWEIGHT] = l->out * l->in, [DBIAS] = l->out};
    memcpy(counts, all, sizeof all);
}

static void run_layer(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Layer *l = what;
    Ctx *ctx = &rig->ctx;
    const Dtype dtype = ctx->dtype, wide = wide_dtype(ctx);
    const Shape y = shape2(l->rows, l->out), weight = shape2(l->out, l->in), none = {0};
    ctx->training = true;
    if (l->fp8) ctx->fuses |= FUSE_FP8;
    LinearForward f = {.x = rig_put(rig, "x", dtype, shape2(l->rows, l->in), in[X]),
                       .weight = rig_put(rig, "weight", dtype, weight, in[WEIGHT]),
                       .bias = rig_put(rig, "bias", dtype, l->bias ? shape1(l->out) : none, in[BIAS]),
                       .skip = rig_put(rig, "skip", dtype, l->skip ? y : none, in[SKIP]),
                       .y = rig_blank(rig, "y", dtype, y),
                       .activation = l->gelu ? ACTIVATION_GELU_TANH : ACTIVATION_NONE,
                       .parts = l->parts,
                       .fp8 = true};
    if (l->cast) {
        f.weight8 = (Cast){.y = rig_blank(rig, "weight, 8 bits", E4M3, weight),
                           .t = rig_blank(rig, "the same, transposed", E4M3, shape2(l->in, l->out)),
                           .scale = rig_blank(rig, "scale", F32, shape1(1))};
        expect_ok(linear_cast_weight(ctx, &f, &f.weight8));
    }
    expect_ok(linear_forward(ctx, &f, ARENA_SAVED));
    rig_get(rig, l->gelu ? f.pre : f.y, out[OUT_Y]);
    const LinearBackward b = {.forward = &f,
                              .dy = rig_put(rig, "dy", dtype, y, in[DY]),
                              .dy_is_dpre = l->gelu,
                              .dx = rig_blank(rig, "dx", dtype, f.x.shape),
                              .dweight = rig_put(rig, "dweight", wide, weight, in[DWEIGHT]),
                              .dbias =
                                  rig_put(rig, "dbias", wide, l->bias ? shape1(l->out) : none, in[DBIAS])};
    expect_ok(linear_backward(ctx, &b));
    rig_get(rig, b.dx, out[OUT_DX]);
    rig_get(rig, b.dweight, out[OUT_DWEIGHT]);
    rig_get(rig, b.dbias, out[OUT_DBIAS]);
}

/* As e4m3 with one scale, or without their signs. */
static double *rounded_values(const double *x, int64_t count) {
    double *values = zeros(count);
    const double scale = inverse_scale(x, count);
    for (int64_t i = 0; i < count; i++) values[i] = code_value(nearest_code(x[i] / scale)) * scale;
    return values;
}

static double *magnitudes(const double *x, int64_t count) {
    double *values = zeros(count);
    for (int64_t i = 0; i < count; i++) values[i] = fabs(x[i]);
    return values;
}

/* The relative error of a sum of products of bytes against the sum of their magnitudes. A GPU adds 32 of them
 * at a time to what it has, which keeps 13 bits behind the leading one (DeepSeek-AI 2024, "DeepSeek-V3",
 * section 3.3.2, says 14 bits in all): each addition cuts off less than 2^-12 of the largest number in it. */
static double bytes_error(int64_t k) {
    return 0x1p-12 * (double)((k + 31) / 32);
}

/* Only for multiples of sixteen, in the form that multiplies bytes; otherwise rounded operands enter an
 * ordinary product. */
static double terms_error(const Variant *variant, const Layer *l, int64_t k) {
    const Units u = units_of(variant);
    const bool bytes = variant->backend == BACKEND_CUDA && variant->form == FORM_FUSED &&
                       variant->dtype == BF16 && l->rows % 16 == 0 && l->in % 16 == 0 && l->out % 16 == 0;
    return (bytes ? bytes_error(k) : 0) + sum_error(u.wide, k + 3);
}

static void check_layer(const Variant *variant, const Layer *layer) {
    const Units u = units_of(variant);
    Layer plain = *layer;
    plain.fp8 = false;
    int64_t counts[INPUTS], out_counts[OUTPUTS];
    layer_counts(layer, counts);
    double *in[INPUTS], *exact[INPUTS], *sizes[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        const bool wide = i == DWEIGHT || i == DBIAS;
        in[i] =
            normals(counts[i], i == WEIGHT ? 0.02 : 1, wide && variant->dtype == BF16 ? F32 : variant->dtype);
        exact[i] = i == X || i == WEIGHT || i == DY ? rounded_values(in[i], counts[i]) : in[i];
        sizes[i] = magnitudes(exact[i], counts[i]);
    }
    const int from[OUTPUTS] = {[OUT_Y] = DY, [OUT_DX] = X, [OUT_DWEIGHT] = WEIGHT, [OUT_DBIAS] = BIAS};
    double *got[OUTPUTS], *want[OUTPUTS], *size[OUTPUTS], *bound[OUTPUTS], *sums[OUTPUTS];
    for (int o = 0; o < OUTPUTS; o++) {
        out_counts[o] = counts[from[o]];
        got[o] = zeros(out_counts[o]), want[o] = zeros(out_counts[o]), size[o] = zeros(out_counts[o]);
        bound[o] = zeros(out_counts[o]), sums[o] = zeros(out_counts[o]);
    }
    rig_run_once(&specification, run_layer, &plain, exact, want);
    rig_run_once(&specification, run_layer, &plain, sizes, size);
    rig_run_once(&specification, run_layer, &plain, in, sums); // sums of the unrounded dpre
    want[OUT_DBIAS] = sums[OUT_DBIAS];
    rig_run(variant, run_layer, layer, in, got);
    const int64_t depth[OUTPUTS] = {layer->in, layer->out, layer->rows, layer->rows};
    for (int o = 0; o < OUTPUTS; o++) {
        const double error =
            o == OUT_DBIAS ? sum_error(u.wide, depth[o] + 1) : terms_error(variant, layer, depth[o]);
        const double storage = o == OUT_Y || o == OUT_DX ? u.storage : 0;
        const int roundings = 1 + layer->parts + layer->bias + layer->skip;
        for (int64_t i = 0; i < out_counts[o]; i++)
            bound[o][i] = (error + roundings * storage) *
                          (o == OUT_DBIAS ? 10 * sqrt((double)layer->rows) + size[o][i] : size[o][i]);
        expect_close(got[o], want[o], bound[o], out_counts[o], "%s: %lldx%lld->%lld in 8 bits, output %d",
                     variant->name, (long long)layer->rows, (long long)layer->in, (long long)layer->out, o);
    }
}

/* The largest layer tests a GPU's tiles; on the CPU its fp64 products would take most of this test's time. */
static void check_layers(const Variant *variant) {
    for (int i = 0; i < LAYERS; i++)
        if (variant->backend == BACKEND_CUDA || layers[i].rows < 512) check_layer(variant, &layers[i]);
}

static void specification_multiplies_rounded_operands(void **state) {
    (void)state;
    check_layers(&specification);
}

static void forms_multiply_rounded_operands(void **state) {
    check_layers(test_variant(state, OP_LINEAR));
}

static void the_fuse_is_off_unless_named(void **state) {
    (void)state;
    uint32_t fuses;
    expect_ok(fuses_parse("1", &fuses));
    assert_false(fuses & FUSE_FP8);
    expect_ok(fuses_parse("1,fp8", &fuses));
    assert_true(fuses == (((1u << OP_COUNT) - 1) | FUSE_FP8));
    expect_ok(fuses_parse("fp8", &fuses));
    assert_true(fuses == FUSE_FP8);
    expect_ok(fuses_parse("-linear", &fuses));
    assert_false(fuses & FUSE_FP8);
}

/* The last loss of a short run. */
static double last_loss(const char *folder, const char *fused, const char *options) {
    program_succeeds(folder, "train %s --steps=6 --fused=%s --log=log.jsonl %s", TINY, fused, options);
    json_t *events = log_read(folder, "log.jsonl", false);
    const double loss = json_number_value(json_object_get(log_last(events, "step"), "loss"));
    json_decref(events);
    return loss;
}

/* Products whose operands have a relative error of 2^-4 change a loss a little, equally in every form and
 * whatever is saved for the backward pass. */
static void check_training(const char *folder, const char *device) {
    static const char *const recomputed[] = {"", "--recompute=hidden", "--recompute=blocks"};
    for (int i = 0; i < 3; i++) {
        char options[80];
        snprintf(options, sizeof options, "%s %s", device, recomputed[i]);
        const double wide = last_loss(folder, "1", options);
        const double fused = last_loss(folder, "1,fp8", options), naive = last_loss(folder, "0,fp8", options);
        assert_true(fused != wide && fabs(fused - wide) < 0.01 * wide);
        assert_true(fabs(fused - naive) < 2e-3 * wide);
    }
}

/* With constant weights the recorded maxima do not depend on how often a step casts the weights. */
static void check_scales(const char *folder, const char *device) {
    program_succeeds(folder, "rm -rf scales0 scales1");
    float scales[2][3 * 64];
    int64_t count = 0;
    for (int i = 0; i < 2; i++) {
        char path[128];
        Safetensors *file;
        program_succeeds(folder,
                         "train " TINY " %s --lr=0 --weight-decay=0 --steps=3 --accum=%d --fused=1,fp8 "
                         "--out=scales%d -q",
                         device, i ? 3 : 1, i);
        snprintf(path, sizeof path, "%s/scales%d/step-00000003/training_state.safetensors", folder, i);
        expect_ok(safetensors_open(path, &file));
        const SafetensorsEntry *entry = safetensors_find(file, "fusebox.scales");
        assert_non_null(entry);
        count = entry->d[0] * entry->d[1];
        assert_true(count <= (int64_t)(sizeof scales[i] / sizeof *scales[i]));
        expect_ok(safetensors_read(entry, 0, count, scales[i]));
        safetensors_close(file);
    }
    int others = 0;
    for (int64_t i = OPERAND_WEIGHT; i < count; i += OPERANDS) {
        assert_true(scales[0][i] == scales[1][i]);
        others += scales[0][i] != 1;
    }
    assert_int_equal(others, 8); // four matrices of each of two layers
}

static void weights_have_scales_of_their_own(void **state) {
    check_scales(*state, "--dtype=fp32");
}

static void weights_have_scales_of_their_own_on_a_gpu(void **state) {
    program_needs_gpu(*state);
    check_scales(*state, "--dtype=bf16 --device=cuda");
}

static void a_model_trains_in_8_bits(void **state) {
    const Ran *ran = program_succeeds(*state, "train %s --steps=1 --fused=1,fp8", TINY);
    assert_non_null(strstr(ran->output, "(emulated:"));
    check_training(*state, "--dtype=fp32");
}

static void a_model_trains_in_8_bits_on_a_gpu(void **state) {
    program_needs_gpu(*state);
    check_training(*state, "--dtype=bf16 --device=cuda");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONCE(every_code_has_its_value),
        ONCE(numbers_become_the_nearest),
        ONCE(a_scale_is_the_largest_that_fits),
        ONCE(specification_casts),
        ON_EACH_VARIANT(forms_cast),
        ONCE(specification_casts_by_a_given_scale),
        ON_EACH_VARIANT(forms_cast_by_a_given_scale),
        ON_EACH_VARIANT(what_is_not_finite_stays_seen),
        ONCE(specification_multiplies_rounded_operands),
        ON_EACH_VARIANT(forms_multiply_rounded_operands),
        ONCE(the_fuse_is_off_unless_named),
    };
    const struct CMUnitTest programs[] = {cmocka_unit_test(a_model_trains_in_8_bits),
                                          cmocka_unit_test(a_model_trains_in_8_bits_on_a_gpu),
                                          cmocka_unit_test(weights_have_scales_of_their_own),
                                          cmocka_unit_test(weights_have_scales_of_their_own_on_a_gpu)};
    const int failed = cmocka_run_group_tests(tests, NULL, devices_end);
    return failed + cmocka_run_group_tests(programs, program_setup, scratch_teardown);
}
