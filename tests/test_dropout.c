/* dropout: every form draws the specification's masks, bit for bit; the share of kept elements; masks differ
 * by seed, draw, instance and row; attention with dropout against the specification. */
#include "kernels/dropout/dropout.h"
#include "kernels/dropout/mask.h"
#include "tests/support/attention.h"

#include <math.h>

typedef struct {
    int64_t rows, width;
    double rate;
    uint64_t seed;
    uint32_t instance;
    int32_t draw;
    bool in_place;
} Case;

static const Case cases[] = {
    {1, 1, 0.5, 1, 0, 0, false},      {3, 7, 0.1, 2, 5, 1, false},   {17, 64, 0.9, UINT64_MAX, 7, -1, true},
    {65, 33, 0.25, 3, 1, 1000, true}, {2, 130, 0.5, 4, 2, 3, false}, {129, 768, 0.1, 5, 99, 12, true},
};
enum { CASES = sizeof cases / sizeof *cases, OUT_Y = 0, OUT_DX, OUTPUTS };

static void run(Rig *rig, const void *what, double *const *in, double *const *out) {
    const Case *c = what;
    const Dtype dtype = rig->ctx.dtype;
    const Shape shape = shape2(c->rows, c->width);
    Tensor x = rig_put(rig, "x", dtype, shape, in[0]), dy = rig_put(rig, "dy", dtype, shape, in[1]);
    const DropoutForward f = {.x = x,
                              .y = c->in_place ? x : rig_blank(rig, "y", dtype, shape),
                              .dropout = {.rate = c->rate,
                                          .seed = c->seed,
                                          .instance = c->instance,
                                          .draw = rig_put_ints(rig, "draw", shape1(1), &c->draw)}};
    const DropoutBackward b = {
        .forward = &f, .dy = dy, .dx = c->in_place ? dy : rig_blank(rig, "dx", dtype, shape)};
    expect_ok(dropout_forward(&rig->ctx, &f));
    expect_ok(dropout_backward(&rig->ctx, &b));
    rig_get(rig, f.y, out[OUT_Y]);
    rig_get(rig, b.dx, out[OUT_DX]);
}

/* Kept elements are the same in both passes, times the factor; the others are exactly 0. */
static void masks_are_the_specifications(void **state) {
    const Variant *variant = state && *state ? test_variant(state, OP_DROPOUT) : &specification;
    for (int i = 0; i < CASES; i++) {
        const Case *c = &cases[i];
        int64_t count = c->rows * c->width;
        double *in[2] = {normals(count, 1, variant->dtype), normals(count, 1, variant->dtype)};
        double *got[OUTPUTS] = {zeros(count), zeros(count)}, *want[OUTPUTS] = {zeros(count), zeros(count)};
        double *bound = zeros(count);
        rig_run(&specification, run, c, in, want);
        rig_run(variant, run, c, in, got);
        for (int o = 0; o < OUTPUTS; o++) {
            for (int64_t k = 0; k < count; k++) {
                assert_true(want[o][k] == 0 || fabs(want[o][k] - in[o][k] / (1 - c->rate)) < 1e-12);
                bound[k] = 2 * units_of(variant).storage * fabs(want[o][k]);
            }
            expect_close(got[o], want[o], bound, count, "%s: dropout %d, output %d", variant->name, i, o);
        }
    }
}

static double kept_share(const Case *c) {
    const DropoutMask mask = {(uint32_t)c->seed, (uint32_t)(c->seed >> 32),    c->instance,
                              (uint32_t)c->draw, (uint32_t)(c->rate * 0x1p32), 1};
    int64_t kept = 0;
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t column = 0; column < c->width; column++)
            kept += dropout_words(&mask, row, column / 4).word[column % 4] >= mask.least;
    return (double)kept / (double)(c->rows * c->width);
}

/* Within five standard deviations of the binomial mean. */
static void the_share_is_the_rates(void **state) {
    (void)state;
    for (int i = 1; i < 10; i++) {
        const Case c = {300, 1000, 0.1 * i, 11, 3, 4, false};
        double off = kept_share(&c) - (1 - c.rate), deviation = sqrt(c.rate * (1 - c.rate) / 300e3);
        assert_true(fabs(off) < 5 * deviation);
    }
}

static void every_key_has_its_own_mask(void **state) {
    (void)state;
    const Case base = {40, 100, 0.5, 1, 1, 1, false},
               others[] = {{40, 100, 0.5, 2, 1, 1, false},
                           {40, 100, 0.5, 1, 2, 1, false},
                           {40, 100, 0.5, 1, 1, 2, false},
                           {40, 100, 0.5, UINT64_C(1) << 32 | 1, 1, 1, false}};
    double *ones = zeros(4000), *none = zeros(4000), *first = zeros(4000), *second = zeros(4000);
    for (int i = 0; i < 4000; i++) ones[i] = 1;
    double *in[2] = {ones, none}, *out[OUTPUTS] = {first, zeros(4000)},
           *out2[OUTPUTS] = {second, zeros(4000)};
    rig_run(&specification, run, &base, in, out);
    for (int k = 0; k < 4; k++) {
        int same = 0;
        rig_run(&specification, run, &others[k], in, out2);
        for (int i = 0; i < 4000; i++) same += first[i] == second[i];
        assert_true(fabs(same - 2000.0) < 5 * sqrt(1000.0)); // independent coins agree half the time
    }
}

/* Every term of y and of the gradients is at most factor^2 times its value without dropout, and so are the
 * bounds. */
static void check_attention(const Variant *variant, const AttentionCase *c) {
    AttentionBatch batch;
    double *in[ATTENTION_INPUTS], *got[ATTENTION_OUTPUTS], *want[ATTENTION_OUTPUTS],
        *bound[ATTENTION_OUTPUTS];
    attention_inputs(c, variant->dtype, 1, &batch, in);
    attention_outputs(c, got);
    attention_model(&batch, units_of(variant), in, want, bound);
    batch.dropout = 0.25;
    rig_run(&specification, attention_run, &batch, in, want);
    rig_run(variant, attention_run, &batch, in, got);
    for (int o = 0; o < ATTENTION_OUTPUTS; o++) {
        int64_t count = attention_output_count(c, o);
        for (int64_t k = 0; k < count; k++) bound[o][k] /= (1 - batch.dropout) * (1 - batch.dropout);
        expect_close(got[o], want[o], bound[o], count,
                     "%s: attention with dropout, %lld x %lld, heads of %lld, output %d", variant->name,
                     (long long)c->queries, (long long)c->keys, (long long)c->size, o);
    }
}

static void attention_drops_probabilities(void **state) {
    static const AttentionCase sizes[] = {
        {2, 17, 17, 2, 2, 8, true, false, true, 0},     {2, 65, 130, 4, 2, 64, false, true, false, 0},
        {1, 130, 130, 2, 2, 128, true, false, true, 0}, {3, 33, 70, 2, 1, 33, false, true, false, 0},
        {2, 3, 127, 2, 1, 80, true, false, false, 0},   {2, 200, 257, 3, 3, 64, false, true, false, 0},
        {1, 1, 5, 2, 2, 64, false, false, false, 0},    {1, 70, 90, 2, 1, 136, false, true, false, 0}};
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_attention(variant, &sizes[i]);
}

/* Enough tiles to fill a GPU, so that the tensor-core kernels process twice as many rows at once. */
static void attention_drops_in_large_tiles(void **state) {
    static const AttentionCase sizes[] = {{12, 130, 130, 18, 18, 8, true, false, true, 0},
                                          {12, 131, 140, 18, 18, 40, false, true, false, 0},
                                          {12, 129, 150, 18, 9, 72, true, false, false, 0}};
    const Variant *variant = test_variant(state, OP_ATTENTION);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_attention(variant, &sizes[i]);
        test_end(state); // the arrays are large
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"masks_are_the_specifications, cpu naive fp64", masks_are_the_specifications, NULL, test_end, NULL},
        ONCE(the_share_is_the_rates),
        ONCE(every_key_has_its_own_mask),
        ON_EACH_VARIANT(masks_are_the_specifications),
        ON_EACH_VARIANT(attention_drops_probabilities),
        ON_VARIANT(attention_drops_in_large_tiles, 7, "cuda fused bf16")};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
