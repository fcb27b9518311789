#include "profile/bundle.h"

#include "profile/kernel_name.h"
#include "profile/summary.h"

#include <string.h>

/* ---- about the run ---- */

static void write_peaks(JsonWriter *w, const char *key, Peaks peaks) {
    json_member_open(w, key, '{');
    json_member_number(w, "flops", peaks.flops);
    json_member_number(w, "bandwidth", peaks.bandwidth);
    json_write_close(w, '}');
}

static void write_run(JsonWriter *w, const TraceRun *r) {
    json_write_line(w, 1, true);
    json_member_open(w, "run", '{');
    json_member_text(w, "program", r->program);
    json_member_text(w, "model", r->model);
    json_member_text(w, "dtype", r->dtype);
    json_member_text(w, "device", r->device);
    json_member_text(w, "library", r->library);
    json_member_text(w, "host", r->host);
    json_member_integer(w, "batch", r->batch);
    json_member_integer(w, "seq", r->seq);
    json_member_integer(w, "accum", r->accum);
    json_member_integer(w, "layers", r->layers);
    json_member_integer(w, "heads", r->heads);
    json_member_integer(w, "width", r->width);
    json_member_integer(w, "parameters", r->parameters);
    json_write_close(w, '}');
    json_write_line(w, 1, true);
    json_member_open(w, "peaks", '{');
    write_peaks(w, "measured", r->measured);
    write_peaks(w, "sheet", r->sheet);
    json_write_close(w, '}');
}

/* ---- a path ---- */

static const char *step_name(const Figures *f) {
    if (*f->trace->run.step) return f->trace->run.step;
    return figures_pass_ns(f, PASS_UPDATE) > 0 ? "step" : "forward pass";
}

static void write_step(JsonWriter *w, const Figures *f) {
    json_write_line(w, 3, true);
    json_member_open(w, "step", '{');
    json_member_text(w, "name", step_name(f));
    json_member_integer(w, "recorded", f->steps);
    json_member_integer(w, "timed", f->timed);
    json_member_number(w, "ns", 1e6 * f->step_ms);
    json_member_number(w, "low_ns", 1e6 * f->low);
    json_member_number(w, "high_ns", 1e6 * f->high);
    json_member_number(w, "traced_ns", f->step_ns);
    json_member_number(w, "overhead", f->overhead);
    json_member_number(w, "reader_ns", 1e6 * f->reader_ms);
    json_member_number(w, "device_ns", f->device_ns);
    json_member_number(w, "covered", f->step_ns > 0 ? f->covered_ns / f->step_ns : 0);
    json_member_number(w, "tokens", f->tokens);
    json_member_number(w, "launches", f->launches);
    json_write_close(w, '}');
}

static void write_phases(JsonWriter *w, const Figures *f) {
    json_write_line(w, 3, true);
    json_member_open(w, "phases", '[');
    for (int p = 0; p < PHASE_COUNT; p++) {
        const PhaseRow *row = &f->phases[p];
        if (row->ns <= 0) continue;
        json_write_open(w, '{');
        json_member_text(w, "phase", phase_name((Phase)p));
        json_member_number(w, "ns", row->ns);
        json_member_open(w, "categories", '[');
        for (int c = 0; c < CATEGORY_COUNT; c++) {
            if (row->categories[c] <= 0) continue;
            json_write_open(w, '{');
            json_member_text(w, "category", category_name((Category)c));
            json_member_number(w, "ns", row->categories[c]);
            json_write_close(w, '}');
        }
        json_write_close(w, ']');
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

/* Of a kernel, or a primitive. Templates of C++ may have names longer than a bundle's texts: of those the
 * beginning. */
static void write_name(JsonWriter *w, const char *name) {
    size_t length = strlen(name);
    if (length > BUNDLE_TEXT_BYTES) length = BUNDLE_TEXT_BYTES;
    while (length && ((unsigned char)name[length] & 0xC0) == 0x80) length--; // not inside a character
    json_write_key(w, "name");
    json_write_string(w, name, (int64_t)length);
}

static void write_inside(JsonWriter *w, const OperationRow *r) {
    json_member_open(w, "inside", '[');
    for (int i = 0; i < r->inside_count; i++) {
        const InsideRow *inside = &r->inside[i];
        json_write_open(w, '{');
        write_name(w, inside->name);
        json_member_text(w, "category", category_name(inside->category));
        json_member_number(w, "ns", inside->ns);
        json_member_number(w, "calls", inside->calls);
        json_member_number(w, "launches", inside->launches);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

static void write_operations(JsonWriter *w, const Figures *f) {
    const Peaks *peaks = &f->trace->run.measured;
    json_write_line(w, 3, true);
    json_member_open(w, "operations", '[');
    for (int i = 0; i < f->row_count; i++) {
        const OperationRow *r = &f->rows[i];
        char limit = 'm';
        double share = peaks_known(peaks) ? work_share(r->work, 1e-6 * r->ns, peaks, &limit) : 0;
        json_write_line(w, 4, true);
        json_write_open(w, '{');
        json_member_text(w, "place", r->call);
        json_member_text(w, "operation", operation_name(r->operation));
        json_member_text(w, "pass", pass_name(r->pass));
        json_member_text(w, "form", form_name(r->form));
        json_member_text(w, "category", category_name(r->category));
        json_member_text(w, "source", r->source);
        json_member_number(w, "ns", r->ns);
        json_member_number(w, "low_ns", r->low);
        json_member_number(w, "high_ns", r->high);
        json_member_number(w, "host_ns", r->host_ns);
        json_member_number(w, "calls", r->calls);
        json_member_number(w, "launches", r->launches);
        json_member_number(w, "flops", r->work.flops);
        json_member_number(w, "least_bytes", r->work.bytes);
        json_member_integer(w, "memory_bytes", r->memory);
        json_member_number(w, "share_of_limit", share);
        json_member_text(w, "limit", !peaks_known(peaks) ? "" : limit == 'm' ? "matrix" : "bandwidth");
        write_inside(w, r);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

static void write_kernels(JsonWriter *w, const Figures *f) {
    json_write_line(w, 3, true);
    json_member_open(w, "kernels", '[');
    for (int i = 0; i < f->kernel_count; i++) {
        const KernelRow *k = &f->kernels[i];
        char label[KERNEL_NAME_BYTES], decoded[KERNEL_NAME_BYTES];
        json_write_line(w, 4, true);
        json_write_open(w, '{');
        kernel_label(k->name, label);
        kernel_decode(k->name, decoded);
        write_name(w, k->name);
        json_member_text(w, "label", label);
        json_member_text(w, "decoded", decoded);
        json_member_text(w, "kind", trace_kind_name(k->kind));
        json_member_text(w, "category", category_name(k->category));
        json_member_text(w, "place", k->call);
        for (int pass = 0; pass < PASS_COUNT; pass++) {
            json_member_open(w, pass_name((Pass)pass), '{');
            json_member_number(w, "ns", k->ns[pass]);
            json_member_number(w, "calls", k->calls[pass]);
            json_write_close(w, '}');
        }
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

static void write_memory(JsonWriter *w, const Figures *f) {
    enum { LARGEST = 50 };
    const Trace *t = f->trace;
    json_write_line(w, 3, true);
    json_member_open(w, "memory", '{');
    json_member_integer(w, "peak_bytes", f->peak_bytes);
    json_member_open(w, "classes", '[');
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++) {
        if (!f->peak_classes[c]) continue;
        json_write_open(w, '{');
        json_member_text(w, "class", memory_class_name((MemoryClass)c));
        json_member_integer(w, "bytes", f->peak_classes[c]);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
    json_member_open(w, "largest", '[');
    for (int64_t i = 0; i < t->tensor_count && i < LARGEST; i++) {
        json_write_open(w, '{');
        json_member_text(w, "name", t->tensors[i].name);
        json_member_text(w, "class", memory_class_name(t->tensors[i].class_));
        json_member_integer(w, "bytes", t->tensors[i].bytes);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
    json_write_close(w, '}');
}

static void write_audit(JsonWriter *w, const Trace *t) {
    json_write_line(w, 3, true);
    json_member_open(w, "audit", '[');
    for (int64_t i = 0; i < t->finding_count; i++) {
        json_write_line(w, 4, true);
        json_write_open(w, '{');
        json_member_text(w, "check", t->findings[i].name);
        json_member_boolean(w, "passed", t->findings[i].passed);
        json_member_text(w, "detail", t->findings[i].detail);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

static void write_tables(JsonWriter *w, const Tables *tables) {
    json_write_line(w, 3, true);
    json_member_open(w, "tables", '[');
    for (int i = 0; i < tables->count; i++) {
        json_write_line(w, 4, true);
        table_write_json(&tables->tables[i], w);
    }
    json_write_close(w, ']');
}

static Status write_path(JsonWriter *w, const ProfilePath *path) {
    const TraceRun *r = &path->trace->run;
    json_write_line(w, 2, true);
    json_write_open(w, '{');
    json_member_text(w, "label", path->label);
    json_member_text(w, "source", source_name(r->source));
    json_member_text(w, "source_note", r->source_note);
    json_member_text(w, "window", r->window);
    write_step(w, &path->figures);
    write_phases(w, &path->figures);
    write_operations(w, &path->figures);
    write_kernels(w, &path->figures);
    write_memory(w, &path->figures);
    TRY(bundle_timeline(path->trace, w));
    write_tables(w, &path->tables);
    write_audit(w, path->trace);
    json_write_close(w, '}');
    return OK;
}

/* ---- all ---- */

static void write_differences(JsonWriter *w, const Profile *p) {
    json_write_line(w, 1, true);
    json_member_open(w, "differences", '[');
    for (int i = 0; i < p->difference_count; i++) {
        const Difference *d = &p->differences[i];
        json_write_open(w, '{');
        json_member_text(w, "place", d->call);
        json_member_text(w, "operation", operation_name(d->operation));
        json_member_text(w, "pass", pass_name(d->pass));
        json_member_number(w, "difference", d->difference);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

static void write_answers(JsonWriter *w, const Answers *answers) {
    json_write_line(w, 1, true);
    json_member_open(w, "questions", '[');
    for (int i = 0; i < QUESTION_COUNT; i++) {
        const Answer *a = &answers->answers[i];
        json_write_line(w, 2, true);
        json_write_open(w, '{');
        json_member_text(w, "question", a->question);
        json_member_open(w, "answer", '[');
        for (int k = 0; k < a->count; k++) json_write_string(w, a->lines[k], (int64_t)strlen(a->lines[k]));
        json_write_close(w, ']');
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

Status bundle_render(const Profile *profile, const Answers *answers, JsonWriter *w) {
    json_write_open(w, '{');
    json_member_text(w, "schema", BUNDLE_SCHEMA);
    json_member_integer(w, "version", BUNDLE_VERSION);
    write_run(w, &profile->paths[0].trace->run);
    json_write_line(w, 1, true);
    json_member_open(w, "paths", '[');
    for (int i = 0; i < profile->count; i++) TRY(write_path(w, &profile->paths[i]));
    json_write_close(w, ']');
    write_differences(w, profile);
    write_answers(w, answers);
    json_write_close(w, '}');
    return json_writer_status(w);
}
