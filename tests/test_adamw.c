#include "tests/support/compare.h"

#include "base/bfloat16.h"
#include "optim/adamw.h"

#include <math.h>
#include <string.h>

enum { LARGEST_COUNT = 12, RANGES_MOST = 4, WORDS_MOST = 64 };

typedef struct {
    int count;
    int64_t counts[LARGEST_COUNT]; // elements of each parameter; they begin at multiples of 64
    unsigned decays;               // bit i set: weight decay applies to parameter i
    double clip, updates, gradient_scale, weight_decay;
} Case;

enum { WEIGHT, GRADIENT, M, V, LOSS, STATE, INPUTS };
enum { OUT_WEIGHT, OUT_MASTER, OUT_M, OUT_V, OUT_STATE, OUTPUTS };
static const double BETA1 = 0.9, BETA2 = 0.999, EPS = 1e-8, LEARNING_RATE = 3e-3;

static const Case cases[] = {
    {1, {1}, 0x1, 0, 0, 1, 0.1},
    {1, {1}, 0x0, 1, 0, 10, 0.1},
    {1, {7}, 0x1, 1, 1, 0.01, 0.1},
    {2, {8, 3}, 0x1, 1, 5, 1, 0.1},
    {2, {63, 64}, 0x3, 0.5, 0, 1, 0.01},
    {2, {65, 1}, 0x0, 1, 2, 1, 0.1},
    {3, {17, 31, 13}, 0x4, 1, 10, 2, 0},
    {3, {128, 127, 129}, 0x3, 0, 100, 1, 0.1},
    {3, {1, 1, 1}, 0x7, 1, 1000, 1, 0.1},
    {4, {256, 5, 255, 11}, 0x3, 1, 3, 0.001, 0.1},
    {4, {33, 1031, 2, 96}, 0xa, 1, 7, 3, 0.1},
    {5, {40, 80, 120, 160, 200}, 0x7, 0.1, 0, 1, 1},
    {5, {513, 511, 64, 9, 7}, 0x16, 1, 99999, 1, 0.1},
    {6, {19, 23, 29, 37, 41, 43}, 0xf, 1, 1, 1e-6, 0.1},
    {6, {300, 300, 300, 3, 3, 3}, 0x7, 1, 12, 1e3, 0.1},
    {8, {1, 2, 3, 4, 5, 6, 7, 8}, 0xf, 1, 0, 1, 0.1},
    {2, {5000, 77}, 0x1, 1, 20, 1, 0.1},
    {12, {64, 1, 64, 1, 64, 1, 64, 1, 64, 1, 64, 1}, 0x555, 1, 50, 1, 0.1},
    {4, {2048, 1, 2048, 40000}, 0xa, 1, 8, 1, 0.1}, // words of marks, and two blocks of sums
    {1, {40001}, 0x1, 1, 400, 1, 0.1},
    {3, {10007, 20011, 300}, 0x5, 100, 4, 1, 0.1},
    {2, {97, 0}, 0x1, 1, 6, 1, 0.1},
    {3, {1024, 2048, 4096}, 0x7, 1, 0, 0.1, 0.1},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct {
    const Case *c;
    int64_t elements;
    AdamwParameter parameters[LARGEST_COUNT];
    bool narrow; // moments in bf16
    int ranges;  // 0: one call takes all steps; else each is a call of its own, for one range after another
    int64_t ends[RANGES_MOST];
} Layout;

static Layout layout_of(const Case *c) {
    Layout layout = {.c = c};
    for (int i = 0; i < c->count; i++) {
        layout.parameters[i] = (AdamwParameter){layout.elements, c->counts[i], c->decays >> i & 1};
        layout.elements += (c->counts[i] + ADAMW_UNIT - 1) / ADAMW_UNIT * ADAMW_UNIT;
    }
    return layout;
}

static int64_t first_of(const Layout *layout, int range) {
    return range ? layout->ends[range - 1] : 0;
}

/* Partial sums of the first `ranges` ranges, each cut into blocks of its own. */
static int64_t sums_of(const Layout *layout, int ranges) {
    int64_t sums = 0;
    for (int i = 0; i < ranges; i++)
        sums += adamw_blocks(first_of(layout, i), layout->ends[i] - first_of(layout, i));
    return sums;
}

static Tensor elements_of(Tensor t, int64_t first, int64_t count) {
    return tensor_view((char *)t.data + (size_t)first * dtype_size(t.dtype), t.dtype, shape1(count));
}

/* A step of one range, on views of the whole tensors: the state of a process that owns only this shard. */
static Adamw part_of(const Adamw *whole, const Layout *layout, int range, unsigned step) {
    Adamw a = *whole;
    int64_t sums = sums_of(layout, range);
    a.steps = step;
    a.first = first_of(layout, range);
    Tensor *flat[] = {&a.weight, &a.master, &a.gradient, &a.m, &a.v};
    for (int i = 0; i < 5; i++)
        if (!tensor_empty(*flat[i])) *flat[i] = elements_of(*flat[i], a.first, layout->ends[range] - a.first);
    if (step == ADAMW_SUM) a.squares = elements_of(a.squares, sums, sums_of(layout, range + 1) - sums);
    return a;
}

static void update_in_steps(Ctx *ctx, const Layout *layout, const Adamw *whole) {
    for (int i = 0; i < layout->ranges; i++) {
        Adamw a = part_of(whole, layout, i, ADAMW_SUM);
        expect_ok(adamw_update(ctx, &a));
    }
    Adamw clip = {.steps = ADAMW_CLIP,
                  .squares = whole->squares,
                  .loss = whole->loss,
                  .state = whole->state,
                  .beta1 = BETA1,
                  .beta2 = BETA2,
                  .weight_decay = whole->weight_decay,
                  .clip = whole->clip};
    expect_ok(adamw_update(ctx, &clip));
    for (int i = layout->ranges - 1; i >= 0; i--) {
        Adamw a = part_of(whole, layout, i, ADAMW_APPLY);
        a.squares = a.loss = (Tensor){0};
        expect_ok(adamw_update(ctx, &a));
    }
}

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Layout *layout = what;
    const Case *c = layout->c;
    Ctx *ctx = &rig->ctx;
    const Dtype dtype = ctx->dtype, wide = wide_dtype(ctx), moments = layout->narrow ? BF16 : wide;
    const Shape flat = shape1(layout->elements);
    const int64_t sums = layout->ranges ? sums_of(layout, layout->ranges) : adamw_blocks(0, layout->elements);
    int32_t marks[WORDS_MOST] = {0};
    adamw_mark(layout->parameters, c->count, marks);
    assert_true(adamw_words(layout->elements) <= WORDS_MOST);
    Adamw a = {.steps = ADAMW_WHOLE,
               .weight = rig_put(rig, "weight", dtype, flat, in[WEIGHT]),
               .master = rig_put(rig, "master", wide, dtype == wide ? (Shape){0} : flat, in[WEIGHT]),
               .gradient = rig_put(rig, "gradient", wide, flat, in[GRADIENT]),
               .m = rig_put(rig, "m", moments, flat, in[M]),
               .v = rig_put(rig, "v", moments, flat, in[V]),
               .loss = rig_put(rig, "loss", wide, shape1(1), in[LOSS]),
               .state = rig_put(rig, "state", wide, shape1(ADAMW_STATE_SIZE), in[STATE]),
               .decays = rig_put_ints(rig, "decays", shape1(adamw_words(layout->elements)), marks),
               .squares = rig_blank(rig, "squares", F64, shape1(sums)),
               .count = c->count,
               .parameters = layout->parameters,
               .beta1 = BETA1,
               .beta2 = BETA2,
               .eps = EPS,
               .weight_decay = c->weight_decay,
               .clip = c->clip};
    if (layout->ranges)
        update_in_steps(ctx, layout, &a);
    else
        expect_ok(adamw_update(ctx, &a));
    rig_get(rig, a.weight, out[OUT_WEIGHT]);
    rig_get(rig, tensor_empty(a.master) ? a.weight : a.master, out[OUT_MASTER]);
    rig_get(rig, a.m, out[OUT_M]);
    rig_get(rig, a.v, out[OUT_V]);
    rig_get(rig, a.state, out[OUT_STATE]);
}

static int64_t count_of(const Layout *layout, int o) {
    return o == OUT_STATE ? ADAMW_STATE_SIZE : layout->elements;
}

static void make_outputs(const Layout *layout, double **out) {
    for (int o = 0; o < OUTPUTS; o++) out[o] = zeros(count_of(layout, o));
}

/* Weights, gradients and moments as after `updates` steps; the gaps between parameters are zero. */
static void make_inputs(const Layout *layout, Dtype dtype, double **in) {
    const Case *c = layout->c;
    const Dtype wide = dtype == F64 ? F64 : F32;
    const int64_t n = layout->elements;
    double *weight = normals(n, 1, wide), *gradient = normals(n, c->gradient_scale, wide);
    double *m = normals(n, 0.1, wide), *v = normals(n, 0.1, wide);
    for (int i = 0; i < INPUTS; i++) in[i] = zeros(i < LOSS ? n : ADAMW_STATE_SIZE);
    for (int p = 0; p < c->count; p++)
        for (int64_t k = 0; k < c->counts[p]; k++) {
            int64_t i = layout->parameters[p].first + k;
            in[WEIGHT][i] = weight[i];
            in[GRADIENT][i] = gradient[i];
            in[M][i] = c->updates > 0 ? m[i] : 0;
            in[V][i] = c->updates > 0 ? rounded(wide, v[i] * v[i]) : 0;
        }
    in[LOSS][0] = 3.25;
    in[STATE][ADAMW_LEARNING_RATE] = rounded(wide, LEARNING_RATE);
    in[STATE][ADAMW_UPDATES] = c->updates;
    in[STATE][ADAMW_SKIPPED] = 7; // stale
}

static bool decays(const Layout *layout, int64_t element) {
    int i = layout->c->count - 1;
    while (element < layout->parameters[i].first) i--;
    return layout->parameters[i].decays;
}

/* The header's formulas. The norm's sum of squares errs by sum_error, its root by half of that; m and v err
 * by a few roundings and by the factor's error, once and twice; the step by the moments' errors and a few
 * roundings. 1 - beta and 1 - beta^t are small differences, so a form must compute them in fp64 and then
 * round. */
static void model(const Layout *layout, Units u, double *const *in, double **want, double **bound) {
    const Case *c = layout->c;
    make_outputs(layout, want);
    make_outputs(layout, bound);
    double squares = 0, t = c->updates + 1, rate = in[STATE][ADAMW_LEARNING_RATE];
    for (int64_t i = 0; i < layout->elements; i++) squares += in[GRADIENT][i] * in[GRADIENT][i];
    double norm = sqrt(squares), factor = c->clip > 0 ? fmin(1, c->clip / (norm + 1e-6)) : 1;
    double norm_error = sum_error(u.wide, layout->elements) / 2 + 4 * u.wide;
    double factor_error = c->clip > 0 ? norm_error + 4 * u.wide : 0;
    for (int64_t i = 0; i < layout->elements; i++) {
        double g = factor * in[GRADIENT][i], w = in[WEIGHT][i];
        double m = BETA1 * in[M][i] + (1 - BETA1) * g, v = BETA2 * in[V][i] + (1 - BETA2) * g * g;
        double m_error = 4 * u.wide * (fabs(BETA1 * in[M][i]) + fabs((1 - BETA1) * g)) +
                         factor_error * fabs((1 - BETA1) * g);
        double v_error = 4 * u.wide * v + 2 * factor_error * (1 - BETA2) * g * g;
        double decay = decays(layout, i) ? rate * c->weight_decay : 0;
        double root = sqrt(v / (1 - pow(BETA2, t))) + EPS, step = rate / (1 - pow(BETA1, t)) / root;
        want[OUT_M][i] = m;
        want[OUT_V][i] = v;
        want[OUT_MASTER][i] = w - decay * w - step * m;
        bound[OUT_M][i] = m_error;
        bound[OUT_V][i] = v_error;
        double relative = (v > 0 ? v_error / v / 2 : 0) + 8 * u.wide;
        bound[OUT_MASTER][i] = 3 * u.wide * fabs(w) + step * (m_error + relative * fabs(m));
    }
    want[OUT_STATE][ADAMW_LEARNING_RATE] = rate;
    want[OUT_STATE][ADAMW_UPDATES] = t;
    want[OUT_STATE][ADAMW_NORM] = norm;
    want[OUT_STATE][ADAMW_FACTOR] = factor;
    bound[OUT_STATE][ADAMW_NORM] = norm_error * norm;
    bound[OUT_STATE][ADAMW_FACTOR] = factor_error * factor;
}

static void compare(const Layout *layout, const Variant *variant, double **got, double **want,
                    double **bound) {
    static const char *const names[OUTPUTS] = {NULL, "weight", "m", "v", "state"};
    for (int o = OUT_MASTER; o < OUTPUTS; o++)
        expect_close(got[o], want[o], bound[o], count_of(layout, o), "%s: adamw, case of %lld elements, %s",
                     variant->name, (long long)layout->elements, names[o]);
    for (int64_t i = 0; i < layout->elements; i++)
        assert_true(got[OUT_WEIGHT][i] == rounded(variant->dtype, got[OUT_MASTER][i]));
}

static void follow(const Variant *variant, bool formula) {
    for (int k = 0; k < CASES; k++) {
        Layout layout = layout_of(&cases[k]);
        double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
        make_inputs(&layout, variant->dtype, in);
        make_outputs(&layout, got);
        model(&layout, units_of(variant), in, want, bound);
        if (!formula) rig_run_once(&specification, run, &layout, in, want);
        rig_run(variant, run, &layout, in, got);
        /* The state's unused elements stay as they are. */
        for (int i = ADAMW_SKIPPED + 1; i < ADAMW_STATE_SIZE; i++) got[OUT_STATE][i] = want[OUT_STATE][i] = 0;
        compare(&layout, variant, got, want, bound);
    }
}

static void specification_follows_the_formula(void **state) {
    (void)state;
    follow(&specification, true);
}

static void form_follows_the_specification(void **state) {
    follow(test_variant(state, OP_ADAMW), false);
}

/* A gradient or loss that is not finite changes nothing, and is reported. */
static void nonfinite_step_is_skipped(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    const double bad[3] = {NAN, INFINITY, -INFINITY};
    const int where[4] = {0, 70, 1050, -1}; // gradient elements, of three parameters; the loss
    const Case c = {3, {64, 1000, 9}, 1, 1, 5, 1, 0.1};
    Layout layout = layout_of(&c);
    for (int k = 0; k < 12; k++) {
        double *in[INPUTS], *got[OUTPUTS];
        make_inputs(&layout, variant->dtype, in);
        make_outputs(&layout, got);
        for (int64_t i = 0; i < layout.elements; i++) in[WEIGHT][i] = rounded(variant->dtype, in[WEIGHT][i]);
        if (where[k / 3] >= 0)
            in[GRADIENT][where[k / 3]] = bad[k % 3];
        else
            in[LOSS][0] = bad[k % 3];
        rig_run(variant, run, &layout, in, got);
        assert_true(got[OUT_STATE][ADAMW_SKIPPED] == 1);
        assert_true(got[OUT_STATE][ADAMW_UPDATES] == c.updates);
        expect_equal(got[OUT_WEIGHT], in[WEIGHT], layout.elements, "weight of a skipped step");
        expect_equal(got[OUT_MASTER], in[WEIGHT], layout.elements, "master of a skipped step");
        expect_equal(got[OUT_M], in[M], layout.elements, "m of a skipped step");
        expect_equal(got[OUT_V], in[V], layout.elements, "v of a skipped step");
    }
}

/* Several steps, one after another: the update count and the moments are carried on. */
static void steps_follow_one_another(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    const Case c = {2, {130, 7}, 1, 1, 0, 1, 0.1};
    Layout layout = layout_of(&c);
    double *in[INPUTS], *got[OUTPUTS], *want[OUTPUTS], *bound[OUTPUTS];
    make_inputs(&layout, variant->dtype, in);
    make_outputs(&layout, got);
    for (int step = 0; step < 5; step++) {
        Case now = c;
        now.updates = step;
        Layout same = layout;
        same.c = &now;
        model(&same, units_of(variant), in, want, bound);
        rig_run(variant, run, &same, in, got);
        for (int i = ADAMW_SKIPPED + 1; i < ADAMW_STATE_SIZE; i++) got[OUT_STATE][i] = 0;
        compare(&same, variant, got, want, bound);
        in[WEIGHT] = got[OUT_MASTER];
        in[M] = got[OUT_M];
        in[V] = got[OUT_V];
        in[STATE] = got[OUT_STATE];
        make_outputs(&layout, got);
    }
}

static const Case large = {4, {2048 + 5, 3 * ADAMW_BLOCK, 77, 1000}, 0xa, 1, 8, 1, 0.1};

/* The three steps may be separate calls, and each may be done range by range. */
static void ranges_are_the_whole(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    Layout whole = layout_of(&large);
    double *in[INPUTS], *want[OUTPUTS], *exact[OUTPUTS], *bound[OUTPUTS], *got[OUTPUTS];
    make_inputs(&whole, variant->dtype, in);
    make_outputs(&whole, want);
    model(&whole, units_of(variant), in, exact, bound);
    rig_run(variant, run, &whole, in, want);
    const int64_t end = whole.elements;
    const Layout apart[] = {{.ranges = 1, .ends = {end}},
                            {.ranges = 3, .ends = {ADAMW_BLOCK, 3 * ADAMW_BLOCK, end}},
                            {.ranges = 4, .ends = {64, ADAMW_WORD + 64, 2 * ADAMW_BLOCK - 64, end}}};
    for (int k = 0; k < 3; k++) {
        Layout layout = apart[k];
        layout.c = whole.c;
        layout.elements = whole.elements;
        memcpy(layout.parameters, whole.parameters, sizeof layout.parameters);
        make_outputs(&layout, got);
        rig_run(variant, run, &layout, in, got);
        /* If a block is divided, its parts are added in fp64, which may change the norm's last bit. */
        for (int o = 0; o < OUTPUTS && k < 2; o++)
            expect_equal(got[o], want[o], count_of(&layout, o), "an output of ranges");
        for (int i = ADAMW_PREPARED; i < ADAMW_STATE_SIZE; i++) got[OUT_STATE][i] = 0;
        compare(&layout, variant, got, exact, bound);
    }
}

/* A bf16 moment is the fp32 moment, rounded by its own 16 random bits. The rounding errors, in units of the
 * largest possible one, are added to `errors`. */
static void expect_rounded(const Layout *layout, const double *got, const double *wide, bool second,
                           double *errors) {
    const uint32_t updates = (uint32_t)layout->c->updates + 1;
    for (int64_t i = 0; i < layout->elements; i++) {
        const RandomBlock random = random_philox(adamw_counter(i / 4, updates), 0, 0);
        const uint32_t word = random.word[i % 4], half = second ? word >> 16 : word & 0xFFFF;
        const double want = (double)bfloat16_to_float(bfloat16_stochastic((float)wide[i], half));
        int exponent;
        if (got[i] != want) fail_msg("element %d: %.9g, not %.9g, of %.9g", (int)i, got[i], want, wide[i]);
        frexp(wide[i], &exponent);
        *errors += (fabs(got[i]) - fabs(wide[i])) / ldexp(1, exponent - 8);
    }
}

/* The weights are not affected: the update uses the moments before they are rounded. */
static void narrow_moments_are_rounded(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    Layout wide = layout_of(&large), narrow = wide;
    double *in[INPUTS], *want[OUTPUTS], *got[OUTPUTS], errors = 0;
    narrow.narrow = true;
    make_inputs(&wide, variant->dtype, in);
    for (int64_t i = 0; i < wide.elements; i++)
        in[M][i] = rounded(BF16, in[M][i]), in[V][i] = rounded(BF16, in[V][i]);
    make_outputs(&wide, want);
    make_outputs(&wide, got);
    rig_run(variant, run, &wide, in, want);
    rig_run(variant, run, &narrow, in, got);
    for (int o = OUT_WEIGHT; o <= OUT_MASTER; o++) expect_equal(got[o], want[o], wide.elements, "weights");
    expect_rounded(&wide, got[OUT_M], want[OUT_M], false, &errors);
    expect_rounded(&wide, got[OUT_V], want[OUT_V], true, &errors);
    /* Each error's variance is at most 1/4; five standard deviations of their sum. */
    assert_true(fabs(errors) < 5 * sqrt((double)(2 * wide.elements) / 4));
    Layout parts = narrow;
    parts.ranges = 3;
    parts.ends[0] = ADAMW_BLOCK, parts.ends[1] = 3 * ADAMW_BLOCK, parts.ends[2] = wide.elements;
    make_outputs(&wide, want);
    rig_run(variant, run, &parts, in, want);
    for (int o = OUT_M; o <= OUT_V; o++) expect_equal(got[o], want[o], wide.elements, "moments of ranges");
}

/* The same bits on any number of threads. */
static void threads_change_nothing(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    Layout layout = layout_of(&large);
    Device *device = test_device(variant->backend);
    double *in[INPUTS], *want[OUTPUTS], *got[OUTPUTS];
    const int threads = device->threads;
    make_inputs(&layout, variant->dtype, in);
    make_outputs(&layout, want);
    rig_run(variant, run, &layout, in, want);
    for (int count = 1; count <= 5; count += 2) {
        device->threads = count;
        make_outputs(&layout, got);
        rig_run(variant, run, &layout, in, got);
        for (int o = 0; o < OUTPUTS; o++)
            expect_equal(got[o], want[o], count_of(&layout, o), "an output on another number of threads");
    }
    device->threads = threads;
}

static void wrong_contracts_are_refused(void **state) {
    (void)state;
    Ctx ctx = {.dtype = F32, .measuring = true};
    const AdamwParameter two[2] = {{0, 60, true}, {64, 30, false}},
                         overlapping[2] = {{0, 60, true}, {32, 9, true}};
    Tensor flat = tensor_view(NULL, F32, shape1(128)), one = tensor_view(NULL, F32, shape1(1));
    const Adamw right = {.steps = ADAMW_WHOLE,
                         .weight = flat,
                         .gradient = flat,
                         .m = flat,
                         .v = flat,
                         .decays = tensor_view(NULL, I32, shape1(1)),
                         .squares = tensor_view(NULL, F64, shape1(1)),
                         .loss = one,
                         .state = tensor_view(NULL, F32, shape1(ADAMW_STATE_SIZE)),
                         .count = 2,
                         .parameters = two};
    enum { WRONG = 8 };
    Adamw wrong[WRONG] = {right, right, right, right, right, right, right, right};
    wrong[0].master = flat;
    wrong[1].parameters = overlapping;
    wrong[2].decays = (Tensor){0};
    wrong[3].m = one;
    wrong[4].steps = 0;
    wrong[5].first = 32;
    wrong[6].first = ADAMW_WORD; // past the marks
    wrong[7].squares = tensor_view(NULL, F64, shape1(2));
    for (int i = 0; i < WRONG; i++) {
        Status status = adamw_update(&ctx, &wrong[i]);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(specification_follows_the_formula),
                                       ONCE(wrong_contracts_are_refused),
                                       ON_EACH_VARIANT(form_follows_the_specification),
                                       ON_EACH_VARIANT(nonfinite_step_is_skipped),
                                       ON_EACH_VARIANT(steps_follow_one_another),
                                       ON_EACH_VARIANT(ranges_are_the_whole),
                                       ON_EACH_VARIANT(narrow_moments_are_rounded),
                                       ON_VARIANT(threads_change_nothing, 0, "cpu naive fp32"),
                                       ON_VARIANT(threads_change_nothing, 1, "cpu fused fp32")};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
