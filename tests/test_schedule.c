/* Learning-rate schedules: exact values at the formulas' corners. */
#include "optim/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static double rate(ScheduleKind kind, int64_t warmup, int64_t steps, int64_t step) {
    Schedule schedule = {kind, 0.3, 0.03, warmup, steps};
    return schedule_rate(&schedule, step);
}

static void test_warmup(void **state) {
    (void)state;
    for (int kind = 0; kind < SCHEDULE_NOAM; kind++) {
        for (int64_t s = 0; s < 10; s++) assert_true(rate(kind, 10, 100, s) == 0.3 * (double)(s + 1) / 11);
        assert_true(rate(kind, 10, 100, 10) == 0.3);
        assert_true(rate(kind, 0, 100, 0) == 0.3);
        assert_true(rate(kind, 5, 5, 4) == 0.3 * 5 / 6); /* warm-up only */
    }
}

/* The paper's own numbers: width 512, 4000 steps of warm-up; step_num there is our step + 1. */
static void test_noam(void **state) {
    (void)state;
    Schedule paper = {SCHEDULE_NOAM, 1 / sqrt(512.0 * 4000), 0, 4000, 100000};
    static const int64_t steps[] = {1, 2, 3999, 4000, 4001, 16000, 100000, 200000};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        double s = (double)steps[i];
        double expected = pow(512, -0.5) * fmin(pow(s, -0.5), s * pow(4000, -1.5));
        assert_true(fabs(schedule_rate(&paper, steps[i] - 1) - expected) < 1e-15);
    }
    assert_true(rate(SCHEDULE_NOAM, 0, 10, 0) == 0.3); /* no warm-up: falls from the first step on */
    assert_true(rate(SCHEDULE_NOAM, 0, 10, 3) == 0.15);
}

static void test_ends(void **state) {
    (void)state;
    for (int kind = 0; kind < SCHEDULE_CONSTANT; kind++) {
        assert_true(rate(kind, 10, 100, 99) == 0.03);
        assert_true(rate(kind, 10, 100, 100) == 0.03);
        assert_true(rate(kind, 10, 100, 1000000) == 0.03);
        assert_true(rate(kind, 98, 100, 99) == 0.03);
        assert_true(rate(kind, 99, 100, 99) == 0.3); /* the only step after the warm-up */
        assert_true(rate(kind, 0, 1, 0) == 0.3);
        assert_true(rate(kind, 0, 10, 9) == 0.03);
    }
    assert_true(rate(SCHEDULE_CONSTANT, 10, 100, 99) == 0.3);
    assert_true(rate(SCHEDULE_CONSTANT, 0, 1, 0) == 0.3);
}

static void test_shapes(void **state) {
    (void)state;
    /* Step 60 of 20 .. 100 is the middle of the decay, step 40 its first quarter. */
    assert_true(fabs(rate(SCHEDULE_COSINE, 20, 101, 60) - 0.165) < 1e-15);
    assert_true(fabs(rate(SCHEDULE_COSINE, 20, 101, 40) - (0.165 + 0.135 * sqrt(0.5))) < 1e-15);
    assert_true(fabs(rate(SCHEDULE_LINEAR, 20, 101, 60) - 0.165) < 1e-15);
    assert_true(fabs(rate(SCHEDULE_LINEAR, 20, 101, 40) - 0.2325) < 1e-15);
    for (int64_t s = 20; s <= 80; s++) assert_true(rate(SCHEDULE_WSD, 20, 101, s) == 0.3);
    assert_true(fabs(rate(SCHEDULE_WSD, 20, 101, 85) - 0.165) < 1e-15); /* 1 - sqrt(1/4) */
    assert_true(rate(SCHEDULE_WSD, 90, 101, 90) == 0.3); /* the warm-up reaches into the last fifth */
    assert_true(fabs(rate(SCHEDULE_WSD, 90, 101, 95) - (0.03 + 0.27 * (1 - sqrt(0.5)))) < 1e-15);
    for (int kind = 0; kind < SCHEDULE_COUNT; kind++)
        for (int64_t s = 21; s < 101; s++) assert_true(rate(kind, 20, 101, s) <= rate(kind, 20, 101, s - 1));
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(schedule_name(SCHEDULE_COSINE), "cosine");
    assert_string_equal(schedule_name(SCHEDULE_CONSTANT), "constant");
    assert_string_equal(schedule_name(SCHEDULE_COUNT), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_noam), cmocka_unit_test(test_warmup),
                                       cmocka_unit_test(test_ends), cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
