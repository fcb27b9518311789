#include "profile/bundle.h"

#include "base/memory.h"
#include "profile/bundle_read.h"
#include "profile/bundle_timeline.h"
#include "profile/kernel_name.h"
#include "profile/stats.h"

enum { LARGEST = 50 }; // tensors

/* A bundle's texts are its own; none is an empty one. */
static char *own(const char *text) {
    return memory_text(text ? text : "");
}

static void *rows_for(int64_t count, size_t size) {
    return memory_array((size_t)count + 1, size);
}

static BundleRun run_of(const TraceRun *r) {
    return (BundleRun){.program = own(r->program),
                       .model = own(r->model),
                       .dtype = own(r->dtype),
                       .device = own(r->device),
                       .library = own(r->library),
                       .host = own(r->host),
                       .batch = r->batch,
                       .seq = r->seq,
                       .accum = r->accum,
                       .layers = r->layers,
                       .heads = r->heads,
                       .width = r->width,
                       .parameters = r->parameters};
}

static BundleStep step_of(const Figures *f) {
    const char *name = f->trace->run.step;
    if (!*name) name = figures_pass_ns(f, PASS_UPDATE) > 0 ? "step" : "forward pass";
    return (BundleStep){.name = own(name),
                        .recorded = f->steps,
                        .timed = f->timed,
                        .ns = 1e6 * f->step_ms,
                        .low = 1e6 * f->low,
                        .high = 1e6 * f->high,
                        .traced = f->step_ns,
                        .overhead = f->overhead,
                        .reader = 1e6 * f->reader_ms,
                        .device = f->device_ns,
                        .covered = ratio(f->covered_ns, f->step_ns),
                        .tokens = f->tokens,
                        .launches = f->launches};
}

static BundlePhase phase_of(Phase phase, const PhaseRow *row) {
    BundlePhase made = {.phase = own(phase_name(phase)), .ns = row->ns};
    made.categories = rows_for(CATEGORY_COUNT, sizeof *made.categories);
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (row->categories[c] > 0)
            made.categories[made.categories_count++] =
                (BundleShare){own(category_name((Category)c)), row->categories[c]};
    return made;
}

static BundleRow row_of(const OperationRow *r, const Peaks *peaks) {
    const char *limit = limit_is_arithmetic(peaks, r->work) ? "matrix" : "bandwidth";
    BundleRow row = {.call = own(r->call),
                     .operation = own(operation_name(r->operation)),
                     .pass = own(pass_name(r->pass)),
                     .form = own(form_name(r->form)),
                     .category = own(category_name(r->category)),
                     .source = own(r->source),
                     .ns = r->ns,
                     .low = r->low,
                     .high = r->high,
                     .host_ns = r->host_ns,
                     .calls = r->calls,
                     .launches = r->launches,
                     .flops = r->work.flops,
                     .least_bytes = r->work.bytes,
                     .share_of_limit = limit_share(peaks, r->work, r->ns),
                     .memory_bytes = r->memory,
                     .limit = own(peaks_known(peaks) ? limit : ""),
                     .inside = rows_for(r->inside_count, sizeof *row.inside),
                     .inside_count = r->inside_count};
    for (int64_t i = 0; i < r->inside_count; i++) {
        const InsideRow *inside = &r->inside[i];
        row.inside[i] = (BundleInside){own(inside->name), own(category_name(inside->category)), inside->ns,
                                       inside->calls, inside->launches};
    }
    return row;
}

static BundleKernel kernel_of(const KernelRow *k) {
    char label[KERNEL_NAME_BYTES], decoded[KERNEL_NAME_BYTES];
    kernel_label(k->name, label);
    kernel_decode(k->name, decoded);
    return (BundleKernel){.name = own(k->name),
                          .label = own(label),
                          .decoded = own(decoded),
                          .kind = own(trace_kind_name(k->kind)),
                          .category = own(category_name(k->category)),
                          .call = own(k->call),
                          .forward = k->in[PASS_FORWARD],
                          .backward = k->in[PASS_BACKWARD],
                          .update = k->in[PASS_UPDATE]};
}

static void add_memory(const Figures *f, BundlePath *path) {
    const Trace *t = f->trace;
    path->peak_bytes = f->peak_bytes;
    path->classes = rows_for(MEMORY_CLASS_COUNT, sizeof *path->classes);
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
        if (f->peak_classes[c])
            path->classes[path->classes_count++] =
                (BundleMemory){.class_ = own(memory_class_name((MemoryClass)c)), .bytes = f->peak_classes[c]};
    path->largest_count = t->tensor_count < LARGEST ? t->tensor_count : LARGEST;
    path->largest = rows_for(path->largest_count, sizeof *path->largest);
    for (int64_t i = 0; i < path->largest_count; i++)
        path->largest[i] = (BundleMemory){own(t->tensors[i].name),
                                          own(memory_class_name(t->tensors[i].class_)), t->tensors[i].bytes};
}

static char *timeline_of(const Trace *trace) {
    JsonWriter w = {0};
    bundle_timeline(trace, &w);
    return w.text;
}

static char *tables_of(const Tables *tables) {
    JsonWriter w = {0};
    json_write_open(&w, '[');
    for (int i = 0; i < tables->count; i++) {
        json_write_line(&w, 3, true);
        table_write_json(&tables->tables[i], &w);
    }
    json_write_close(&w, ']');
    return w.text;
}

static BundlePath path_of(const ProfilePath *from) {
    const Figures *f = &from->figures;
    const Trace *t = from->trace;
    BundlePath path = {.label = own(from->label),
                       .source = own(source_name(t->run.source)),
                       .source_note = own(t->run.source_note),
                       .window = own(t->run.window),
                       .step = step_of(f),
                       .phases = rows_for(PHASE_COUNT, sizeof *path.phases),
                       .rows = rows_for(f->row_count, sizeof *path.rows),
                       .rows_count = f->row_count,
                       .kernels = rows_for(f->kernel_count, sizeof *path.kernels),
                       .kernels_count = f->kernel_count,
                       .audit = rows_for(t->finding_count, sizeof *path.audit),
                       .audit_count = t->finding_count,
                       .timeline = timeline_of(t),
                       .tables = tables_of(&from->tables)};
    for (int p = 0; p < PHASE_COUNT; p++)
        if (f->phases[p].ns > 0) path.phases[path.phases_count++] = phase_of((Phase)p, &f->phases[p]);
    for (int64_t i = 0; i < f->row_count; i++) path.rows[i] = row_of(&f->rows[i], &t->run.measured);
    for (int64_t i = 0; i < f->kernel_count; i++) path.kernels[i] = kernel_of(&f->kernels[i]);
    for (int64_t i = 0; i < t->finding_count; i++)
        path.audit[i] =
            (BundleCheck){own(t->findings[i].name), own(t->findings[i].detail), t->findings[i].passed};
    add_memory(f, &path);
    return path;
}

static BundleAnswer answer_of(const Answer *from) {
    BundleAnswer answer = {.question = own(from->question),
                           .lines = rows_for(from->count, sizeof *answer.lines),
                           .lines_count = from->count};
    for (int64_t i = 0; i < from->count; i++) answer.lines[i] = own(from->lines[i]);
    return answer;
}

void bundle_render(const Profile *profile, const Answers *answers, JsonWriter *writer) {
    const TraceRun *run = &profile->paths[0].trace->run;
    Bundle b = {.schema = own(BUNDLE_SCHEMA),
                .version = BUNDLE_VERSION,
                .run = run_of(run),
                .measured = run->measured,
                .sheet = run->sheet,
                .paths = rows_for(profile->count, sizeof *b.paths),
                .paths_count = profile->count,
                .differences = rows_for(profile->difference_count, sizeof *b.differences),
                .differences_count = profile->difference_count,
                .answers = rows_for(QUESTION_COUNT, sizeof *b.answers),
                .answers_count = QUESTION_COUNT};
    for (int i = 0; i < profile->count; i++) b.paths[i] = path_of(&profile->paths[i]);
    for (int i = 0; i < profile->difference_count; i++) {
        const Difference *d = &profile->differences[i];
        b.differences[i] = (BundleDifference){own(d->call), own(operation_name(d->operation)),
                                              own(pass_name(d->pass)), d->difference};
    }
    for (int i = 0; i < QUESTION_COUNT; i++) b.answers[i] = answer_of(&answers->answers[i]);
    fields_write(writer, bundle_fields, &b);
    bundle_free(&b);
}
