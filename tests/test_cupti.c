/* Profiling with a fake CUPTI that needs no GPU (tests/planted): real steps of a small model, in which every
 * range launches a kernel with the range's name at its end. So each kernel's name says which operation it
 * must be attributed to, whether launched directly or as a node of a captured graph. */
#include "base/memory.h"
#include "run/trainer.h"
#include "profile/profile.h"
#include "profile/collect.h"
#include "profile/cupti.h"
#include "profile/fold.h"
#include "report/tables.h"
#include "tests/planted/planted.h"
#include "tests/support/expect.h"
#include "tests/support/model.h"
#include "tests/support/profile.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, WARM = 4, BATCH = 2, SEQ = 16, DEPTH = 32 };

/* ---- a device: the CPU, whose ranges launch kernels ---- */

static struct {
    const Planted *cupti;
    const char *ranges[DEPTH];
    int depth;
    int64_t before_capture;
} gpu;

static void push(Device *device, const char *name) {
    (void)device;
    assert_true(gpu.depth < DEPTH);
    gpu.ranges[gpu.depth++] = name;
}

static void pop(Device *device) {
    (void)device;
    gpu.cupti->launch(gpu.ranges[--gpu.depth]);
}

static Status begin_capture(Device *device) {
    gpu.before_capture = device->launches;
    gpu.cupti->capture_begin();
    return OK;
}

typedef struct {
    void *executable;
    int64_t launches;
} Captured;

static Status end_capture(Device *device, Graph **graph) {
    Captured *captured = memory_allocate(sizeof *captured);
    assert_non_null(captured);
    *captured = (Captured){gpu.cupti->capture_end(), device->launches - gpu.before_capture};
    device->launches = gpu.before_capture;
    *graph = (Graph *)captured;
    return OK;
}

static Status launch_graph(Device *device, Graph *graph) {
    const Captured *captured = (const Captured *)graph;
    device->launches += captured->launches;
    gpu.cupti->graph_launch(captured->executable);
    return OK;
}

static int64_t graph_kernels(const Graph *graph) {
    return gpu.cupti->graph_kernels(((const Captured *)graph)->executable);
}

static void free_graph(Device *device, Graph *graph) {
    (void)device;
    Captured *captured = (Captured *)graph;
    gpu.cupti->graph_free(captured->executable);
    memory_free(captured);
}

static Device *open_device(void) {
    Device *device;
    expect_ok(device_open_cpu(1, &device));
    device->range_push = push;
    device->range_pop = pop;
    device->capture_begin = begin_capture;
    device->capture_end = end_capture;
    device->graph_launch = launch_graph;
    device->graph_kernels = graph_kernels;
    device->graph_free = free_graph;
    return device;
}

/* ---- steps ---- */

static int32_t tokens[BATCH * SEQ + 1];

static void open_trainer(Trainer *t, Device *device) {
    // one graph, launched twice in a step
    model_open_trainer(t, device,
                       &(SmallTrainer){BATCH, SEQ, .accum = 2, .fuses = ~FUSE_FP8, .graphs = true});
}

static void run_steps(Trainer *t, int64_t first, int64_t count, Recorder *recorder) {
    StepResult result;
    for (int64_t step = first; step < first + count; step++) {
        t->ctx.step = step;
        t->ctx.recorder = recorder;
        expect_ok(trainer_step(t, model_fetch, tokens, 1e-3, &result));
        t->ctx.recorder = NULL;
    }
}

static Collector *open_collector(Device *device, const CollectorOptions *options) {
    device->backend = BACKEND_CUDA; // chooses CUPTI
    Collector *collector = collector_open(device, options);
    device->backend = BACKEND_CPU;
    return collector;
}

/* STEPS traced steps after others that are not traced. `ready`: the step before them warms tracing up. */
static Trace *traced(const CollectorOptions *options, bool ready) {
    Trainer t;
    Trace *trace;
    Device *device = open_device();
    const TraceRun run = {.source_note = "",
                          .model = "small",
                          .dtype = "fp32",
                          .program = "test",
                          .window = "",
                          .batch = BATCH,
                          .seq = SEQ,
                          .accum = 2,
                          .steps = STEPS,
                          .measured = {.flops = 1e12, .bandwidth = 1e11}};
    open_trainer(&t, device);
    run_steps(&t, 1, WARM, NULL);
    Collector *collector = open_collector(device, options);
    assert_int_equal(collector_graphs(collector), options->graphs);
    if (ready) {
        expect_ok(collector_begin(collector, true));
        run_steps(&t, WARM + 1, 1, collector_recorder(collector));
    }
    expect_ok(collector_begin(collector, false));
    run_steps(&t, WARM + 2, STEPS, collector_recorder(collector));
    expect_ok(collector_end(collector));
    expect_ok(collector_trace(collector, &run, t.ctx.arenas, &trace));
    collector_close(collector);
    run_steps(&t, 100, 1, NULL); // a graph outlives its recorder
    trainer_close(&t);
    device->close(device);
    assert_int_equal(trace->run.source, SOURCE_CUPTI);
    assert_int_equal(trace->run.graphs, options->graphs);
    assert_string_equal(trace->run.source_note, options->graphs ? "steps are launched as graphs" : "");
    return trace;
}

/* ---- checks ---- */

static const char *name_of(const TraceEvent *e) {
    return e->kind == TRACE_OPERATION ? e->operation : e->name;
}

/* Each kernel is attributed to the range with its name, in its step, after its launch. Returns their
 * number. */
static int64_t expect_attributed(const Trace *t) {
    int64_t kernels = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (!trace_on_device(e)) {
            assert_true(e->end >= e->begin && e->self >= 0);
            if (e->kind == TRACE_RUNTIME || e->parent < 0) continue;
            const TraceEvent *outer = &t->events[e->parent];
            assert_true(e->begin >= outer->begin && e->end <= outer->end);
            continue;
        }
        assert_true(e->parent >= 0 && e->launch >= 0);
        const TraceEvent *parent = &t->events[e->parent];
        if (strcmp(name_of(parent), e->name) != 0) fail_msg("%s was given to %s", e->name, name_of(parent));
        int64_t step = trace_above(t, e->parent, TRACE_STEP),
                launched = trace_above(t, e->launch, TRACE_STEP);
        assert_true(step >= 0 && step == launched);
        assert_true(e->begin >= t->events[step].begin && e->step == t->events[step].step);
        assert_true(e->begin >= t->events[e->launch].begin);
        kernels++;
    }
    return kernels;
}

static void expect_same_rows(const Figures *a, const Figures *b) {
    assert_int_equal(a->row_count, b->row_count);
    for (int i = 0; i < a->row_count; i++) {
        const OperationRow *r = &a->rows[i], *s = figures_find(b, r->call, r->operation, r->pass);
        assert_non_null(s);
        assert_true(r->calls == s->calls && r->launches == s->launches && r->form == s->form);
        assert_true(r->work.flops == s->work.flops && r->work.bytes == s->work.bytes);
        assert_int_equal(r->inside_count, s->inside_count);
        for (int k = 0; k < r->inside_count; k++) {
            assert_string_equal(r->inside[k].name, s->inside[k].name);
            assert_true(r->inside[k].calls == s->inside[k].calls &&
                        r->inside[k].launches == s->inside[k].launches);
        }
    }
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++) assert_int_equal(a->peak_classes[c], b->peak_classes[c]);
    assert_int_equal(a->peak_bytes, b->peak_bytes);
}

static int64_t count_named(const Trace *t, TraceKind kind, const char *name) {
    int64_t count = 0;
    for (int64_t i = 0; i < t->count; i++)
        count += t->events[i].kind == kind && strcmp(t->events[i].name, name) == 0;
    return count;
}

/* The report's own checks, except those of times, which are synthetic. */
static void expect_sound(Trace *t, const Figures *figures) {
    static const char *const checks[] = {"minimum <= average <= maximum",
                                         "self times sum to the total",
                                         "phases sum to the step within 1%",
                                         "records = launches",
                                         "no record dropped",
                                         "every figure is finite"};
    audit_profile(t, figures);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        int found = 0;
        for (int64_t k = 0; k < t->finding_count; k++)
            if (strcmp(t->findings[k].name, checks[i]) == 0 && t->findings[k].passed) found++;
        if (!found) fail_msg("the audit's check failed: %s", checks[i]);
    }
}

static int64_t phases_of(const Trace *t) {
    int64_t count = 0;
    for (int64_t i = 0; i < t->count; i++) count += t->events[i].kind == TRACE_PHASE;
    return count;
}

/* A graph's launch is one call; everything else is as if launched kernel by kernel. */
static void graphs_are_told_apart(void **state) {
    (void)state;
    Trace *eager = traced(&(CollectorOptions){0}, true);
    int64_t kernels = expect_attributed(eager);
    assert_true(kernels > STEPS * 50);
    assert_int_equal(eager->run.launches, kernels);
    assert_int_equal(eager->run.dropped, 0);
    assert_int_equal(count_named(eager, TRACE_RUNTIME, "cudaGraphLaunch"), 0);
    assert_int_equal(count_named(eager, TRACE_SCOPE, "graph"), 0);
    Figures expected;
    expect_ok(figures_make(eager, &expected));
    for (int ready = 0; ready < 2; ready++) {
        Figures figures;
        Trace *graphs = traced(&(CollectorOptions){.graphs = true}, ready);
        assert_int_equal(expect_attributed(graphs), kernels);
        assert_int_equal(graphs->run.launches, kernels);
        /* One graph for a micro-batch and one for the update; the very first step captures them. */
        assert_int_equal(count_named(graphs, TRACE_RUNTIME, "cudaGraphLaunch"), STEPS * 3);
        assert_int_equal(count_named(graphs, TRACE_SCOPE, "graph"), STEPS * 3);
        expect_ok(figures_make(graphs, &figures));
        expect_same_rows(&expected, &figures);
        expect_sound(graphs, &figures);
        assert_int_equal(phases_of(graphs), phases_of(eager));
        for (int p = 0; p < PHASE_COUNT; p++)
            assert_int_equal(figures.phases[p].ns > 0, expected.phases[p].ns > 0);
        if (ready) assert_true(count_named(graphs, TRACE_RUNTIME, "cudaLaunchKernel") < kernels / 10);
        figures_free(&figures);
        trace_close(graphs);
    }
    figures_free(&expected);
    trace_close(eager);
}

/* A graph that was captured for one collector is captured again for the next. */
static void every_collector_captures(void **state) {
    (void)state;
    Trainer t;
    Device *device = open_device();
    open_trainer(&t, device);
    run_steps(&t, 1, WARM, NULL);
    for (int i = 0; i < 3; i++) {
        Trace *trace;
        Collector *collector = open_collector(device, &(CollectorOptions){.graphs = true});
        expect_ok(collector_begin(collector, false));
        run_steps(&t, 10 * (i + 1), STEPS, collector_recorder(collector));
        expect_ok(collector_end(collector));
        expect_ok(collector_trace(collector, &(TraceRun){.model = "small"}, t.ctx.arenas, &trace));
        assert_int_equal(expect_attributed(trace), trace->run.launches);
        assert_int_equal(count_named(trace, TRACE_SCOPE, "graph"), STEPS * 3);
        trace_close(trace);
        collector_close(collector);
    }
    trainer_close(&t);
    device->close(device);
}

static void losses_show(void **state) {
    (void)state;
    gpu.cupti->forget(10);
    Trace *t = traced(&(CollectorOptions){.graphs = true}, true);
    gpu.cupti->forget(0);
    int64_t kernels = expect_attributed(t);
    assert_true(t->run.dropped > 0 && t->run.launches > kernels);
    trace_close(t);
}

static void waiting_counts_once(void **state) {
    (void)state;
    gpu.cupti->early(50000); // longer than several kernels
    Trace *t = traced(&(CollectorOptions){.graphs = true}, true);
    gpu.cupti->early(0);
    const TraceEvent *ahead = NULL;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        if (!trace_on_device(e)) continue;
        assert_true(e->end > e->begin && (!ahead || e->begin >= ahead->end));
        ahead = e;
    }
    assert_non_null(ahead);
    trace_close(t);
}

static void latencies_are_kept(void **state) {
    (void)state;
    Tables tables;
    Trace *t = traced(&(CollectorOptions){0}, true);
    expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
    assert_null(tables_find(&tables, "latency"));
    tables_free(&tables);
    trace_close(t);
    collector_prepare(false);
    assert_false(gpu.cupti->latency());
    collector_prepare(true);
    assert_true(gpu.cupti->latency());
    t = traced(&(CollectorOptions){.latency = true}, true);
    expect_ok(tables_of_trace(t, NAMES_PLAIN, &tables));
    const Table *latency = tables_find(&tables, "latency"), *kernels = tables_find(&tables, "kernels");
    assert_non_null(latency);
    assert_int_equal(latency->rows, kernels->rows);
    for (int64_t row = 0; row < latency->rows; row++) {
        const Cell *cells = latency->cells + row * latency->column_count;
        assert_true(cells[1].number >= 1 && cells[2].number >= 0 && cells[3].number >= cells[2].number);
        assert_true(cells[4].number == 200 && cells[5].number == 200); // as planted
        assert_true(cells[6].number == 100 && cells[7].number == 100);
    }
    tables_free(&tables);
    trace_close(t);
}

/* If CUPTI cannot be used, the run continues with events, without graphs, and reports why. */
static void expect_events(const CollectorOptions *options, const char *why) {
    Device *device = open_device();
    Trainer t;
    Trace *trace;
    open_trainer(&t, device);
    Collector *collector = open_collector(device, options);
    assert_false(collector_graphs(collector));
    expect_ok(collector_begin(collector, false));
    run_steps(&t, 1, STEPS, collector_recorder(collector));
    expect_ok(collector_end(collector));
    expect_ok(collector_trace(collector, &(TraceRun){.model = "small"}, t.ctx.arenas, &trace));
    assert_int_equal(trace->run.source, SOURCE_EVENTS);
    if (!strstr(trace->run.source_note, why)) fail_msg("no \"%s\" in: %s", why, trace->run.source_note);
    assert_int_equal(strstr(trace->run.source_note, "kernel by kernel") != NULL, options->graphs);
    assert_true(trace->run.launches == -1 && count_named(trace, TRACE_SCOPE, "graph") == 0);
    trace_close(trace);
    collector_close(collector);
    trainer_close(&t);
    device->close(device);
}

static void others_come_first(void **state) {
    (void)state;
    gpu.cupti->hold("nsys");
    expect_events(&(CollectorOptions){0}, "another profiler already holds CUPTI in this process: nsys");
    expect_events(&(CollectorOptions){.graphs = true}, "nsys");
    gpu.cupti->hold("");
    expect_events(&(CollectorOptions){0}, "a subscriber that does not give its name");
    gpu.cupti->hold(NULL);
    gpu.cupti->pretend(120000);
    expect_events(&(CollectorOptions){0}, "libcupti is of CUDA 12, and this program is of CUDA ");
    gpu.cupti->pretend(0);
    trace_close(traced(&(CollectorOptions){0}, false)); // and then CUPTI is available again
}

/* The library is beside this program, and is loaded by its name. */
static bool plant(const char *program) {
    char folder[4096], path[4200];
    if (!cupti_open) return false;
    snprintf(folder, sizeof folder, "%s", program);
    snprintf(path, sizeof path, "%s/planted/libcupti.so", dirname(folder));
    void *library = dlopen(path, RTLD_NOW);
    PlantedFunction function = NULL;
    if (library) *(void **)&function = dlsym(library, "planted");
    if (function) gpu.cupti = function();
    return function != NULL;
}

static void nothing_to_plant(void **state) {
    (void)state;
    skip();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_are_told_apart), cmocka_unit_test(every_collector_captures),
        cmocka_unit_test(others_come_first),     cmocka_unit_test(losses_show),
        cmocka_unit_test(waiting_counts_once),   cmocka_unit_test(latencies_are_kept)};
    const struct CMUnitTest none[] = {cmocka_unit_test(nothing_to_plant)};
    if (argc && plant(argv[0])) return cmocka_run_group_tests(tests, NULL, NULL);
    return cmocka_run_group_tests(none, NULL, NULL);
}
