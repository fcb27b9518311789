#include "app/compare_run.h"

#include "base/files.h"
#include "base/memory.h"

#include <stdio.h>

static Comparison describe(const Trainer *t, const CompareOptions *o, const CompareReport *r) {
    Comparison c = {.batch = t->batch, .seq = t->seq, .rounds = o->rounds, .peaks = *r->peaks};
    snprintf(c.device, sizeof c.device, "%s", r->session->device->name);
    snprintf(c.library, sizeof c.library, "%s", r->session->device->library);
    snprintf(c.dtype, sizeof c.dtype, "%s", session_dtype_name(r->session));
    snprintf(c.model, sizeof c.model, "%s", r->session->config.name);
    for (int form = 0; form < FORM_COUNT; form++) c.paths[form].peak_bytes = r->bytes[form];
    return c;
}

static Status report_all(const Comparison *c, const TraceList traces[FORM_COUNT], const CompareReport *r) {
    char *path = NULL;
    if (r->file) compare_print(c, r->file);
    TRY(profiling_report_lists(r->profiling, traces, FORM_COUNT, c->differences, c->difference_count,
                               r->suffix, r->file));
    if (!*r->folder) return OK;
    path = path_join(r->folder, "compare.json");
    Status status = compare_write(c, path);
    memory_free(path);
    return status;
}

Status compare_report(Trainer *t, const CompareOptions *options, const CompareReport *r) {
    const TraceRun facts = profiling_facts(r->session, "train", r->peaks, t->batch, t->seq, t->accum);
    Comparison c = describe(t, options, r);
    TraceList traces[FORM_COUNT] = {0};
    CompareOptions with = *options;
    with.profiling = *r->profiling->window ? r->profiling : NULL;
    with.facts = &facts;
    with.traces = traces;
    Status status = compare_run(t, &with, &c);
    if (!status) status = report_all(&c, traces, r);
    for (int form = 0; form < FORM_COUNT; form++) trace_list_free(&traces[form]);
    compare_free(&c);
    return status;
}
