#include "report/tables_internal.h"
#include "report/provenance.h"
#include "report/tables.h"

#include <string.h>

/* Whether latencies were requested and recorded; or the event is a dummy, for the columns. */
static bool has_latency(const Trace *t) {
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].queued) return true;
    return false;
}

void tables_make(const Figures *f, unsigned names, Tables *all) {
    const Trace *t = f->trace;
    Table *next = all->tables;
    *all = (Tables){0};
    if (t->count) *next++ = table_operations(t);
    if (t->count && !(names & DEVICE_ALONE)) *next++ = table_operators(t, names);
    if (t->count) *next++ = table_overview(t);
    if (t->count) *next++ = table_model(t);
    *next++ = table_device(t);
    *next++ = table_perf(t);
    all->count = (int)(next - all->tables);
    if (!t->count) return;
    if (t->run.validation_count) *next++ = table_validation(t);
    *next++ = table_categories(f);
    *next++ = table_work(f);
    *next++ = table_kernels(f, names);
    *next++ = table_copies(t);
    if (!(names & DEVICE_ALONE)) *next++ = table_ranges(t, names);
    if (!(names & DEVICE_ALONE)) *next++ = table_user_defined(t, names);
    *next++ = table_distribution(t);
    if (t->run.ranks > 1) *next++ = table_communication(t);
    *next++ = table_memory(f);
    *next++ = table_timeline(t);
    *next++ = table_tensors(t);
    *next++ = table_sources(t);
    *next++ = table_provenance(&t->run);
    if (has_latency(t)) *next++ = table_latency(f, names);
    all->count = (int)(next - all->tables);
}

void tables_free(Tables *tables) {
    for (int i = 0; i < tables->count; i++) table_free(&tables->tables[i]);
    *tables = (Tables){0};
}

bool tables_have_column(const char *key) {
    bool found = false;
    Trace *trace = trace_open(); // with an event and ranks, so that every table is made
    Tables tables;
    trace->run.ranks = 2;
    trace_add(trace, &(TraceEvent){.name = "", .parent = -1, .launch = -1, .queued = 1});
    tables_make(&(Figures){.trace = trace}, NAMES_PLAIN, &tables);
    for (int i = 0; i < tables.count; i++) found = found || table_column(&tables.tables[i], key) >= 0;
    tables_free(&tables);
    trace_close(trace);
    return found;
}
