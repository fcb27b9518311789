#include "run/report.h"

#include "base/memory.h"
#include "base/stats.h"
#include "base/wrap.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Fast steps do not flood the terminal; the log contains all of them. */
#define LINE_SECONDS 0.5

Status report_open(Report *r, const char *log, bool append, int64_t done, int64_t steps, bool quiet) {
    r->steps = steps;
    r->progress = progress_open(stdout, stderr, done, steps, quiet);
    return events_open(log, append, &r->events);
}

void report_close(Report *r) {
    progress_close(r->progress);
    events_close(r->events);
    tensorboard_close(r->board);
    for (int i = 0; i < STEP_FIGURES; i++) memory_free(r->figures[i].values);
}

/* The unit of a model's input. */
static const char *unit(const Report *r) {
    return r->pictures ? "images/s" : "tok/s";
}
static const char *rate_key(const Report *r) {
    return r->pictures ? "images_per_s" : "tokens_per_s";
}

/* The log writes an unknown share as null. */
static Mfu mfu_at(const Report *r, double needed_per_s) {
    return mfu_of(needed_per_s, r->peaks.dense, r->peaks.flops, r->cores_waited);
}

typedef struct {
    char text[48];
} Share;

/* ", MFU 48.0%", or nothing if the share is unknown. */
static Share share_text(const char *before, Mfu mfu) {
    Share s = {""};
    if (!isnan(mfu.share)) snprintf(s.text, sizeof s.text, "%sMFU %.1f%%", before, 100 * mfu.share);
    return s;
}

static const char *form_remark(const Ctx *ctx, Operation operation) {
    if (op_form(ctx, operation, ctx->dtype) == FORM_FUSED) return "";
    if (!slots_filled(ctx->device->backend, ctx->dtype, operation, FORM_NAIVE)) return " (by operations)";
    return ctx->fuses >> operation & 1 ? " (naive: no fused form here)" : " (naive)";
}

enum { FACT = 21 }; // the column in which values of the configuration begin

static void print_forms(const Trainer *t) {
    char text[2048] = "";
    for (int i = 0; i < OP_COUNT; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s%s", i ? ", " : "", operation_name((Operation)i),
                 form_remark(&t->ctx, (Operation)i));
    }
    const char *fp8 = !(t->ctx.fuses & FUSE_FP8) ? ""
                      : linear_multiplies_fp8(&t->ctx)
                          ? ", fp8"
                          : ", fp8 (emulated: rounded operands, multiplied in wider types)";
    print_report("  fused", FACT, stdout, "%s%s", text, fp8);
}

static void print_model(const Session *s) {
    const Config *c = &s->config;
    char input[128];
    if (c->architecture->patches)
        snprintf(input, sizeof input,
                 "%" PRId64 " x %" PRId64 " %spixels in patches of %" PRId64 ", %" PRId64 " classes",
                 c->image, c->image, c->channels == 1 ? "grey " : "", c->patch, c->vocab);
    else
        snprintf(input, sizeof input, "context %" PRId64 ", vocab %" PRId64 " (%" PRId64 " with padding)",
                 c->context, c->vocab, config_padded_vocab(c));
    print_report("  model", FACT, stdout,
                 "%s: %" PRId64 " layers, %" PRId64 " heads, width %" PRId64 ", %s, %.2fM parameters%s",
                 session_model_name(s), c->layers, c->heads, c->width, input,
                 1e-6 * (double)config_parameters(c), c->new_head ? ", with a new head" : "");
    if (c->other_head) print_report("", FACT, stdout, "the folder's head for %s is not used", c->other_head);
}

static void print_recomputation(const Transformer *m) {
    const char *const kinds[] = {"nothing", "hidden activations", "everything"};
    printf("  %-18s %s in each block", "recomputed", kinds[m->recompute]);
    if (m->spared)
        printf(", %s in the lowest %" PRId64 " of %" PRId64, kinds[m->recompute - 1], m->spared,
               m->config.layers);
    printf("\n");
}

static void print_configuration(const Report *r, const Session *s, const Trainer *t, const Feed *feed) {
    printf("configuration\n");
    print_model(s);
    print_report("  device", FACT, stdout, "%s, %s", s->device->name, s->device->library);
    printf("  %-18s %s%s%s\n", "precision", session_dtype_name(s),
           s->dtype == BF16 && !s->bf16_fast ? " (slow: products in fp32 are faster on this processor)" : "",
           t->model.parameters.narrow_moments ? ", moments in bf16" : "");
    print_forms(t);
    if (t->model.recompute) print_recomputation(&t->model);
    printf("  %-18s ", "data");
    feed->batches->print(feed->source, s);
    if (t->comm)
        printf("  %-18s %d, by %s%s\n", "ranks", t->comm->size, t->comm->name,
               t->model.parameters.sharded ? ", each with its shard of the optimizer's state" : "");
    bool patches = s->config.architecture->patches;
    printf("  %-18s %" PRId64, "step", t->batch);
    if (!patches) printf(" x %" PRId64, t->seq);
    printf(" x %" PRId64, t->accum);
    if (t->comm) printf(" x %d", t->comm->size);
    printf(" = %" PRId64 " %s (batch%s x accum%s), %.3g GFLOP%s\n", t->tokens,
           r->pictures ? "pictures" : "tokens", patches ? "" : " x seq", t->comm ? " x ranks" : "",
           1e-9 * t->work.flops, t->comm ? " a rank" : "");
    if (peaks_known(&r->peaks) || r->peaks.note)
        print_report("  limits, measured", FACT, stdout, "%s", limits_text(&r->peaks).text);
    if (peaks_known(&r->peaks) && r->peaks.note)
        print_report("", FACT, stdout, "kept from an earlier run: %s", r->peaks.note);
}

Status report_start(Report *r, const Session *s, const Trainer *t, const Feed *feed, const char *options,
                    bool quiet) {
    r->pictures = s->config.architecture->patches;
    r->planned = (double)plan_bytes(&t->ctx);
    if (!quiet) {
        print_configuration(r, s, t, feed);
        plan_print(&t->ctx, 0, stdout);
        fflush(stdout);
    }
    JsonWriter *w = events_begin(r->events, "config");
    json_member_text(w, "device", s->device->name);
    json_member_text(w, "library", s->device->library);
    json_member_text(w, "dtype", session_dtype_name(s));
    json_member_integer(w, "parameters", config_parameters(&s->config));
    if (t->comm) {
        json_member_integer(w, "ranks", t->comm->size);
        json_member_text(w, "comm", t->comm->name);
    }
    feed->batches->record(feed->source, w);
    json_member_number(w, "step_flops", t->work.flops);
    json_member_number(w, "peak_flops", r->peaks.flops);
    json_member_number(w, "peak_bandwidth", r->peaks.bandwidth);
    json_write_key(w, "options");
    json_write_json(w, options);
    TRY(events_end(r->events));
    w = events_begin(r->events, "plan");
    for (int i = 0; i < ARENA_COUNT; i++)
        json_member_integer(w, t->ctx.arenas[i].name, (int64_t)t->ctx.arenas[i].peak);
    json_member_integer(w, "total", (int64_t)plan_bytes(&t->ctx));
    r->cores = cores_read();
    return events_end(r->events);
}

static Status draw_step(Report *r, int64_t step, const StepResult *result, double learning_rate,
                        double rate) {
    TRY(tensorboard_add(r->board, "loss/train", step, result->loss));
    TRY(tensorboard_add(r->board, "gradient norm", step, result->norm));
    TRY(tensorboard_add(r->board, "learning rate", step, learning_rate));
    TRY(tensorboard_add(r->board, r->pictures ? "images per second" : "tokens per second", step, rate));
    return tensorboard_flush(r->board);
}

/* A run may be long, and its memory must not grow: only the later half of the steps is kept. */
static void remember(Series *series, double value) {
    enum { STEPS_KEPT = 1 << 13 };
    if (series->count == STEPS_KEPT) {
        series->count /= 2;
        memmove(series->values, series->values + series->count,
                (size_t)series->count * sizeof *series->values);
    }
    series_add(series, value);
}

Status report_step(Report *r, const Trainer *t, int64_t step, const StepResult *result, double learning_rate,
                   const StepCost *cost) {
    double seconds = fmax(1e-3 * cost->ms, 1e-9), rate = (double)t->tokens / seconds;
    double flops = t->work.needed / seconds;
    remember(&r->figures[STEP_MS], cost->ms);
    remember(&r->figures[STEP_TOKENS_PER_S], rate);
    remember(&r->figures[STEP_FLOPS_PER_S], flops);
    r->waited_ms += cost->reader_ms;
    bool due = device_clock() >= r->next_line || step == r->steps;
    if (due) r->next_line = device_clock() + LINE_SECONDS;
    if (due) r->cores_waited = cores_waited(r->cores);
    const Mfu mfu = mfu_at(r, flops);
    char line[1 << 10], blamed[40] = "", clipped[40] = "", reader[40] = "";
    if (cost->reader_ms >= 0.01) snprintf(reader, sizeof reader, " | reader %.2f ms", cost->reader_ms);
    if (result->blamed >= 0) snprintf(blamed, sizeof blamed, ", first on rank %d", result->blamed);
    if (result->clipped) snprintf(clipped, sizeof clipped, " | %" PRId64 " casts clipped", result->clipped);
    if (result->skipped)
        progress_line(r->progress,
                      "step %" PRId64 ": loss %g or norm %g is not finite%s; the update is skipped", step,
                      result->loss, result->norm, blamed);
    if (due) {
        int columns =
            snprintf(line, sizeof line,
                     "step %5" PRId64 "/%" PRId64 " | loss %.6f | norm %.4f | lr %.3e | %8.2f ms | %.0f %s%s",
                     step, r->steps, result->loss, result->norm, learning_rate, cost->ms, rate, unit(r),
                     share_text(" | ", mfu).text);
        bool fits = columns + (int)(strlen(reader) + strlen(clipped)) <= REPORT_WIDTH;
        progress_line(r->progress, "%s%s%s%s", line, fits ? "" : "\n          ", reader, clipped);
    }
    progress_step(r->progress, step, 1e-3 * cost->ms);
    TRY(draw_step(r, step, result, learning_rate, rate));
    JsonWriter *w = events_begin(r->events, result->skipped ? "skip" : "step");
    json_member_integer(w, "step", step);
    json_member_number(w, "loss", result->loss);
    json_member_number(w, "norm", result->norm);
    json_member_number(w, "lr", learning_rate);
    json_member_number(w, "ms", cost->ms);
    json_member_number(w, "data_ms", cost->reader_ms);
    json_member_number(w, rate_key(r), rate);
    json_member_number(w, "mfu", mfu.share);
    if (t->ctx.fuses & FUSE_FP8) json_member_integer(w, "clipped", result->clipped);
    return events_end(r->events);
}

Status report_validation(Report *r, int64_t step, const Validation *v) {
    char accuracy[80] = "";
    if (r->pictures)
        snprintf(accuracy, sizeof accuracy, " | accuracy %.2f%%, top 5 %.2f%%", 100 * v->top1, 100 * v->top5);
    progress_line(r->progress, "step %5" PRId64 "/%" PRId64 " | validation loss %.6f%s", step, r->steps,
                  v->loss, accuracy);
    TRY(tensorboard_add(r->board, "loss/validation", step, v->loss));
    TRY(tensorboard_flush(r->board));
    JsonWriter *w = events_begin(r->events, "val");
    json_member_integer(w, "step", step);
    json_member_number(w, "loss", v->loss);
    if (r->pictures) {
        json_member_number(w, "top1", v->top1);
        json_member_number(w, "top5", v->top5);
        TRY(tensorboard_add(r->board, "accuracy/top 1", step, v->top1));
        TRY(tensorboard_add(r->board, "accuracy/top 5", step, v->top5));
    }
    return events_end(r->events);
}

static Status report_skipped(Report *r, int64_t step, const Feed *feed, const void *source,
                             int64_t *reported) {
    char *message;
    while (source && (message = feed->batches->skipped(source, *reported)) != NULL) {
        ++*reported;
        progress_line(r->progress, "skipped %s", message);
        JsonWriter *w = events_begin(r->events, "broken");
        json_member_integer(w, "step", step);
        json_member_text(w, "message", message);
        memory_free(message);
        TRY(events_end(r->events));
    }
    return OK;
}

Status report_passed(Report *r, int64_t step, const Feed *feed) {
    if (!feed->batches->skipped) return OK;
    TRY(report_skipped(r, step, feed, feed->source, &r->passed[0]));
    return report_skipped(r, step, feed, feed->val_source, &r->passed[1]);
}

Status report_sample(Report *r, int64_t step, const char *text, int64_t length) {
    progress_line(r->progress, "---- sample at step %" PRId64, step);
    progress_line(r->progress, "%.*s", (int)length, text);
    progress_line(r->progress, "----");
    JsonWriter *w = events_begin(r->events, "sample");
    json_member_integer(w, "step", step);
    json_write_key(w, "text");
    json_write_string(w, text, length);
    return events_end(r->events);
}

Status report_save(Report *r, int64_t step, const char *folder) {
    progress_line(r->progress, "saved %s", folder);
    JsonWriter *w = events_begin(r->events, "save");
    json_member_integer(w, "step", step);
    json_member_text(w, "folder", folder);
    return events_end(r->events);
}

Status report_end(Report *r, int64_t step, const char *reason) {
    /* The first half is warm-up: caches, clocks, plans. */
    int64_t early = r->figures[STEP_MS].count / 2, late = r->figures[STEP_MS].count - early;
    double *ms = r->figures[STEP_MS].values + early, middles[STEP_FIGURES];
    for (int i = 0; i < STEP_FIGURES && late; i++) // median sorts the late half
        middles[i] = median(r->figures[i].values + early, late);
    double waited = r->cores_waited = cores_waited(r->cores);
    const Mfu mfu = mfu_at(r, late ? middles[STEP_FLOPS_PER_S] : 0);
    progress_hide(r->progress);
    if (late) {
        progress_line(r->progress,
                      "%s: median of the last %" PRId64 " step%s %.2f ms (%.2f to %.2f), %.0f %s%s; waited "
                      "%.1f ms for data in all",
                      reason, late, late == 1 ? "" : "s", middles[STEP_MS], ms[0], ms[late - 1],
                      middles[STEP_TOKENS_PER_S], unit(r), share_text(", ", mfu).text, r->waited_ms);
        if (!isnan(mfu.share))
            progress_line(r->progress, "MFU: the model's FLOPs, as a share of the %s", mfu.of);
    } else {
        progress_line(r->progress,
                      "%s: step %" PRId64 " of %" PRId64 " was already done; a larger --steps continues",
                      reason, step, r->steps);
    }
    if (r->passed[0] + r->passed[1])
        progress_line(r->progress, "broken pictures that were skipped: %" PRId64,
                      r->passed[0] + r->passed[1]);
    if (late && waited > CORES_SHARED) progress_line(r->progress, "%s", cores_warning(waited).text);
    const int64_t host = memory_process_peak();
    if (late)
        progress_line(r->progress, "memory: %s planned; the process used at most %s of host memory",
                      in_words(CELL_BYTES, r->planned).text, in_words(CELL_BYTES, (double)host).text);
    JsonWriter *w = events_begin(r->events, "end");
    json_member_integer(w, "step", step);
    json_member_text(w, "reason", reason);
    if (late) {
        json_member_number(w, "median_ms", middles[STEP_MS]);
        json_member_number(w, "low_ms", ms[0]);
        json_member_number(w, "high_ms", ms[late - 1]);
        json_member_number(w, rate_key(r), middles[STEP_TOKENS_PER_S]);
        json_member_number(w, "mfu", mfu.share);
        json_member_text(w, "mfu_of", mfu.of);
        json_member_number(w, "data_ms", r->waited_ms);
        json_member_number(w, "planned_bytes", r->planned);
        json_member_integer(w, "host_peak_bytes", host);
        json_member_number(w, "cores_waited", waited);
    }
    return events_end(r->events);
}
