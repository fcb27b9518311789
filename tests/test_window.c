/* Which steps a profile records. */
#include "profile/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* One letter per step, from step 1: . outside, w ready, R recorded, t timed. */
static void expect(const char *text, const char *uses) {
    Window w;
    assert_null(window_parse(text, &w));
    for (int64_t step = 1; uses[step - 1]; step++) {
        int64_t segment;
        assert_int_equal(".wRt"[window_use(&w, step, &segment)], uses[step - 1]);
    }
}

static void test_cycles(void **state) {
    (void)state;
    expect("3,0,2,4,1", "...wwRRRRtttt...");
    expect("1,2,0,2,2", "...RRttRRtt..");
    expect("0,1,1,2,3", ".wRRtwRRtwRRtt.");
    expect("0,0,0,1,3", "RRRt.");
}

/* --skip-benchmark: nothing is timed with tracing off. */
static void test_untimed(void **state) {
    (void)state;
    Window w;
    int64_t segment;
    assert_null(window_parse("1,0,1,2,2", &w));
    w.untimed = true;
    for (int64_t step = 1; step <= 9; step++)
        assert_int_not_equal(window_use(&w, step, &segment), STEP_TIMED);
    assert_int_equal(window_last(&w), window_last_recorded(&w));
}

static void test_ranges(void **state) {
    (void)state;
    expect("[3,5)", ".wRRtt...");
    expect("[1,2),[6,7)", "Rt..wRt..");
    expect("[1,3),[3,4)", "RRRt.");
    expect("[2,4),[5,6)", "wRRwRt.");
}

static void test_segments(void **state) {
    (void)state;
    Window w;
    int64_t segment;
    assert_null(window_parse("[3,5),[9,12)", &w));
    assert_false(w.from_start);
    assert_int_equal(window_last_recorded(&w), 11);
    assert_int_equal(window_last(&w), 14);
    (void)window_use(&w, 1, &segment);
    assert_int_equal(segment, -1);
    (void)window_use(&w, 7, &segment);
    assert_int_equal(segment, 0);
    (void)window_use(&w, 100, &segment);
    assert_int_equal(segment, 1);
}

static void test_malformed(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "1",
                                        "1,2,3,4",
                                        "1,2,3,0,1",
                                        "1,2,3,4,0",
                                        "a,0,0,1,1",
                                        "1,0,0,1,1,",
                                        "1,0,0,1,1001",
                                        "99999999999,0,0,1,1",
                                        "-1,0,0,1,1",
                                        "[",
                                        "[1,2]",
                                        "[0,2)",
                                        "[2,2)",
                                        "[1,3),[2,4)",
                                        "[1,2)[3,4)",
                                        "[1,2),",
                                        "[1,2) "};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Window w;
        Status status = window_parse(texts[i], &w);
        assert_non_null(status);
        assert_int_equal(status_code(status), ERROR_USAGE);
        assert_int_equal(w.count, 0);
        status_free(status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cycles), cmocka_unit_test(test_untimed),
                                       cmocka_unit_test(test_ranges), cmocka_unit_test(test_segments),
                                       cmocka_unit_test(test_malformed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
