#include "run/infer_benchmark.h"

#include "base/cores.h"
#include "base/json_writer.h"
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

/* The passes of one size, in both forms alternately or in the session's form alone. */
typedef struct {
    Inference *in;
    const Session *session;
    const BenchmarkSize *size;
    Form first; // of the forms up to FORM_FUSED
    int64_t repeats;
    Recorder *recorders[FORM_COUNT]; // recorders of operations; NULL: whole passes are timed
    double *ms[FORM_COUNT];          // (repeats) times of whole passes
    BenchmarkResult *results[FORM_COUNT];
} Turns;

static void choose_form(const Turns *t, Form form) {
    t->in->ctx.fuses = form == FORM_NAIVE ? 0 : t->session->fuses;
}

/* Rounds before 0 are warm-up. */
static Status run_turn(Turns *t, Form form, int64_t round, bool first) {
    Inference *in = t->in;
    Recorder *recorder = t->recorders[form];
    choose_form(t, form);
    in->ctx.recorder = recorder;
    in->ctx.step = round;
    double start = device_clock();
    Status status =
        inference_logits(in, first || recorder ? t->size->tokens : NULL, t->size->batch, t->size->seq);
    in->ctx.recorder = NULL;
    if (status || recorder) return status;
    TRY(in->ctx.device->synchronize(in->ctx.device));
    if (round >= 0) t->ms[form][round] = 1e3 * (device_clock() - start);
    t->results[form]->work = in->work;
    return OK;
}

/* Every second round begins with the fused form. */
static Status rounds(Turns *t, int64_t warmup) {
    const int count = FORM_COUNT - (int)t->first;
    for (int64_t round = -warmup; round < t->repeats; round++)
        for (int turn = 0; turn < count; turn++) {
            Form form = (Form)(t->first + (round % 2 ? count - 1 - turn : turn));
            TRY(run_turn(t, form, round, round == -warmup && !turn));
        }
    return OK;
}

static Status time_passes(Turns *t, int64_t warmup) {
    const CoreTimes cores = cores_read();
    OWNED double *ms = memory_array((size_t)t->repeats * FORM_COUNT, sizeof *ms);
    for (int form = t->first; form < FORM_COUNT; form++) t->ms[form] = ms + form * t->repeats;
    TRY(rounds(t, warmup));
    if (t->first == FORM_NAIVE)
        t->results[FORM_FUSED]->pairs = pairs_ratio(t->ms[FORM_NAIVE], t->ms[FORM_FUSED], t->repeats);
    for (int form = t->first; form < FORM_COUNT; form++) {
        t->results[form]->ms = stats_make(t->ms[form], t->repeats);
        t->results[form]->cores_waited = cores_waited(cores);
    }
    return OK;
}

static Status time_operations(Turns *t, const Peaks *peaks) {
    const RecorderOptions options = {.primitives = true, .timed = true};
    for (int form = t->first; form < FORM_COUNT; form++)
        t->recorders[form] = recorder_open(t->in->ctx.device, &options);
    Status status = rounds(t, 0);
    for (int form = t->first; form < FORM_COUNT; form++) {
        if (!status)
            status =
                timed_operations_read(t->recorders[form], peaks, "--repeats", &t->results[form]->operations);
        recorder_close(t->recorders[form]);
    }
    choose_form(t, FORM_FUSED);
    return status;
}

/* The planned memory is that of the largest pass, so it is not printed for others. */
static void print_comparison(const Turns *t, const Peaks *peaks, FILE *file) {
    const Inference *in = t->in;
    const BenchmarkResult *fused = t->results[FORM_FUSED];
    Comparison c = {.what = "pass",
                    .device = t->session->device->name,
                    .library = t->session->device->library,
                    .dtype = session_dtype_name(t->session),
                    .model = session_model_name(t->session),
                    .batch = fused->batch,
                    .seq = fused->seq,
                    .rounds = fused->repeats,
                    .peaks = *peaks,
                    .cores_waited = fused->cores_waited,
                    .path_count = FORM_COUNT};
    for (int form = 0; form < FORM_COUNT; form++) {
        const BenchmarkResult *r = t->results[form];
        c.paths[form] =
            (PathTimes){.operations = r->operations,
                        .step = r->ms,
                        .peak_bytes = in->batch == c.batch && in->seq == c.seq ? in->bytes[form] : 0,
                        .pairs = r->pairs,
                        .differences = r->differences,
                        .difference_count = r->difference_count};
    }
    fprintf(file, "\n");
    compare_print(&c, file);
}

static void print_operations(const BenchmarkResult *r, FILE *file) {
    fprintf(file,
            "\nbatch %" PRId64 ", seq %" PRId64 ": operations, medians of %" PRId64
            " pass%s, launched one by one\n",
            r->batch, r->seq, r->repeats, r->repeats == 1 ? "" : "es");
    timed_operations_print(&r->operations, file);
}

Status infer_benchmark_measure(Inference *in, const Session *session, const InferOptions *o,
                               const BenchmarkSize *size, Benchmark *report) {
    const Form first = o->compare ? FORM_NAIVE : FORM_FUSED;
    Turns t = {.in = in, .session = session, .size = size, .first = first, .repeats = o->repeats};
    report->profiles =
        memory_grow(report->profiles, &report->room, report->count + FORM_COUNT, sizeof *report->profiles);
    for (int form = first; form < FORM_COUNT; form++) {
        t.results[form] = &report->profiles[report->count++];
        *t.results[form] = (BenchmarkResult){.label = o->compare ? form_name(form) : "",
                                             .batch = size->batch,
                                             .seq = size->seq,
                                             .repeats = o->repeats};
    }
    BenchmarkResult *fused = t.results[FORM_FUSED];
    TRY(time_passes(&t, o->warmup_runs));
    TRY(time_operations(&t, &report->peaks));
    if (o->compare)
        TRY(infer_benchmark_differences(in, size, session->fuses, &fused->differences,
                                        &fused->difference_count));
    if (o->quiet) return OK;
    if (o->compare)
        print_comparison(&t, &report->peaks, stdout);
    else
        print_operations(fused, stdout);
    return OK;
}

/* ---- reports ---- */

static double seconds(const BenchmarkResult *p) {
    return 1e-3 * p->ms.median;
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
                p->seq, *p->label ? p->label : "-", p->ms.median, p->ms.least, p->ms.most,
                tokens_per_second(p), rate * (tera ? 1e-12 : 1e-9), share);
        if (p->pairs.median > 0)
            fprintf(file, "%14s fused is %.2f times as fast (95%% interval %.2f to %.2f)\n", "",
                    p->pairs.median, p->pairs.low, p->pairs.high);
        if (p->cores_waited > CORES_SHARED)
            print_report("", 0, file, "%s", cores_warning(p->cores_waited).text);
    }
}

/* Writes an operation or, with `inside`, one of its primitives. */
static void write_row(JsonWriter *w, const BenchmarkResult *p, const OperationRow *r,
                      const InsideRow *inside) {
    const Difference *d =
        inside ? NULL : difference_find(p->differences, p->difference_count, r->call, r->operation, r->pass);
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
    const Figures *f = &p->operations.figures;
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
    json_member_number(w, "ms", p->ms.median);
    json_member_number(w, "ms_low", p->ms.least);
    json_member_number(w, "ms_high", p->ms.most);
    json_member_number(w, "cores_waited", p->cores_waited);
    json_member_number(w, "tokens_per_s", tokens_per_second(p));
    json_member_number(w, "flops", p->work.flops);
    json_member_number(w, "least_bytes", p->work.bytes);
    if (p->pairs.median > 0) {
        json_member_number(w, "ratio", p->pairs.median);
        json_member_number(w, "ratio_low", p->pairs.low);
        json_member_number(w, "ratio_high", p->pairs.high);
    }
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
    for (int i = 0; i < report->count; i++) {
        timed_operations_free(&report->profiles[i].operations);
        memory_free(report->profiles[i].differences);
    }
    memory_free(report->profiles);
    *report = (Benchmark){0};
}
