#include "run/infer_benchmark.h"

#include "run/turns.h"
#include "base/cores.h"
#include "base/memory.h"
#include "base/wrap.h"
#include "base/random.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void infer_benchmark_tokens(int32_t *tokens, int64_t count, int64_t vocab, uint64_t seed) {
    enum { STREAM = 0x746F6B73 }; // a separate random stream
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(seed, STREAM, (uint64_t)i, (uint64_t)vocab);
}

/* ---- profiling ---- */

typedef struct {
    Inference *inference;
    const BenchmarkSize *size;
} SizedPass;

static Status run_pass(Ctx *ctx, void *program, StepCost *cost) {
    const SizedPass *pass = program;
    const BenchmarkSize *size = pass->size;
    (void)cost;
    scope_begin_step(ctx);
    TRY(inference_logits(pass->inference, size->tokens, size->batch, size->seq));
    TRY(ctx->device->synchronize(ctx->device));
    scope_end(ctx);
    return OK;
}

Status infer_benchmark_trace(Inference *in, const BenchmarkSize *size, Profiling *profiling) {
    SizedPass pass = {in, size};
    for (int64_t step = 1; !profiling_done(profiling); step++)
        TRY(profiling_step(profiling, &in->ctx, step, run_pass, &pass, NULL));
    return profiling_finish(profiling, &in->ctx);
}

Status infer_benchmark_differences(Inference *in, const BenchmarkSize *size, uint32_t fuses,
                                   Difference **differences, int *count) {
    const BenchmarkSize row = {size->tokens, 1, size->seq};
    SizedPass pass = {in, &row};
    return profiling_differences(&in->ctx, fuses, run_pass, &pass, differences, count);
}

/* ---- timing ---- */

/* The passes of one size. */
typedef struct {
    Inference *in;
    const Session *session;
    const BenchmarkSize *size;
    const int32_t *tokens;  // tokens of the next pass that is timed as a whole; NULL: those of the last one
    Work works[FORM_COUNT]; // of a pass, by form
} Passes;

static Status timed_pass(void *program, int form, int64_t round, StepCost *cost) {
    Passes *p = program;
    Inference *in = p->in;
    const int32_t *tokens = in->ctx.recorder ? p->size->tokens : p->tokens;
    in->ctx.fuses = form == FORM_NAIVE ? 0 : p->session->fuses;
    in->ctx.step = round;
    const double start = device_clock();
    TRY(inference_logits(in, tokens, p->size->batch, p->size->seq));
    if (in->ctx.recorder) return OK;
    TRY(in->ctx.device->synchronize(in->ctx.device));
    cost->ms = 1e3 * (device_clock() - start);
    p->works[form] = in->work;
    p->tokens = NULL;
    return OK;
}

/* The planned memory is that of the largest pass, so it is not printed for others. */
static Comparison describe(const Passes *p, const Peaks *peaks, int64_t rounds) {
    const Inference *in = p->in;
    Comparison c = {.what = "pass",
                    .device = p->session->device->name,
                    .library = p->session->device->library,
                    .dtype = session_dtype_name(p->session),
                    .model = session_model_name(p->session),
                    .batch = p->size->batch,
                    .seq = p->size->seq,
                    .rounds = rounds,
                    .peaks = *peaks,
                    .path_count = FORM_COUNT};
    for (int form = 0; form < FORM_COUNT && in->batch == c.batch && in->seq == c.seq; form++)
        c.paths[form].peak_bytes = in->bytes[form];
    return c;
}

static void print_operations(const Comparison *c, FILE *file) {
    fprintf(file,
            "\nbatch %" PRId64 ", seq %" PRId64 ": operations, medians of %" PRId64
            " pass%s, launched one by one\n",
            c->batch, c->seq, c->rounds, c->rounds == 1 ? "" : "es");
    timed_operations_print(&c->paths[COMPARE_FUSED].operations, file);
}

static Status time_passes(Passes *p, const InferOptions *o, Comparison *c) {
    const int first = o->compare ? COMPARE_NAIVE : COMPARE_FUSED;
    const Turns turns = {&p->in->ctx, first, FORM_COUNT, c->rounds, timed_pass, p, NULL};
    OWNED StepCost *costs = memory_array((size_t)c->rounds * COMPARE_PATHS, sizeof *costs);
    PathTimes *fused = &c->paths[COMPARE_FUSED];
    const CoreTimes cores = cores_read();
    TRY(turns_warm_up(&turns, o->warmup_runs));
    TRY(turns_time(&turns, costs, c->paths, &c->split));
    c->cores_waited = cores_waited(cores);
    TRY(turns_operations(&turns, &c->peaks, true, "--repeats", c->paths));
    p->in->ctx.fuses = p->session->fuses;
    if (!o->compare) return OK;
    return infer_benchmark_differences(p->in, p->size, p->session->fuses, &fused->differences,
                                       &fused->difference_count);
}

/* Moves the measurements to the report. */
static void keep(Benchmark *report, const Passes *p, bool compared, const Comparison *c) {
    report->profiles =
        memory_grow(report->profiles, &report->room, report->count + FORM_COUNT, sizeof *report->profiles);
    for (int form = compared ? FORM_NAIVE : FORM_FUSED; form < FORM_COUNT; form++)
        report->profiles[report->count++] = (BenchmarkResult){.label = compared ? form_name((Form)form) : "",
                                                              .batch = c->batch,
                                                              .seq = c->seq,
                                                              .cores_waited = c->cores_waited,
                                                              .work = p->works[form],
                                                              .times = c->paths[form]};
    report->profiles[report->count - 1].split = c->split;
}

Status infer_benchmark_measure(Inference *in, const Session *session, const InferOptions *o,
                               const BenchmarkSize *size, Benchmark *report) {
    Passes passes = {.in = in, .session = session, .size = size, .tokens = size->tokens};
    Comparison c = describe(&passes, &report->peaks, o->repeats);
    Status status = time_passes(&passes, o, &c);
    if (status) {
        compare_free(&c);
        return status;
    }
    keep(report, &passes, o->compare, &c);
    if (o->quiet) return OK;
    if (!o->compare) {
        print_operations(&c, stdout);
        return OK;
    }
    printf("\n");
    compare_print(&c, stdout);
    return OK;
}

/* ---- reports ---- */

static double seconds(const BenchmarkResult *p) {
    return 1e-3 * p->times.step.median;
}

static double tokens_per_second(const BenchmarkResult *p) {
    return (double)p->batch * (double)p->seq / seconds(p);
}

void infer_benchmark_print(const Benchmark *report, FILE *file) {
    bool tera = false; // one unit per column
    for (int i = 0; i < report->count; i++)
        tera |= report->profiles[i].work.flops / seconds(&report->profiles[i]) >= 1e12;
    fprintf(file, "\n%6s %6s %-6s %10s %19s %10s %9s %6s\n", "batch", "seq", "form", "ms", "spread",
            report->unit, tera ? "TFLOP/s" : "GFLOP/s", "MFU");
    for (int i = 0; i < report->count; i++) {
        const BenchmarkResult *p = &report->profiles[i];
        double rate = p->work.flops / seconds(p);
        const Mfu mfu =
            mfu_of(p->work.needed / seconds(p), report->peaks.dense, report->peaks.flops, p->cores_waited);
        char share[16] = "-";
        if (!isnan(mfu.share)) snprintf(share, sizeof share, "%.1f%%", 100 * mfu.share);
        fprintf(file, "%6" PRId64 " %6" PRId64 " %-6s %10.3f %9.3f-%9.3f %10.0f %9.3f %6s\n", p->batch,
                p->seq, *p->label ? p->label : "-", p->times.step.median, p->times.step.least,
                p->times.step.most, tokens_per_second(p), rate * (tera ? 1e-12 : 1e-9), share);
        if (p->times.pairs.median > 0)
            fprintf(file, "%14s fused is %.2f times as fast (95%% interval %.2f to %.2f)\n", "",
                    p->times.pairs.median, p->times.pairs.low, p->times.pairs.high);
        if (p->cores_waited > CORES_SHARED)
            print_report("", 0, file, "%s", cores_warning(p->cores_waited).text);
    }
}

/* Writes an operation or, with `inside`, one of its primitives. */
static void write_row(JsonWriter *w, const BenchmarkResult *p, const OperationRow *r,
                      const InsideRow *inside) {
    const Difference *d = inside ? NULL
                                 : difference_find(p->times.differences, p->times.difference_count, r->call,
                                                   r->operation, r->pass);
    json_write_line(w, 6, true);
    json_write_open(w, '{');
    json_member_text(w, "place", r->call);
    json_member_text(w, "operation", r->operation);
    if (inside) json_member_text(w, "primitive", inside->name);
    json_member_text(w, "form", form_name(r->form));
    json_member_number(w, "ms", 1e-6 * (inside ? inside->median : r->median));
    json_member_number(w, "ms_low", 1e-6 * (inside ? inside->low : r->low));
    json_member_number(w, "ms_high", 1e-6 * (inside ? inside->high : r->high));
    json_member_number(w, "calls", inside ? inside->calls : r->calls);
    json_member_number(w, "launches", inside ? inside->launches : r->launches);
    json_member_number(w, "flops", inside ? 0 : r->work.flops);
    json_member_number(w, "least_bytes", inside ? 0 : r->work.bytes);
    if (d) json_member_number(w, "difference", d->difference);
    json_write_close(w, '}');
}

static void write_operations(JsonWriter *w, const BenchmarkResult *p) {
    const Figures *f = &p->times.operations.figures;
    json_member_open(w, "operations", '[');
    for (int64_t i = 0; i < f->row_count; i++) {
        write_row(w, p, &f->rows[i], NULL);
        for (int64_t k = 0; k < f->rows[i].inside_count; k++)
            if (f->rows[i].inside[k].primitive) write_row(w, p, &f->rows[i], &f->rows[i].inside[k]);
    }
    json_write_close(w, ']');
}

static void write_profile(JsonWriter *w, const BenchmarkResult *p) {
    json_write_line(w, 2, true);
    json_write_open(w, '{');
    json_member_number(w, "batch", (double)p->batch);
    json_member_number(w, "seq", (double)p->seq);
    json_member_text(w, "form", p->label);
    json_member_number(w, "ms", p->times.step.median);
    json_member_number(w, "ms_low", p->times.step.least);
    json_member_number(w, "ms_high", p->times.step.most);
    json_member_number(w, "cores_waited", p->cores_waited);
    json_member_number(w, "tokens_per_s", tokens_per_second(p));
    json_member_number(w, "flops", p->work.flops);
    json_member_number(w, "least_bytes", p->work.bytes);
    if (p->times.pairs.median > 0) {
        json_member_number(w, "ratio", p->times.pairs.median);
        json_member_number(w, "ratio_low", p->times.pairs.low);
        json_member_number(w, "ratio_high", p->times.pairs.high);
    }
    gain_split_write(&p->split, w);
    write_operations(w, p);
    json_write_close(w, '}');
}

Status infer_benchmark_write(const Benchmark *report, const Device *device, const char *dtype,
                             const char *model, const char *path) {
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    json_write_open(&w, '{');
    json_member_number(&w, "schema", 1);
    json_member_text(&w, "device", device->name);
    json_member_text(&w, "library", device->library);
    json_member_text(&w, "dtype", dtype);
    json_member_text(&w, "model", model);
    json_member_number(&w, "peak_flops", report->peaks.flops);
    json_member_number(&w, "peak_bandwidth", report->peaks.bandwidth);
    json_member_open(&w, "profiles", '[');
    for (int i = 0; i < report->count; i++) write_profile(&w, &report->profiles[i]);
    json_write_close(&w, ']');
    json_write_close(&w, '}');
    return json_writer_save(&w, path);
}

void infer_benchmark_free(Benchmark *report) {
    for (int i = 0; i < report->count; i++) path_times_free(&report->profiles[i].times);
    memory_free(report->profiles);
    *report = (Benchmark){0};
}
