/* The audit of profile/profile.h: each check finds its fault, in handmade profiles. */
#include "profile/profile.h"
#include "profile/fold.h"
#include "tests/support/expect.h"
#include "tests/support/profile.h"

#include <math.h>
#include <string.h>

/* The finding with this name in the trace's only audit. */
static const TraceFinding *finding(const Trace *t, const char *name) {
    for (int64_t i = 0; i < t->finding_count; i++)
        if (strcmp(t->findings[i].name, name) == 0) return &t->findings[i];
    fail_msg("there is no finding \"%s\"", name);
    return NULL;
}

/* Introduces one fault into a valid profile: only the check of this name fails. */
typedef struct {
    const char *name;
    void (*spoil)(Trace *trace, Figures *figures);
} Spoiled;

static void spoil_order(Trace *t, Figures *f) {
    (void)t;
    f->rows[2].low = 2 * f->rows[2].high;
}

static void spoil_self(Trace *t, Figures *f) {
    (void)f;
    t->events[1].self -= 5;
}

static void spoil_phases(Trace *t, Figures *f) {
    (void)t;
    f->phases[PHASE_FORWARD].ns *= 1.2;
}

static void spoil_coverage(Trace *t, Figures *f) {
    (void)t;
    f->covered *= 0.97;
}

static void spoil_launches(Trace *t, Figures *f) {
    (void)f;
    t->run.launches++;
}

static void spoil_dropped(Trace *t, Figures *f) {
    (void)f;
    t->run.dropped = 3;
}

static void spoil_finite(Trace *t, Figures *f) {
    (void)f;
    t->run.reader_ms[1] = NAN;
}

static void spoil_limits(Trace *t, Figures *f) {
    (void)f;
    t->run.sheet.flops = 50e12;
}

/* A rate that memory and the data sheet allow, but not the cache that holds the bytes. */
static void spoil_cache(Trace *t, Figures *f) {
    (void)f;
    t->run.sheet = (Peaks){0};
    t->run.measured.flops = t->run.measured.bandwidth = 1e18;
    t->run.measured.caches[CACHE_L3] = (Roof){.bytes = 1e9, .most = 1e9};
}

static void spoil_overhead(Trace *t, Figures *f) {
    (void)t;
    f->overhead = 0.11;
    f->overhead_noise = false;
}

static void audit_finds_each_fault(void **state) {
    (void)state;
    static const Spoiled faults[] = {
        {"minimum <= average <= maximum", spoil_order},
        {"self times sum to the total", spoil_self},
        {"phases sum to the step within 1%", spoil_phases},
        {"at least 98% of the step is attributed", spoil_coverage},
        {"records = launches", spoil_launches},
        {"no record dropped", spoil_dropped},
        {"every figure is finite", spoil_finite},
        {"no operation above the machine's limit", spoil_limits},
        {"no operation above the machine's limit", spoil_cache},
        {"tracing costs under 10% of the step", spoil_overhead},
    };
    for (int i = -1; i < (int)(sizeof faults / sizeof *faults); i++) {
        Trace *t = sample_trace(FORM_NAIVE, 1000);
        Figures f;
        expect_ok(figures_make(t, &f));
        if (i >= 0) faults[i].spoil(t, &f);
        audit_profile(t, &f);
        assert_int_equal(audit_failures(t), i >= 0);
        if (i >= 0) assert_false(finding(t, faults[i].name)->passed);
        figures_free(&f);
        trace_close(t);
    }
}

/* If the tracing overhead may be noise, it is unknown: neither passed nor failed. */
static void overhead_may_be_noise(void **state) {
    (void)state;
    const double timed[] = {10, 14, 9, 15, 12}, traced[2][SAMPLE_STEPS] = {{10, 14, 17}, {100, 101, 102}};
    for (int i = 0; i < 2; i++) {
        Trace *t = sample_trace(FORM_NAIVE, 1000);
        Figures f;
        trace_set_times(t, timed, NULL, 5, traced[i], SAMPLE_STEPS);
        expect_ok(figures_make(t, &f));
        audit_profile(t, &f);
        const TraceFinding *last = &t->findings[t->finding_count - 1];
        bool failed = strcmp(last->name, "tracing costs under 10% of the step") == 0;
        assert_true(f.overhead > 0.1 && f.overhead_noise == (i == 0) && failed == (i == 1));
        assert_true(last->passed == (i == 0));
        figures_free(&f);
        trace_close(t);
    }
}

/* On shared cores no time is judged: neither check of one is among the findings. The others are. */
static void shared_cores_judge_no_time(void **state) {
    (void)state;
    static void (*const spoil[])(Trace *, Figures *) = {spoil_limits, spoil_overhead, spoil_self};
    for (int i = 0; i < 3; i++) {
        Trace *t = sample_trace(FORM_NAIVE, 1000);
        Figures f;
        expect_ok(figures_make(t, &f));
        t->run.cores_waited = 0.2;
        spoil[i](t, &f);
        audit_profile(t, &f);
        assert_int_equal(audit_failures(t), i == 2);
        for (int64_t k = 0; k < t->finding_count; k++) {
            assert_string_not_equal(t->findings[k].name, CHECK_LIMITS);
            assert_string_not_equal(t->findings[k].name, CHECK_OVERHEAD);
        }
        figures_free(&f);
        trace_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(audit_finds_each_fault),
        cmocka_unit_test(overhead_may_be_noise),
        cmocka_unit_test(shared_cores_judge_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
