#include "profile/tables.h"

#include "profile/tables_internal.h"

#include <string.h>

/* Asked for and told; or an event made up, for the sake of the columns. */
static bool has_latency(const Trace *t) {
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].queued) return true;
    return false;
}

static Status make_all(const Trace *t, unsigned names, Tables *all) {
    Table *next = all->tables;
    if (!t->count) {
        *next++ = table_device(t);
        *next++ = table_perf(t);
        all->count = 2;
        return OK;
    }
    *next++ = table_operations(t, names);
    if (names & NAMES_TORCH) *next++ = table_operations_by_shape(t);
    *next++ = table_operators(t);
    *next++ = table_overview(t);
    *next++ = table_model(t);
    *next++ = table_device(t);
    *next++ = table_perf(t);
    if (t->run.validation_count) *next++ = table_validation(t);
    *next++ = table_categories(t);
    all->count = (int)(next - all->tables) + 1;
    TRY(table_work(t, next++));
    *next++ = table_kernels(t, names);
    *next++ = table_copies(t);
    *next++ = table_ranges(t);
    *next++ = table_user_defined(t);
    *next++ = table_distribution(t);
    if (t->run.ranks > 1) *next++ = table_communication(t);
    *next++ = table_memory(t);
    *next++ = table_timeline(t);
    *next++ = table_tensors(t);
    *next++ = table_sources(t);
    if (has_latency(t)) *next++ = table_latency(t, names);
    all->count = (int)(next - all->tables);
    return OK;
}

Status tables_make(const Trace *trace, unsigned names, Tables *tables) {
    *tables = (Tables){0};
    Status status = make_all(trace, names, tables);
    if (status) tables_free(tables);
    return status;
}

void tables_free(Tables *tables) {
    for (int i = 0; i < tables->count; i++) table_free(&tables->tables[i]);
    *tables = (Tables){0};
}

bool tables_have_column(const char *key) {
    bool found = false;
    for (unsigned names = NAMES_PLAIN; names <= NAMES_TORCH && !found; names++) {
        Trace *trace = trace_open(); // with an event and ranks, so that every table is made
        trace->run.ranks = 2;
        Tables tables;
        trace_add(trace, &(TraceEvent){.name = "", .parent = -1, .launch = -1, .queued = 1});
        Status status = trace_finish(trace);
        if (!status) status = tables_make(trace, names, &tables);
        for (int i = 0; !status && i < tables.count; i++)
            found = found || table_column(&tables.tables[i], key) >= 0;
        if (!status) tables_free(&tables);
        status_free(status);
        trace_close(trace);
    }
    return found;
}
