#include "tests/support/traced.h"

#include "base/memory.h"
#include "run/trainer.h"
#include "tests/support/expect.h"
#include "tests/support/model.h"

#include <math.h>
#include <string.h>

static int32_t tokens[TRACED_BATCH * TRACED_SEQ + 1];

static void run_steps(Trainer *t, Recorder *recorder) {
    StepResult result;
    for (int64_t step = 1; step <= TRACED_STEPS; step++) {
        t->ctx.step = step;
        t->ctx.recorder = recorder;
        STEP_SCOPE(&t->ctx) {
            PROFILE_SCOPE(&t->ctx, "my range") expect_ok(trainer_gradients(t, model_fetch, tokens));
            expect_ok(trainer_update(t, 1e-3));
            expect_ok(trainer_result(t, &result));
        }
        t->ctx.recorder = NULL;
    }
}

Trace *traced(Device *device, uint32_t fuses, CollectorOptions options) {
    Trainer t;
    Collector *collector;
    Trace *trace;
    const double ms[TRACED_STEPS] = {2, 3, 4}, reader[TRACED_STEPS] = {0.1, 0.2, 0.3},
                 with[TRACED_STEPS] = {3, 3, 3};
    const TraceRun run = {.source_note = "",
                          .host = "",
                          .model = "small",
                          .dtype = "fp32",
                          .program = "test",
                          .window = "",
                          .batch = TRACED_BATCH,
                          .seq = TRACED_SEQ,
                          .accum = 1,
                          .steps = TRACED_STEPS,
                          .measured = {.flops = 1e11, .bandwidth = 1e10},
                          .process_cpu = 0.5,
                          .system_cpu = 0.75};
    for (int i = 0; i <= TRACED_BATCH * TRACED_SEQ; i++) tokens[i] = i * 7 % 256;
    const SmallTrainer small = {TRACED_BATCH, TRACED_SEQ, .accum = 1, .fuses = fuses,
                                .graphs = options.graphs};
    model_open_trainer(&t, device, &small);
    collector = collector_open(device, &options);
    for (int window = 0; window < 2; window++) { // a second window must not include the first
        expect_ok(collector_begin(collector, window == 0));
        run_steps(&t, collector_recorder(collector));
        if (window) expect_ok(collector_end(collector));
    }
    expect_ok(collector_trace(collector, &run, t.ctx.arenas, &trace));
    trace_set_times(trace, ms, reader, TRACED_STEPS, with, TRACED_STEPS);
    collector_close(collector);
    trainer_close(&t);
    return trace;
}

int traced_setup(void **state) {
    Device *device;
    Trace **traces = memory_array(FORM_COUNT, sizeof *traces);
    expect_ok(device_open_cpu(1, &device));
    traces[FORM_NAIVE] = traced(device, 0, (CollectorOptions){0});
    traces[FORM_FUSED] = traced(device, ~FUSE_FP8, (CollectorOptions){0});
    device->close(device);
    *state = traces;
    return 0;
}

int traced_teardown(void **state) {
    Trace **traces = *state;
    for (int form = 0; form < FORM_COUNT; form++) trace_close(traces[form]);
    memory_free(traces);
    return 0;
}

double cell(const Table *table, int64_t row, const char *key) {
    int column = table_column(table, key);
    if (column < 0) fail_msg("table %s has no column %s", table->key, key);
    return table->cells[row * table->column_count + column].number;
}

int64_t find_row(const Table *table, const char *name) {
    for (int64_t row = 0; row < table->rows; row++)
        if (strcmp(table->cells[row * table->column_count].text, name) == 0) return row;
    fail_msg("table %s has no row %s", table->key, name);
    return -1;
}

double sum_of(const Table *table, const char *key) {
    double sum = 0;
    for (int64_t row = 0; row < table->rows; row++) sum += cell(table, row, key);
    return sum;
}

void expect_about(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected))) fail_msg("%.17g is not %.17g", value, expected);
}

double steps_ns(const Trace *t) {
    double sum = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_STEP) sum += (double)trace_length(&t->events[i]);
    return sum;
}

double device_ns(const Trace *t) {
    double sum = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (trace_on_device(&t->events[i])) sum += (double)trace_length(&t->events[i]);
    return sum;
}
