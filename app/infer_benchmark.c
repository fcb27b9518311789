#include "app/infer_benchmark.h"

#include "base/files.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/random.h"

#include <inttypes.h>
#include <string.h>

void infer_benchmark_tokens(int32_t *tokens, int64_t count, int64_t vocab, uint64_t seed) {
    enum { STREAM = 0x746F6B73 }; // apart from everything else that the seed makes
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(seed, STREAM, (uint64_t)i, (uint64_t)vocab);
}

static Status time_passes(Inference *in, const int32_t *tokens, int64_t warmup, BenchmarkResult *p) {
    double *ms = memory_array((size_t)p->repeats, sizeof *ms);
    Status status = OK;
    for (int64_t i = -warmup; i < p->repeats && !status; i++) {
        double start = device_clock();
        status = inference_logits(in, tokens, p->batch, p->seq);
        if (!status) status = in->ctx.device->synchronize(in->ctx.device);
        if (i >= 0) ms[i] = 1e3 * (device_clock() - start);
    }
    p->work = in->work;
    p->ms = median(ms, p->repeats); // sorts
    p->low = ms[0];
    p->high = ms[p->repeats - 1];
    memory_free(ms);
    return status;
}

static Status time_operations(Inference *in, const int32_t *tokens, Recorder *recorder, BenchmarkResult *p) {
    const Record *records;
    int64_t count, dropped;
    for (int64_t i = 0; i < p->repeats; i++) {
        in->ctx.step = i;
        TRY(inference_logits(in, tokens, p->batch, p->seq));
    }
    TRY(recorder_read(recorder, &records, &count, &dropped));
    if (dropped)
        return fail(ERROR_INTERNAL, "%" PRId64 " records were dropped; use fewer --repeats", dropped);
    return summary_make(records, count, 0, p->repeats, true, &p->operations);
}

static Status measure(Inference *in, const int32_t *tokens, int64_t warmup, BenchmarkResult *p) {
    const RecorderOptions options = {.primitives = true, .timed = true};
    TRY(time_passes(in, tokens, warmup, p));
    TRY(recorder_open(in->ctx.device, &options, &in->ctx.recorder));
    Status status = time_operations(in, tokens, in->ctx.recorder, p);
    recorder_close(in->ctx.recorder);
    in->ctx.recorder = NULL;
    return status;
}

Status infer_benchmark_measure(Inference *in, const int32_t *tokens, int64_t warmup,
                               const BenchmarkResult *what, Benchmark *report, FILE *file) {
    report->profiles =
        memory_grow(report->profiles, &report->room, report->count + 1, sizeof *report->profiles);
    BenchmarkResult *p = &report->profiles[report->count];
    *p = *what;
    TRY(measure(in, tokens, warmup, p));
    report->count++;
    if (!file) return OK;
    fprintf(file,
            "\nbatch %" PRId64 ", seq %" PRId64 "%s%s: operations, medians of %" PRId64
            " passes, launched one by one\n",
            p->batch, p->seq, *p->label ? ", " : "", p->label, p->repeats);
    summary_print(&p->operations, &report->peaks, file);
    return OK;
}

typedef struct {
    Inference *inference;
    const BenchmarkSize *size;
} SizedPass;

static Status run_pass(Ctx *ctx, void *program, StepCost *cost) {
    const SizedPass *pass = program;
    const BenchmarkSize *size = pass->size;
    (void)cost;
    scope_begin(ctx, "step");
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

static double seconds(const BenchmarkResult *p) {
    return 1e-3 * p->ms;
}

static double tokens_per_second(const BenchmarkResult *p) {
    return (double)p->batch * (double)p->seq / seconds(p);
}

void infer_benchmark_print(const Benchmark *report, FILE *file) {
    fprintf(file, "\n%6s %6s %-6s %10s %21s %12s %9s %6s\n", "batch", "seq", "form", "ms", "spread", "tok/s",
            "TFLOP/s", "MFU");
    for (int i = 0; i < report->count; i++) {
        const BenchmarkResult *p = &report->profiles[i];
        double rate = p->work.flops / seconds(p);
        double share = report->peaks.flops > 0 ? rate / report->peaks.flops : 0;
        fprintf(file, "%6" PRId64 " %6" PRId64 " %-6s %10.3f %10.3f-%10.3f %12.0f %9.3f %5.1f%%\n", p->batch,
                p->seq, *p->label ? p->label : "-", p->ms, p->low, p->high, tokens_per_second(p),
                1e-12 * rate, 100 * share);
    }
}

static void write_text(JsonWriter *w, const char *key, const char *text) {
    json_write_key(w, key);
    json_write_string(w, text, (int64_t)strlen(text));
}

static void write_number(JsonWriter *w, const char *key, double value) {
    json_write_key(w, key);
    json_write_number(w, value);
}

static void write_row(JsonWriter *w, const SummaryRow *row) {
    json_write_line(w, 6, true);
    json_write_open(w, '{');
    write_text(w, "place", row->call);
    write_text(w, "operation", operation_name(row->operation));
    if (row->primitive) write_text(w, "primitive", row->primitive);
    write_text(w, "form", form_name(row->form));
    write_number(w, "ms", row->ms);
    write_number(w, "ms_low", row->ms_low);
    write_number(w, "ms_high", row->ms_high);
    write_number(w, "calls", row->calls);
    write_number(w, "launches", row->launches);
    write_number(w, "flops", row->work.flops);
    write_number(w, "least_bytes", row->work.bytes);
    json_write_close(w, '}');
}

static void write_profile(JsonWriter *w, const BenchmarkResult *p) {
    json_write_line(w, 2, true);
    json_write_open(w, '{');
    write_number(w, "batch", (double)p->batch);
    write_number(w, "seq", (double)p->seq);
    write_text(w, "form", p->label);
    write_number(w, "ms", p->ms);
    write_number(w, "ms_low", p->low);
    write_number(w, "ms_high", p->high);
    write_number(w, "tokens_per_s", tokens_per_second(p));
    write_number(w, "flops", p->work.flops);
    write_number(w, "least_bytes", p->work.bytes);
    json_write_key(w, "operations");
    json_write_open(w, '[');
    for (int i = 0; i < p->operations.count; i++) write_row(w, &p->operations.rows[i]);
    json_write_close(w, ']');
    json_write_close(w, '}');
}

Status infer_benchmark_write(const Benchmark *report, const Device *device, const char *dtype,
                             const char *model, const char *path) {
    JsonWriter w = {0};
    json_write_open(&w, '{');
    write_number(&w, "schema", 1);
    write_text(&w, "device", device->name);
    write_text(&w, "library", device->library);
    write_text(&w, "dtype", dtype);
    write_text(&w, "model", model);
    write_number(&w, "peak_flops", report->peaks.flops);
    write_number(&w, "peak_bandwidth", report->peaks.bandwidth);
    json_write_key(&w, "profiles");
    json_write_open(&w, '[');
    for (int i = 0; i < report->count; i++) write_profile(&w, &report->profiles[i]);
    json_write_close(&w, ']');
    json_write_close(&w, '}');
    Status status = json_writer_status(&w);
    if (!status) status = file_write(path, w.text, (int64_t)w.length);
    json_writer_free(&w);
    return status;
}

void infer_benchmark_free(Benchmark *report) {
    for (int i = 0; i < report->count; i++) summary_free(&report->profiles[i].operations);
    memory_free(report->profiles);
    *report = (Benchmark){0};
}
