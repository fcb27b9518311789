/* Tests of how runs are compared: their tests' probabilities by tables, and the rates of false alarms, of found
 * changes and of true intervals in simulated comparisons. */
#include "base/random.h"
#include "base/stats.h"
#include "tests/support/expect.h"

#include <math.h>

/* Student's t: 95% with 8 degrees of freedom are within 2.306, 99% with 4 within 4.604. */
static void chance_follows_students_t(void **state) {
    (void)state;
    const double a[] = {1, exp(0.02)}, b[] = {exp(0.1), exp(0.12)}; // error 0.01414, t 7.0711 of 2 degrees
    const RunsRatio sure = runs_ratio(a, 2, b, 2);
    assert_true(fabs(log(sure.ratio) - 0.1) < 1e-12);
    assert_true(fabs(sure.chance - 0.019420) < 1e-5);
    assert_true(fabs(log(sure.high / sure.ratio) - 4.302653 * sqrt(2) * 0.01) < 1e-6);
    const double c[] = {1, 2, 3}, d[] = {1, 2, 3};
    assert_true(fabs(runs_ratio(c, 3, d, 3).chance - 1) < 1e-12);
    assert_true(isinf(runs_ratio(a, 1, b, 2).high) && runs_ratio(a, 1, b, 2).chance == 1);
}

/* Mann and Whitney's table: for 5 and 5 runs U is 0 in one of 252 orders and at most 2 in four, so the
 * interval leaves out two ratios on either side. 3 runs a side are too few for an interval. */
static void chance_follows_the_ranks(void **state) {
    (void)state;
    /* t: Yuen's 3.54 of 4 degrees, Student's 1.71 of 8 */
    const double wide[] = {1, 2, 4, 8, 16}, above[] = {17, 34, 68, 136, 1e9};
    assert_true(fabs(runs_ratio(wide, 5, above, 5).chance - 2.0 / 252) < 1e-12);
    const double a[] = {10, 10.1, 10.2, 10.3, 10.4}, b[] = {11, 11.11, 11.22, 11.33, 16};
    const RunsRatio sure = runs_ratio(a, 5, b, 5);
    assert_true(sure.low > 1.05 && sure.high < 1.6 && fabs(sure.ratio - 1.1) < 0.02);
    const double same[] = {10.05, 10.15, 10.25, 10.35, 10.45};
    const RunsRatio none = runs_ratio(a, 5, same, 5);
    assert_true(none.chance > 0.3 && none.low < 1 && none.high > 1);
    const RunsRatio few = runs_ratio(a, 3, b, 3);
    assert_true(fabs(few.ratio - 1.1) < 1e-9 && few.chance < 2.0 / 20);
    double many[2][64]; // as many runs as diff accepts
    for (int i = 0; i < 64; i++) many[0][i] = 10 + 0.01 * i, many[1][i] = 10.001 + 0.01 * i;
    const RunsRatio most = runs_ratio(many[0], 64, many[1], 64);
    assert_true(most.low < 1.0001 && most.high > 1.0001 && most.chance > 0.5 && most.chance <= 1);
}

/* Yuen's t of exp(0, 1, 2, 3, 40) and exp(6, 7, 8, 9, 10): the means of the middle three differ by 6, and the
 * Winsorized squares of a side sum to 4, so t is 6 / sqrt(2 * 4 / 6) = 5.196 of 4 degrees. */
static void a_slow_process_hides_nothing(void **state) {
    (void)state;
    double a[5], b[5];
    for (int i = 0; i < 5; i++) a[i] = exp(i < 4 ? i : 40), b[i] = exp(i + 6);
    assert_true(fabs(runs_ratio(a, 5, b, 5).chance - 0.0065334) < 1e-6);
    const double before[] = {10, 10.1, 10.2, 10.3, 16}; // ranks alone: 0.22, Student's t: 0.9
    const double after[] = {11, 11.1, 11.2, 11.3, 11.4};
    assert_true(runs_ratio(before, 5, after, 5).chance < 0.001);
}

enum { RUNS = 5, TRIALS = 4000 };

/* The time of run `index` with a noise of 1.5%; one process in 15 takes 1.47 times as long. */
static double simulated(uint64_t index) {
    const double noise = 0.015 * random_normal(1, 0, index);
    return exp(noise) * (random_uniform(2, 0, index) < 1.0 / 15 ? 1.47 : 1);
}

/* Of comparisons of five runs a side that differ by `factor`: the share that diff would call different, and the share
 * whose interval holds the factor. */
static void trials(double factor, double *different, double *held) {
    *different = *held = 0;
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        double sides[2][RUNS];
        for (uint64_t i = 0; i < 2 * RUNS; i++)
            sides[i % 2][i / 2] = simulated(trial * 2 * RUNS + i) * (i % 2 ? factor : 1);
        const RunsRatio r = runs_ratio(sides[0], RUNS, sides[1], RUNS);
        *different += (r.chance < 0.008 && fabs(r.ratio - 1) > 0.01) / (double)TRIALS;
        *held += (r.low <= factor && factor <= r.high) / (double)TRIALS;
    }
}

/* The rates that are wanted: at most 2% false alarms, at least 90% of changes by 10% found, and true
 * intervals in 93 to 97%. */
static void simulated_comparisons_are_judged_right(void **state) {
    (void)state;
    double alarms, found, held;
    trials(1, &alarms, &held);
    if (!(alarms <= 0.02 && held >= 0.93 && held <= 0.97)) fail_msg("alarms %g, intervals %g", alarms, held);
    trials(1.1, &found, &held);
    if (!(found >= 0.9 && held >= 0.93 && held <= 0.97)) fail_msg("found %g, intervals %g", found, held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chance_follows_students_t),
        cmocka_unit_test(chance_follows_the_ranks),
        cmocka_unit_test(a_slow_process_hides_nothing),
        cmocka_unit_test(simulated_comparisons_are_judged_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
