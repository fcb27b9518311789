/* adamw step by step: what test_adamw.c does not cover: single steps, and how the flat space is divided. */
#include "tests/support/compare.h"

#include "optim/adamw.h"

#include <math.h>

static void run_alone(Rig *rig, const void *what, double *const *in, double *const *out) {
    (void)what;
    Dtype wide = wide_dtype(&rig->ctx);
    Shape flat = shape1(ADAMW_BLOCK);
    Adamw a = {.steps = ADAMW_SUM,
               .first = ADAMW_BLOCK / 2,
               .gradient = rig_put(rig, "gradient", wide, flat, in[0]),
               .squares = rig_blank(rig, "squares", F64, shape1(2)),
               .state = rig_put(rig, "state", wide, shape1(ADAMW_STATE_SIZE), in[1])};
    expect_ok(adamw_update(&rig->ctx, &a));
    rig_get(rig, a.squares, out[0]);
    rig_get(rig, a.state, out[1]);
    Adamw clip = {.steps = ADAMW_CLIP,
                  .squares = rig_put(rig, "all squares", F64, shape1(3), in[2]),
                  .loss = rig_put(rig, "loss", wide, shape1(1), in[3]),
                  .state = a.state,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .clip = 10};
    expect_ok(adamw_update(&rig->ctx, &clip));
    rig_get(rig, clip.state, out[2]);
}

/* ADAMW_SUM does not change the state; the factor is computed from all sums, including those of other
 * calls. */
static void steps_stand_alone(void **state) {
    const Variant *variant = test_variant(state, OP_ADAMW);
    const double others[4] = {400, 225, 0, INFINITY}, losses[4] = {1, 1, NAN, 1};
    for (int k = 0; k < 4; k++) {
        double *in[4] = {zeros(ADAMW_BLOCK), zeros(ADAMW_STATE_SIZE), zeros(3), zeros(1)};
        double *out[3] = {zeros(2), zeros(ADAMW_STATE_SIZE), zeros(ADAMW_STATE_SIZE)};
        for (int i = 0; i < ADAMW_BLOCK; i++) in[0][i] = i < ADAMW_BLOCK / 2 ? 0.5 : 2;
        in[1][ADAMW_UPDATES] = 6;
        in[2][1] = others[k];
        in[2][2] = k ? 400 : 0;
        in[3][0] = losses[k];
        rig_run(variant, run_alone, NULL, in, out);
        assert_true(out[0][0] == ADAMW_BLOCK / 2 * 0.25 && out[0][1] == ADAMW_BLOCK / 2 * 4.0);
        expect_equal(out[1], in[1], ADAMW_STATE_SIZE, "the state after the sums");
        assert_true(out[2][ADAMW_SKIPPED] == (k > 1));
        assert_true(out[2][ADAMW_UPDATES] == (k > 1 ? 6 : 7));
        if (k < 2) assert_true(out[2][ADAMW_NORM] == (k ? 25 : 20));
        double factor = k > 1 ? 0 : 10 / (out[2][ADAMW_NORM] + 1e-6);
        assert_true(fabs(out[2][ADAMW_FACTOR] - factor) <= 4 * 0x1p-24 * factor);
    }
}

/* Blocks are cut from the flat space, wherever the range begins. */
static void blocks_are_the_flat_spaces(void **state) {
    (void)state;
    const int64_t B = ADAMW_BLOCK;
    assert_true(adamw_blocks(0, B) == 1 && adamw_blocks(0, B + 64) == 2 && adamw_blocks(B - 64, 128) == 2);
    assert_true(adamw_blocks(2 * B, 3 * B) == 3 && adamw_blocks(0, 0) == 0);
    for (int64_t first = 0; first <= 2 * B; first += B / 4) {
        const Adamw a = {.first = first, .gradient = tensor_view(NULL, F32, shape1(5 * B / 2))};
        int64_t blocks = adamw_blocks(first, 5 * B / 2), end = 0;
        for (int64_t b = 0; b < blocks; b++) {
            AdamwParameter block = adamw_block(&a, b);
            assert_true(block.first == end && block.count > 0);
            end = block.first + block.count;
            assert_true(b == blocks - 1 || (first + end) % B == 0);
        }
        assert_true(end == 5 * B / 2);
    }
}

/* A range has the part of each parameter within it, with the parameter's mark. */
static void parameters_are_cut_by_the_range(void **state) {
    (void)state;
    const AdamwParameter p[4] = {{0, 100, true}, {128, 500, false}, {640, 64, true}, {704, 1, false}};
    const Adamw a = {
        .first = 64, .gradient = tensor_view(NULL, F32, shape1(192)), .count = 4, .parameters = p};
    const AdamwParameter want[4] = {{0, 36, true}, {64, 128, false}, {0, 0, true}, {0, 0, false}};
    for (int i = 0; i < 4; i++) {
        AdamwParameter part = adamw_part(&a, i);
        assert_true(part.count == want[i].count && part.decays == want[i].decays);
        if (part.count) assert_true(part.first == want[i].first);
    }
}

static void marks_are_the_parameters(void **state) {
    (void)state;
    enum { COUNT = 3, WORDS = 3 };
    const AdamwParameter p[COUNT] = {
        {64, ADAMW_WORD, true}, {ADAMW_WORD + 64, 65, false}, {2 * ADAMW_WORD, 1, true}};
    int32_t words[WORDS] = {0};
    assert_true(adamw_words(2 * ADAMW_WORD + 1) == WORDS && adamw_words(2 * ADAMW_WORD) == 2);
    adamw_mark(p, COUNT, words);
    for (int64_t unit = 0; unit < WORDS * 32; unit++)
        assert_true(adamw_decays(words, unit) == ((unit >= 1 && unit < 33) || unit == 64));
}

int main(void) {
    const struct CMUnitTest tests[] = {ONCE(blocks_are_the_flat_spaces),
                                       ONCE(parameters_are_cut_by_the_range), ONCE(marks_are_the_parameters),
                                       ON_EACH_VARIANT(steps_stand_alone)};
    return cmocka_run_group_tests(tests, NULL, devices_end);
}
