/* The processor's counters in reports, on any machine. */
#include "profile/counters.h"
#include "report/tables.h"
#include "tests/support/expect.h"
#include "tests/support/profile.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* A descriptor that reads like perf_event_open's: a count, and for how much of the time it was counted. */
static int planted(uint64_t count, uint64_t enabled, uint64_t running) {
    const uint64_t reading[3] = {count, enabled, running};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], reading, sizeof reading), sizeof reading);
    close(ends[1]);
    return ends[0];
}

static void threads_add_up(void **state) {
    (void)state;
    Counters c = {.threads = 2, .error = ENOENT};
    double counts[COUNTER_COUNT];
    c.descriptors[0][COUNTER_CYCLES] = planted(1000, 50, 50);
    c.descriptors[1][COUNTER_CYCLES] = planted(200, 60, 20); // a third of the time: three times as many
    c.descriptors[0][COUNTER_INSTRUCTIONS] = planted(7, 10, 10);
    c.descriptors[1][COUNTER_INSTRUCTIONS] = planted(0, 0, 0); // slept
    c.descriptors[0][COUNTER_CACHE_MISSES] = planted(5, 10, 10);
    c.descriptors[1][COUNTER_CACHE_MISSES] = -1;
    c.descriptors[0][COUNTER_BRANCH_MISSES] = planted(0, 10, 0); // never had a register
    c.descriptors[1][COUNTER_BRANCH_MISSES] = planted(9, 10, 10);
    counters_read(&c, counts);
    assert_true(counts[COUNTER_CYCLES] == 1600 && counts[COUNTER_INSTRUCTIONS] == 7);
    assert_true(counts[COUNTER_CACHE_MISSES] == -1 && counts[COUNTER_BRANCH_MISSES] == -1);
    counters_close(&c);
    assert_non_null(strstr(counters_note(&c), "virtual"));
}

/* A loop of a million additions is either counted, or the report says why not. */
static void this_machine(void **state) {
    (void)state;
    Counters c = {0};
    double counts[COUNTER_COUNT];
    counters_open(&c);
    volatile int64_t sum = 0;
    for (int64_t i = 0; i < 1000000; i++) sum = sum + i;
    counters_read(&c, counts);
    counters_close(&c);
    for (int i = 0; i < COUNTER_COUNT; i++) {
        assert_true(isfinite(counts[i]));
        if (counts[i] < 0) assert_string_not_equal(counters_note(&c), "");
    }
    if (counts[COUNTER_INSTRUCTIONS] >= 0) assert_true(counts[COUNTER_INSTRUCTIONS] >= 3e6);
    assert_true(c.threads == 0);
}

static void expect_note(Trace *trace, const double counts[COUNTER_COUNT], const char *why,
                        const char *expected) {
    char text[4096] = {0};
    Tables tables;
    FILE *file = fmemopen(text, sizeof text, "w");
    memcpy(trace->run.counters, counts, sizeof trace->run.counters);
    trace->run.counters_note = why;
    expect_ok(tables_of_trace(trace, NAMES_PLAIN, &tables));
    table_print_text(tables_find(&tables, "device"), NULL, file);
    fclose(file);
    tables_free(&tables);
    if (expected)
        assert_non_null(strstr(text, expected));
    else
        assert_null(strstr(text, "counters"));
}

static void what_is_unknown_is_not_zero(void **state) {
    (void)state;
    Trace *t = sample_trace(FORM_FUSED, 100);
    expect_note(t, (double[]){2e9, 3e9, 4e6, 5e5}, "",
                "counters of the recorded steps: 2e+09 cycles, 3e+09 instructions (1.50 in a cycle), 4e+06 "
                "cache misses, 5e+05 branch misses\n");
    expect_note(t, (double[]){2e9, 3e9, -1, 5e5}, "some reason",
                "(1.50 in a cycle), 5e+05 branch misses\nno other CPU counters: some reason");
    expect_note(t, (double[]){-1, -1, -1, -1}, "some reason", "\nno CPU counters: some reason");
    expect_note(t, (double[]){0, 0, 0, 0}, "", "0 cycles, 0 instructions, 0 cache misses");
    expect_note(t, (double[]){-1, -1, -1, -1}, "", NULL);
    trace_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_add_up), cmocka_unit_test(this_machine),
                                       cmocka_unit_test(what_is_unknown_is_not_zero)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
