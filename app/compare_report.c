#include "app/compare_run.h"

#include "base/files.h"
#include "base/memory.h"

#include <stdio.h>

static Comparison describe(const Trainer *t, const CompareOptions *o) {
    Comparison c = {.batch = t->batch, .seq = t->seq, .rounds = COMPARE_ROUNDS, .peaks = *o->peaks};
    snprintf(c.device, sizeof c.device, "%s", o->session->device->name);
    snprintf(c.library, sizeof c.library, "%s", o->session->device->library);
    snprintf(c.dtype, sizeof c.dtype, "%s", session_dtype_name(o->session));
    snprintf(c.model, sizeof c.model, "%s", o->session->config.name);
    for (int form = 0; form < FORM_COUNT; form++) c.paths[form].peak_bytes = o->bytes[form];
    return c;
}

static Status report(const Comparison *c, const TraceList traces[FORM_COUNT], const CompareOptions *o) {
    char *path = NULL;
    if (o->file) compare_print(c, o->file);
    TRY(profiling_report_lists(o->profiling, traces, FORM_COUNT, c->differences, c->difference_count,
                               o->suffix, o->file));
    if (!*o->folder) return OK;
    path = path_join(o->folder, "compare.json");
    Status status = compare_write(c, path);
    memory_free(path);
    return status;
}

Status compare_report(Trainer *t, const CompareOptions *o) {
    Comparison c = describe(t, o);
    TraceList traces[FORM_COUNT] = {0};
    Status status = compare_run(t, o, &c, traces);
    if (!status) status = report(&c, traces, o);
    for (int form = 0; form < FORM_COUNT; form++) trace_list_free(&traces[form]);
    compare_free(&c);
    return status;
}
