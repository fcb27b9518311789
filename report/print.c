#include "report/print.h"

#include "base/cores.h"
#include "base/wrap.h"

#include <inttypes.h>

static void print_head(const char *label, const TraceRun *r, const char *source, FILE *file) {
    print_report("", 0, file, "%s%s%s, batch %" PRId64 ", seq %" PRId64 ", %s, on %s", label ? label : "",
                 label ? ": " : "", r->model, r->batch, r->seq, r->dtype, r->device);
    print_report("", 0, file, "%s%s%s; %s%s%s", source, *r->source_note ? ": " : "", r->source_note, r->step,
                 *r->step ? ", " : "", r->window);
    if (r->cores_waited > CORES_SHARED) print_report("", 0, file, "%s", cores_warning(r->cores_waited).text);
}

void run_print_head(const char *label, const TraceRun *run, FILE *file) {
    print_head(label, run, source_name(run->source), file);
}

void bundle_print_head(const Bundle *bundle, const BundlePath *path, FILE *file) {
    TraceRun run = bundle->run;
    run.source_note = path->source_note;
    run.step = bundle_step_name(path);
    run.window = path->window;
    run.cores_waited = path->step.cores_waited;
    print_head(path->label, &run, path->source, file);
}

void bundle_print_questions(const Bundle *b, FILE *file) {
    for (int64_t i = 0; i < b->paths_count; i++) bundle_print_head(b, &b->paths[i], file);
    for (int64_t i = 0; i < b->answers_count; i++) {
        const Answer *a = &b->answers[i];
        fprintf(file, "\n%d. %s\n", (int)i + 1, a->question);
        for (int64_t k = 0; k < a->count; k++) print_report("", 3, file, "%s", a->lines[k]);
    }
    fprintf(file, "\n");
}

void bundle_print_tables(const Bundle *b, const TableView *view, FILE *file) {
    for (int64_t i = 0; i < b->paths_count; i++) {
        fputc('\n', file);
        bundle_print_head(b, &b->paths[i], file);
        for (int64_t k = 0; k < b->paths[i].tables_count; k++) {
            if (!b->paths[i].tables[k].rows) continue;
            fputc('\n', file);
            table_print_text(&b->paths[i].tables[k], view, file);
        }
    }
}

void bundle_print_audit(const Bundle *b, FILE *file) {
    for (int64_t i = 0; i < b->paths_count; i++) {
        fprintf(file, "audit, %s\n", b->paths[i].label);
        for (int64_t k = 0; k < b->paths[i].audit_count; k++) {
            const TraceFinding *finding = &b->paths[i].audit[k];
            print_report(finding->passed ? "  passed" : "  FAILED", 9, file, "%s: %s", finding->name,
                         finding->detail);
        }
    }
}
