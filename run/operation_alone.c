#include "run/operation_alone.h"

#include "base/cores.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/wrap.h"
#include "kernels/example.h"
#include "run/plan.h"
#include "run/turns.h"

#include <inttypes.h>
#include <string.h>

static const Example *const examples[OP_COUNT] = {
#define OPERATION(name, NAME, CATEGORY) [OP_##NAME] = &name##_example,
#include "kernels/ops.def"
#undef OPERATION
};

Status operation_alone_list(FILE *file) {
    for (int i = 0; i < OP_COUNT; i++)
        print_report(operation_name((Operation)i), 13, file, "%s", examples[i]->what);
    return OK;
}

static const int64_t ELEMENTS_MOST = INT64_C(1) << 40; // elements of a tensor, so that no size overflows

/* The state of a measurement. */
typedef struct {
    Ctx ctx;
    ExampleCall sizes;
    Operation operation;
    Pass pass;
    uint32_t fuses; // fuses of the fused form
    Form first;     // FORM_NAIVE if both are measured
    bool filled;    // the tensors have their values
    int64_t rounds, warmup;
    Recorder *recorder; // of one call, without its primitives
    StepCost *costs;    // (COMPARE_PATHS, rounds) with the time of the pass alone
    PathTimes times[COMPARE_PATHS];
    GainSplit split;
    Peaks peaks;
    double cores_waited;
    double difference; // NaN: unknown
} Alone;

/* ---- options ---- */

static Status find_operation(const char *name, Operation *operation) {
    const char *names[OP_COUNT];
    for (int i = 0; i < OP_COUNT; i++) names[i] = operation_name((Operation)i);
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(names[i], name) == 0) {
            *operation = (Operation)i;
            return OK;
        }
    const Hint hint = nearest_hint(name, "'", "'", names, OP_COUNT);
    return fail(ERROR_USAGE, "--op: no operation is named '%s'%s --op=help lists them", name,
                *hint.text ? hint.text : ".");
}

static bool has_form(const Alone *a, Form form) {
    return slot_function(a->ctx.device->backend, a->ctx.dtype, a->operation, a->pass, form) != NULL;
}

/* The requested pass; the operation's own pass if it has no forward pass. */
static Status find_pass(Alone *a, Pass asked) {
    const Operation operation = a->operation;
    const bool composed = examples[operation]->composed;
    a->pass = asked;
    if (asked == PASS_FORWARD && !composed && !slots_have_pass(operation, asked))
        a->pass = slots_have_pass(operation, PASS_UPDATE) ? PASS_UPDATE : PASS_BACKWARD;
    if (asked == PASS_BACKWARD && !slots_have_pass(operation, asked))
        return fail(ERROR_USAGE, "--pass=backward: %s has no backward pass", operation_name(operation));
    if (composed || has_form(a, FORM_NAIVE)) return OK;
    return fail(ERROR_USAGE, "--op=%s: it has no form for %s on %s", operation_name(operation),
                dtype_name(a->ctx.dtype), a->ctx.device->name);
}

/* Widths that are not given are the model's; another width scales them in proportion. */
static Status find_sizes(const Config *c, const InferOptions *o, ExampleCall *e) {
    const int64_t width = o->width ? o->width : c->width, heads = width / c->head_size;
    if (heads * c->head_size != width || heads * c->kv_heads % c->heads)
        return fail(ERROR_USAGE,
                    "--width=%" PRId64 " is not made of heads of %" PRId64 " columns as those of %s", width,
                    c->head_size, o->model);
    int64_t elements;
    if (__builtin_mul_overflow(o->batch * (o->seq ? o->seq : c->context), width, &elements) ||
        elements > ELEMENTS_MOST)
        return fail(ERROR_USAGE, "--op: batch * seq * width is more than any memory holds");
    *e = (ExampleCall){.batch = o->batch,
                       .seq = o->seq ? o->seq : c->context,
                       .width = width,
                       .hidden = c->hidden * width / c->width,
                       .heads = heads,
                       .kv_heads = heads * c->kv_heads / c->heads,
                       .vocab = c->vocab,
                       .padded = config_padded_vocab(c)};
    return OK;
}

/* ---- runs ---- */

/* One call. Every call takes the same tensors at the same addresses. */
static Status call(Alone *a, bool first) {
    Ctx *ctx = &a->ctx;
    ExampleCall e = a->sizes;
    e.first = first;
    for (int i = 0; i < ARENA_COUNT; i++) arena_release(&ctx->arenas[i], (ArenaMark){0, 0});
    ctx->call = operation_name(a->operation);
    return examples[a->operation]->run(ctx, &e);
}

static Status rehearse(Ctx *ctx, void *program) {
    (void)ctx;
    return call(program, true);
}

static Status fresh_call(Ctx *ctx, void *program, StepCost *cost) {
    (void)ctx;
    (void)cost;
    return call(program, true);
}

static uint32_t fuses_of(const Alone *a, int form) {
    return form == FORM_NAIVE ? 0 : a->fuses;
}

static Status prepare(Alone *a, const InferOptions *o, const OptionSet *set) {
    TRY(compute_options_peaks(&o->compute, set, &a->ctx, &a->peaks));
    for (int form = a->first; form < FORM_COUNT; form++) {
        a->ctx.fuses = fuses_of(a, form);
        TRY(plan_measure(&a->ctx, rehearse, a, NULL));
    }
    return plan_allocate(&a->ctx);
}

/* The time of everything in the requested pass, without what ran inside it in another pass. */
static double pass_ms(const Alone *a, const Record *records, int64_t count) {
    double ms = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t parent = records[i].parent;
        if (records[i].pass == a->pass) ms += records[i].device_ms;
        if (parent >= 0 && records[parent].pass == a->pass) ms -= records[i].device_ms;
    }
    return ms;
}

/* The time of a call is that of its records in the requested pass. */
static Status timed_call(void *program, int form, int64_t round, StepCost *cost) {
    Alone *a = program;
    Ctx *ctx = &a->ctx;
    const Record *records;
    int64_t count, dropped;
    const bool timed = !ctx->recorder; // else turns_operations reads the records
    ctx->fuses = fuses_of(a, form);
    ctx->step = round;
    if (timed) ctx->recorder = a->recorder;
    Status status = call(a, !a->filled);
    if (!status) status = ctx->device->synchronize(ctx->device);
    if (timed) ctx->recorder = NULL;
    a->filled = true;
    if (status || !timed) return status;
    TRY(recorder_read(a->recorder, &records, &count, &dropped));
    cost->ms = pass_ms(a, records, count);
    recorder_clear(a->recorder);
    return OK;
}

/* Whether the fused form multiplies matrices. */
static bool multiplies(const Alone *a) {
    const Figures *f = &a->times[FORM_FUSED].operations.figures;
    for (int64_t i = 0; i < f->row_count; i++)
        for (int64_t k = 0; k < f->rows[i].inside_count && f->rows[i].pass == a->pass; k++)
            if (f->rows[i].inside[k].category == CATEGORY_MATRIX) return true;
    return false;
}

static Status measure(Alone *a) {
    const Turns turns = {&a->ctx, a->first, FORM_COUNT, a->rounds, timed_call, a, NULL};
    a->costs = memory_array((size_t)a->rounds * COMPARE_PATHS, sizeof *a->costs);
    a->recorder = recorder_open(a->ctx.device, &(RecorderOptions){.timed = true});
    const CoreTimes cores = cores_read();
    TRY(turns_warm_up(&turns, a->warmup));
    TRY(turns_time(&turns, a->costs, a->times, &a->split));
    a->cores_waited = cores_waited(cores);
    TRY(turns_operations(&turns, &a->peaks, true, "--repeats", a->times));
    if (!multiplies(a)) a->split.forms = (MedianInterval){0}; // so the library makes no difference
    return OK;
}

/* Both forms get the same values. A composed operation declares no outputs. */
static Status find_difference(Alone *a) {
    OWNED Difference *differences = NULL;
    int count = 0;
    a->difference = NAN;
    if (a->first == FORM_FUSED || examples[a->operation]->composed) return OK;
    TRY(profiling_differences(&a->ctx, a->fuses, fresh_call, a, &differences, &count));
    a->difference = 0;
    for (int i = 0; i < count; i++)
        if (differences[i].pass == a->pass && !(differences[i].difference <= a->difference))
            a->difference = differences[i].difference;
    return OK;
}

/* ---- the report ---- */

/* Everything that ran in the pass: one row, or the rows of the operations it is composed of. */
typedef struct {
    double calls, launches;
    Work work;
    MedianInterval ms;
} FormTimes;

static FormTimes times_of(const Alone *a, int form) {
    const Figures *f = &a->times[form].operations.figures;
    OWNED double *ms = memory_array((size_t)a->rounds, sizeof *ms);
    FormTimes t = {0};
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        if (r->pass != a->pass) continue;
        t.calls += r->calls;
        t.launches += r->launches;
        work_add(&t.work, r->work);
    }
    for (int64_t k = 0; k < a->rounds; k++) ms[k] = a->costs[form * a->rounds + k].ms;
    t.ms = median_interval(ms, a->rounds);
    return t;
}

static int name_columns(FILE *file) {
    return report_is_narrow(file) ? 25 : 34;
}

static void print_row(const char *name, double ms, const char *interval, double launches, FILE *file) {
    fprintf(file, "%-*s %12.4f  %-22s %8.0f", name_columns(file), name, ms, interval, launches);
}

static void print_parts(const Alone *a, int form, FILE *file) {
    const Figures *f = &a->times[form].operations.figures;
    for (int64_t i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        for (int64_t k = 0; k < r->inside_count && r->pass == a->pass; k++) {
            const InsideRow *inside = &r->inside[k];
            char name[64];
            if (!inside->primitive) continue;
            snprintf(name, sizeof name, "  %s", inside->name);
            print_row(name, 1e-6 * inside->median, "", inside->launches, file);
            fprintf(file, "\n");
        }
    }
}

static void print_form(const Alone *a, int form, const FormTimes *t, FILE *file) {
    const double ns = 1e6 * t->ms.median;
    char name[64], interval[48];
    snprintf(name, sizeof name, "%s%s", form_name(form),
             form == FORM_FUSED && !examples[a->operation]->composed && !has_form(a, FORM_FUSED)
                 ? " (no fused form here)"
                 : "");
    snprintf(interval, sizeof interval, "%.4f to %.4f", t->ms.low, t->ms.high);
    print_row(name, t->ms.median, interval, t->launches, file);
    if (!report_is_narrow(file))
        fprintf(file, " %10.1f %10.1f", ratio(t->work.flops, ns), ratio(t->work.bytes, ns));
    fprintf(file, " %7.1f%%\n", 100 * limit_share(&a->peaks, t->work, t->calls, ns));
    print_parts(a, form, file);
}

static void print(const Alone *a, const Session *s, FILE *file) {
    const ExampleCall *e = &a->sizes;
    FormTimes times[FORM_COUNT] = {0};
    for (int form = a->first; form < FORM_COUNT; form++) times[form] = times_of(a, form);
    const FormTimes *fused = &times[FORM_FUSED];
    print_report("", 0, file, "%s %s alone: %s", operation_name(a->operation), pass_name(a->pass),
                 examples[a->operation]->what);
    print_report("", 0, file, "batch %" PRId64 ", seq %" PRId64 ", width %" PRId64 ", %s, on %s with %s",
                 e->batch, e->seq, e->width, session_dtype_name(s), s->device->name, s->device->library);
    print_report("", 0, file, "needs %.3f MFLOP and at least %.3f MB; limits measured here: %s",
                 1e-6 * fused->work.flops, 1e-6 * fused->work.bytes, limits_text(&a->peaks).text);
    fputc('\n', file);
    fprintf(file, "%-*s %12s  %-22s %8s%s %8s\n", name_columns(file), "", "median ms", "95% interval",
            "calls", report_is_narrow(file) ? "" : "    GFLOP/s       GB/s", "of limit");
    for (int form = a->first; form < FORM_COUNT; form++) print_form(a, form, &times[form], file);
    if (a->first == FORM_NAIVE) {
        const MedianInterval pairs = a->times[FORM_FUSED].pairs;
        fprintf(file,
                "\nnaive over fused: %.2f, the median of %" PRId64 " pairs, %.2f to %.2f (95%% interval)\n",
                pairs.median, a->rounds, pairs.low, pairs.high);
        if (!isnan(a->difference))
            fprintf(file, "largest difference of an output: %.1e of it\n", a->difference);
        gain_split_print(&a->split, file);
    }
    print_report(
        "calls:", 7, file,
        "kernels and library calls. Primitives were timed in separate rounds. Tensors keep their addresses, "
        "so small ones are in a cache.");
    if (a->cores_waited > CORES_SHARED) print_report("", 0, file, "%s", cores_warning(a->cores_waited).text);
}

static Status run(Alone *a, const Session *s, const InferOptions *o, const OptionSet *set) {
    TRY(find_operation(o->op, &a->operation));
    TRY(find_pass(a, o->pass));
    TRY(find_sizes(&s->config, o, &a->sizes));
    a->ctx.training = a->pass == PASS_BACKWARD;
    TRY(prepare(a, o, set));
    TRY(measure(a));
    TRY(find_difference(a));
    print(a, s, stdout);
    return OK;
}

Status operation_alone(const Session *s, const InferOptions *o, const OptionSet *set) {
    Alone a = {.fuses = s->fuses,
               .first = o->compare ? FORM_NAIVE : FORM_FUSED,
               .rounds = o->repeats,
               .warmup = o->warmup_runs};
    ctx_open(&a.ctx, s->device);
    a.ctx.dtype = s->dtype;
    a.ctx.tf32 = s->tf32;
    Status status = run(&a, s, o, set);
    for (int form = 0; form < FORM_COUNT; form++) path_times_free(&a.times[form]);
    memory_free(a.costs);
    recorder_close(a.recorder);
    ctx_close(&a.ctx);
    return status;
}
