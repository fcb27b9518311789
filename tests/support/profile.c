#include "tests/support/profile.h"

#include "kernels/ctx.h"
#include "profile/fold.h"
#include "tests/support/expect.h"

#include <string.h>

enum { PRIMITIVES_MOST = 6, HOST_NS = 1000, READER_NS = 20000 };

typedef struct {
    const char *name;
    Category category;
    int64_t ns;
    Arithmetic arithmetic;
} SamplePrimitive;

typedef struct {
    const char *call;
    Operation operation;
    Pass pass;
    Category category;
    Work work;
    SamplePrimitive naive[PRIMITIVES_MOST], fused[2];
} SampleOperation;

#define MATRIX(name, ns)                                                                                     \
    { name, CATEGORY_MATRIX, ns, ARITHMETIC_PLAIN }
#define ATTENTION(name, ns)                                                                                  \
    { name, CATEGORY_ATTENTION, ns, ARITHMETIC_PLAIN }
#define SOFTMAX(name, ns)                                                                                    \
    { name, CATEGORY_ATTENTION, ns, ARITHMETIC_SOFTMAX }
#define ELEMENTWISE(name, ns)                                                                                \
    { name, CATEGORY_ELEMENTWISE, ns, ARITHMETIC_PLAIN }
#define OPTIMIZER(name, ns)                                                                                  \
    { name, CATEGORY_OPTIMIZER, ns, ARITHMETIC_PLAIN }

static const SampleOperation operations[] = {
    {"mlp.expand",
     OP_LINEAR,
     PASS_FORWARD,
     CATEGORY_MATRIX,
     {.flops = 8e9, .bytes = 2e6, .needed = 8e9},
     {MATRIX("product", 80000),
      ELEMENTWISE("bias add", 20000),
      {"GELU", CATEGORY_ACTIVATION, 20000, ARITHMETIC_EXPONENTIAL}},
     {MATRIX("product, bias, GELU", 90000)}},
    {"attention",
     OP_ATTENTION,
     PASS_FORWARD,
     CATEGORY_ATTENTION,
     {.flops = 2e9, .bytes = 1e6, .needed = 2e9},
     {MATRIX("score product", 30000), ELEMENTWISE("scale", 15000), SOFTMAX("softmax max", 20000),
      SOFTMAX("exponentials", 20000), SOFTMAX("softmax divide", 20000), MATRIX("value product", 30000)},
     {ATTENTION("flash forward", 40000)}},
    {"attention",
     OP_ATTENTION,
     PASS_BACKWARD,
     CATEGORY_ATTENTION,
     {.flops = 5e9, .bytes = 2e6, .needed = 5e9},
     {MATRIX("value gradient", 50000), SOFTMAX("gradient of scores", 60000), MATRIX("key gradient", 50000)},
     {ATTENTION("flash backward", 100000)}},
    {"mlp.expand",
     OP_LINEAR,
     PASS_BACKWARD,
     CATEGORY_MATRIX,
     {.flops = 16e9, .bytes = 4e6, .needed = 16e9},
     {MATRIX("weight gradient", 90000), MATRIX("input gradient", 90000)},
     {MATRIX("weight gradient", 90000), MATRIX("input gradient", 90000)}},
    {"adamw",
     OP_ADAMW,
     PASS_UPDATE,
     CATEGORY_OPTIMIZER,
     {.flops = 1e6, .bytes = 8e6, .needed = 1e6},
     {OPTIMIZER("first moment", 30000), OPTIMIZER("second moment", 30000), OPTIMIZER("update", 30000)},
     {OPTIMIZER("update", 40000)}},
};

typedef struct {
    Trace *trace;
    int64_t step, host, device, latency; // clocks: of the host, and when the device is free again
    Form form;
} Maker;

static int64_t add(Maker *m, TraceEvent e) {
    int64_t index;
    index = trace_add(m->trace, &e);
    return index;
}

static TraceEvent host_event(Maker *m, TraceKind kind, const char *name, int64_t parent, Phase phase) {
    TraceEvent e = trace_event(m->trace, kind, name);
    e.thread = 0;
    e.parent = parent;
    e.step = m->step;
    e.phase = phase;
    e.begin = e.end = m->host;
    return e;
}

/* A primitive, the call that launches its kernel, and the kernel. */
static void add_primitive(Maker *m, const SampleOperation *o, const SamplePrimitive *p, int64_t operation) {
    TraceEvent e = host_event(m, TRACE_PRIMITIVE, p->name, operation, m->trace->events[operation].phase);
    const TraceEvent *above = &m->trace->events[operation];
    e.operation = operation_name(o->operation);
    e.pass = o->pass;
    e.form = m->form;
    e.call = above->call;
    e.layer = 0;
    e.category = p->category;
    e.arithmetic = p->arithmetic;
    e.source = above->source;
    e.end = m->host + HOST_NS;
    int64_t primitive = add(m, e);
    TraceEvent call = host_event(m, TRACE_RUNTIME, "cudaLaunchKernel", primitive, e.phase);
    call.begin += 100;
    call.end = call.begin + 500;
    TraceEvent kernel = trace_event(m->trace, TRACE_KERNEL, p->name);
    kernel.stream = 0;
    kernel.parent = primitive;
    kernel.launch = add(m, call);
    kernel.begin = m->latency + (m->device > call.end ? m->device : call.end);
    kernel.end = m->device = kernel.begin + p->ns;
    kernel.kernel =
        (KernelShape){.grid = {108, 1, 1}, .block = {256, 1, 1}, .registers = 64, .occupancy = 0.5};
    add(m, kernel);
    m->host += HOST_NS;
}

static void add_operation(Maker *m, const SampleOperation *o, int64_t phase) {
    TraceEvent e =
        host_event(m, TRACE_OPERATION, operation_name(o->operation), phase, m->trace->events[phase].phase);
    e.operation = operation_name(o->operation);
    e.pass = o->pass;
    e.form = m->form;
    e.call = trace_name(m->trace, o->call);
    e.source = trace_name(m->trace, "kernels/linear/cuda_naive.cu:69");
    e.layer = 0;
    e.category = o->category;
    e.work = o->work;
    int64_t index = add(m, e);
    const SamplePrimitive *primitives = m->form == FORM_NAIVE ? o->naive : o->fused;
    int most = m->form == FORM_NAIVE ? PRIMITIVES_MOST : 2;
    for (int i = 0; i < most && primitives[i].name; i++) add_primitive(m, o, &primitives[i], index);
    m->host += 100;
    m->trace->events[index].end = m->host;
}

static void add_phase(Maker *m, Phase phase, int64_t step) {
    static const Pass passes[PHASE_COUNT] = {
        [PHASE_FORWARD] = PASS_FORWARD, [PHASE_BACKWARD] = PASS_BACKWARD, [PHASE_OPTIMIZER] = PASS_UPDATE};
    int64_t index = add(m, host_event(m, TRACE_PHASE, phase_name(phase), step, phase));
    if (phase == PHASE_READER) m->host += READER_NS;
    for (size_t i = 0; i < sizeof operations / sizeof *operations && phase != PHASE_READER; i++)
        if (operations[i].pass == passes[phase]) add_operation(m, &operations[i], index);
    m->trace->events[index].end = m->host;
}

static void add_memory(Maker *m, int64_t begin, int64_t end) {
    int64_t saved = m->form == FORM_NAIVE ? 3 << 20 : 1 << 20;
    trace_add_memory(m->trace, (TraceMemory){begin, MEMORY_PARAMETERS, 2 << 20, -1});
    trace_add_memory(m->trace, (TraceMemory){begin + 10, MEMORY_SAVED, saved, -1});
    trace_add_memory(m->trace, (TraceMemory){end, MEMORY_SAVED, 0, -1});
}

static void add_step(Maker *m) {
    m->host = m->step * 2 * SAMPLE_STEP_NS;
    m->device = m->host;
    int64_t begin = m->host, index = add(m, host_event(m, TRACE_STEP, "step", -1, PHASE_OTHER));
    for (int phase = 0; phase < PHASE_OTHER; phase++) add_phase(m, (Phase)phase, index);
    m->trace->events[index].end = m->device > m->host ? m->device : m->host;
    add_memory(m, begin, m->trace->events[index].end);
}

static void describe(Trace *t) {
    TraceRun *run = &t->run;
    run->source = SOURCE_CUPTI;
    run->device = trace_name(t, "Some GPU");
    run->library = trace_name(t, "some library 1.0");
    run->host = trace_name(t, "some host");
    run->program = trace_name(t, "train");
    run->model = trace_name(t, "tiny");
    run->dtype = trace_name(t, "bf16");
    run->window = trace_name(t, "steps 0 to 2");
    run->measured = (Peaks){.flops = 100e12, .bandwidth = 1e12};
    run->sheet = (Peaks){.flops = 200e12, .bandwidth = 2e12};
    run->batch = 4;
    run->seq = 32;
    run->accum = 1;
    run->layers = run->heads = 2;
    run->width = 64;
    run->steps = SAMPLE_STEPS;
    run->launches = 0;
    for (int64_t i = 0; i < t->count; i++) run->launches += t->events[i].kind == TRACE_KERNEL;
}

Trace *sample_trace(Form form, int64_t latency) {
    Trace *t;
    t = trace_open();
    Maker maker = {.trace = t, .form = form, .latency = latency};
    for (maker.step = 0; maker.step < SAMPLE_STEPS; maker.step++) add_step(&maker);
    describe(t);
    double ms = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_STEP) ms = 1e-6 * (double)trace_length(&t->events[i]);
    trace_add_tensor(t, (TraceTensor){trace_name(t, "block.0.probabilities"), MEMORY_SAVED, 1 << 20});
    trace_set_times(t, (double[]){0.98 * ms, 0.97 * ms, 0.99 * ms}, (double[]){0.02, 0.02, 0.02}, 3,
                    (double[]){ms, ms, ms}, 3);
    expect_ok(trace_finish(t));
    return t;
}

int64_t audit_failures(const Trace *t) {
    int64_t failures = 0;
    for (int64_t i = 0; i < t->finding_count; i++) failures += !t->findings[i].passed;
    return failures;
}

Status tables_of_trace(const Trace *trace, unsigned names, Tables *tables) {
    Figures figures = {.trace = trace};
    *tables = (Tables){0};
    if (trace->count) TRY(figures_make(trace, &figures));
    tables_make(&figures, names, tables);
    figures_free(&figures);
    return OK;
}

const Table *tables_find(const Tables *tables, const char *key) {
    for (int i = 0; i < tables->count; i++)
        if (strcmp(tables->tables[i].key, key) == 0) return &tables->tables[i];
    return NULL;
}
