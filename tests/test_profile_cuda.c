/* Real steps traced on a GPU: kernels, graphs, and a second CUPTI subscriber. */
#include "kernels/ctx.h"
#include "profile/cupti.h"
#include "profile/fold.h"
#include "report/torch_tables.h"
#include "tests/support/expect.h"
#include "tests/support/profile.h"
#include "tests/support/traced.h"

#include <dlfcn.h>
#include <string.h>

static Device *open_gpu(void) {
    Device *device = NULL;
    if (device_open_cuda) status_free(device_open_cuda(0, &device));
    if (!device) skip();
    return device;
}

/* From any source: every kernel is in a step and attributed, and none is missing. */
static void expect_kernels(const Trace *t) {
    int64_t kernels = 0, wanted = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        wanted += e->kind == TRACE_PRIMITIVE && e->device_count > 0;
        if (e->kind != TRACE_KERNEL) continue;
        kernels++;
        assert_true(e->parent >= 0 && e->operation && e->step >= 1 && e->step <= TRACED_STEPS);
        assert_true(e->end > e->begin);
    }
    assert_true(kernels >= wanted && wanted > TRACED_STEPS * 20);
}

static void test_activities(void **state) {
    (void)state;
    Device *device = open_gpu();
    for (int form = 0; form < FORM_COUNT; form++) {
        Trace *t = traced(device, form == FORM_FUSED ? ~FUSE_FP8 : 0, (CollectorOptions){0});
        Tables tables;
        print_message("%s %s\n", source_name(t->run.source), t->run.source_note);
        expect_kernels(t);
        expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
        const Table *kernels = tables_find(&tables, "kernels");
        if (t->run.source == SOURCE_CUPTI) {
            double records = sum_of(kernels, "instances");
            assert_true(t->run.launches == (int64_t)records && records > TRACED_STEPS * 20);
            assert_int_equal(t->run.dropped, 0);
            for (int64_t row = 0; row < kernels->rows; row++) {
                assert_true(cell(kernels, row, "registers") > 0);
                assert_true(cell(kernels, row, "occupancy") > 0 && cell(kernels, row, "occupancy") <= 1);
            }
            for (int64_t i = 0; i < t->count; i++)
                if (trace_on_device(&t->events[i])) {
                    assert_true(t->events[i].launch >= 0);
                    assert_true(t->events[i].end > t->events[t->events[i].launch].begin);
                }
        }
        tables_free(&tables);
        Table all = torch_table(t, false, false); // with rows for CUDA's calls, and for kernels once more
        Table operators = torch_table_whole(t);
        expect_about(sum_of(&all, "self_cpu_ns"), steps_ns(t));
        expect_about(sum_of(&operators, "self_device_ns"), device_ns(t));
        table_free(&all);
        table_free(&operators);
        trace_close(t);
    }
    device->close(device);
}

/* Launched as a graph, every operation has the same kernels as launched one by one. */
static void test_graphs(void **state) {
    (void)state;
    Device *device = open_gpu();
    Trace *eager = traced(device, ~FUSE_FP8, (CollectorOptions){0}),
          *graphs = traced(device, ~FUSE_FP8, (CollectorOptions){.graphs = true});
    Figures expected, figures;
    int64_t launches = 0;
    print_message("%s %s\n", source_name(graphs->run.source), graphs->run.source_note);
    if (graphs->run.source != SOURCE_CUPTI) skip();
    expect_kernels(graphs);
    for (int64_t i = 0; i < graphs->count; i++)
        launches +=
            graphs->events[i].kind == TRACE_RUNTIME && strstr(graphs->events[i].name, "GraphLaunch") != NULL;
    assert_int_equal(launches, 2 * TRACED_STEPS); // gradients and update, captured in the earlier window
    assert_true(graphs->run.launches == eager->run.launches && graphs->run.dropped == 0);
    expect_ok(figures_make(eager, &expected));
    expect_ok(figures_make(graphs, &figures));
    assert_int_equal(figures.row_count, expected.row_count);
    for (int i = 0; i < expected.row_count; i++) {
        const OperationRow *e = &expected.rows[i],
                           *g = figures_find(&figures, e->call, e->operation, e->pass);
        assert_non_null(g);
        assert_true(g->launches == e->launches && g->calls == e->calls && g->ns > 0);
    }
    figures_free(&expected);
    figures_free(&figures);
    trace_close(eager);
    trace_close(graphs);
    device->close(device);
}

static void ignore_call(void *user, int domain, uint32_t id, const void *data) {
    (void)user;
    (void)domain;
    (void)id;
    (void)data;
}

/* If another tool has subscribed to CUPTI, the run continues with CUDA events and names the tool. */
static void test_second_subscriber(void **state) {
    (void)state;
    Device *device = open_gpu();
    void *library = cupti_open ? dlopen("libcupti.so", RTLD_NOW) : NULL, *planted = NULL;
    if (!library && cupti_open) library = dlopen("libcupti.so.13", RTLD_NOW);
    if (!library) {
        device->close(device);
        skip();
    }
    int (*subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *);
    int (*unsubscribe)(void *);
    *(void **)&subscribe = dlsym(library, "cuptiSubscribe");
    *(void **)&unsubscribe = dlsym(library, "cuptiUnsubscribe");
    assert_int_equal(subscribe(&planted, ignore_call, NULL), 0);
    Trace *t = traced(device, 0, (CollectorOptions){0});
    print_message("%s\n", t->run.source_note);
    assert_int_equal(t->run.source, SOURCE_EVENTS);
    assert_non_null(strstr(t->run.source_note, "another profiler already holds CUPTI"));
    expect_kernels(t);
    trace_close(t);
    assert_int_equal(unsubscribe(planted), 0);
    t = traced(device, 0, (CollectorOptions){0}); // after it has unsubscribed, CUPTI is available
    assert_int_equal(t->run.source, SOURCE_CUPTI);
    trace_close(t);
    device->close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_activities), cmocka_unit_test(test_graphs),
                                       cmocka_unit_test(test_second_subscriber)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
