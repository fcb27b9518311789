/* The profile's data model, with handmade events. */
#include "report/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int64_t add(Trace *t, TraceKind kind, const char *name, int64_t begin, int64_t end, int64_t parent) {
    TraceEvent e = trace_event(t, kind, name);
    int64_t index;
    e.begin = begin;
    e.end = end;
    e.parent = parent;
    if (trace_on_device(&e))
        e.stream = 0;
    else
        e.thread = 0;
    index = trace_add(t, &e);
    return index;
}

/* step [0, 100) > forward [5, 60) > norm [10, 40) > mean [15, 35), with kernels of 7 ns under mean and 11
 * under norm. */
static void test_times(void **state) {
    (void)state;
    Trace *t;
    t = trace_open();
    int64_t step = add(t, TRACE_STEP, "step", 0, 100, -1);
    int64_t phase = add(t, TRACE_PHASE, "forward", 5, 60, step);
    int64_t norm = add(t, TRACE_OPERATION, "norm", 10, 40, phase);
    t->events[norm].operation = "norm";
    t->events[norm].phase = PHASE_FORWARD;
    t->events[norm].category = CATEGORY_NORMALIZATION;
    t->events[norm].step = 3;
    int64_t mean = add(t, TRACE_PRIMITIVE, "mean", 15, 35, norm);
    int64_t call = add(t, TRACE_RUNTIME, "cudaLaunchKernel", 16, 20, mean);
    int64_t a = add(t, TRACE_KERNEL, "mean_kernel", 50, 57, mean);
    int64_t b = add(t, TRACE_KERNEL, "norm_kernel", 57, 68, norm);
    t->events[a].launch = call;
    assert_null(trace_finish(t));
    const TraceEvent *e = t->events;
    assert_int_equal(e[step].self, 45);
    assert_int_equal(e[phase].self, 25);
    assert_int_equal(e[norm].self, 10);
    assert_int_equal(e[mean].self, 20); // a runtime call counts as the range's own time
    assert_int_equal(e[mean].device_self, 7);
    assert_int_equal(e[norm].device_self, 11);
    assert_int_equal(e[norm].device_total, 18);
    assert_int_equal(e[step].device_total, 18);
    assert_int_equal(e[step].device_self, 0);
    assert_int_equal(e[step].device_count, 2);
    assert_string_equal(e[b].operation, "norm");
    assert_int_equal(e[b].phase, PHASE_FORWARD);
    assert_int_equal(e[b].step, 3);
    assert_int_equal(e[b].category, CATEGORY_NORMALIZATION);
    assert_int_equal(trace_above(t, a, TRACE_OPERATION), norm);
    assert_int_equal(trace_above(t, phase, TRACE_OPERATION), -1);
    trace_close(t);
}

static void test_names(void **state) {
    (void)state;
    Trace *t;
    char text[32];
    t = trace_open();
    assert_null(trace_name(t, NULL));
    const char *first = trace_name(t, "name 7");
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "name %d", i);
        assert_string_equal(trace_name(t, text), text);
    }
    assert_ptr_equal(trace_name(t, "name 7"), first);
    trace_close(t);
}

static void test_order(void **state) {
    (void)state;
    Trace *t;
    t = trace_open();
    trace_add_memory(t, (TraceMemory){20, MEMORY_SAVED, 5, -1});
    trace_add_memory(t, (TraceMemory){10, MEMORY_SCRATCH, 7, -1});
    trace_add_tensor(t, (TraceTensor){trace_name(t, "small"), MEMORY_SAVED, 5});
    trace_add_tensor(t, (TraceTensor){trace_name(t, "large"), MEMORY_SAVED, 50});
    trace_add_finding(t, "records = launches", 0, 0, "%d = %d", 2, 2);
    trace_set_times(t, (double[]){3, 4}, NULL, 2, (double[]){5}, 1);
    assert_null(trace_finish(t));
    assert_int_equal(t->memory[0].at, 10);
    assert_string_equal(t->tensors[0].name, "large");
    assert_string_equal(t->findings[0].detail, "2 = 2");
    assert_true(t->run.step_ms[1] == 4 && t->run.reader_ms[1] == 0 && t->run.traced_ms[0] == 5);
    t->run.batch = 2;
    t->run.seq = 8; // the longest
    assert_true(trace_step_tokens(&t->run, 1) == 16 && trace_traced_tokens(&t->run, 0) == 16);
    trace_set_tokens(t, (double[]){9, 6}, (double[]){10});
    assert_true(trace_step_tokens(&t->run, 1) == 6 && trace_traced_tokens(&t->run, 0) == 10);
    trace_close(t);
}

static void test_impossible(void **state) {
    (void)state;
    for (int fault = 0; fault < 3; fault++) {
        Trace *t;
        t = trace_open();
        int64_t step = add(t, TRACE_STEP, "step", 0, 100, -1);
        if (fault == 0) t->events[step].parent = 0;
        if (fault == 1) t->events[step].end = -1;
        if (fault == 2) t->events[step].launch = 0;
        Status status = trace_finish(t);
        assert_non_null(status);
        assert_int_equal(status_code(status), ERROR_INTERNAL);
        status_free(status);
        trace_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times), cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_order), cmocka_unit_test(test_impossible)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
