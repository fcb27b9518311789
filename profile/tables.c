#include "profile/tables_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- statistics ---- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static Stats stats_of_sorted(const double *values, int64_t count) {
    Stats s = {.count = count};
    if (!count) return s;
    for (int64_t i = 0; i < count; i++) s.total += values[i];
    s.mean = s.total / (double)count;
    s.median = count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
    s.least = values[0];
    s.most = values[count - 1];
    s.mean = fmin(fmax(s.mean, s.least), s.most); // rounding must not push it out
    double squares = 0;
    for (int64_t i = 0; i < count; i++) squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.deviation = count > 1 ? sqrt(squares / (double)(count - 1)) : 0;
    return s;
}

Stats stats_make(double *values, int64_t count) {
    if (count) qsort(values, (size_t)count, sizeof *values, ascending);
    return stats_of_sorted(values, count);
}

Status row_values_add(RowValues *v, int64_t row, double value) {
    if (v->count == v->room) {
        int64_t room = 2 * v->room + 256;
        RowValue *moved = memory_resize(v->values, (size_t)room * sizeof *moved);
        if (!moved) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
        v->values = moved;
        v->room = room;
    }
    v->values[v->count++] = (RowValue){row, value};
    return OK;
}

static int by_row(const void *a, const void *b) {
    const RowValue *x = a, *y = b;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

Status row_values_stats(RowValues *v, Stats *stats, int64_t rows) {
    double *sorted = memory_array((size_t)(v->count ? v->count : 1), sizeof *sorted);
    if (!sorted) return fail(ERROR_MEMORY, "out of host memory for the profile's tables");
    if (v->count) qsort(v->values, (size_t)v->count, sizeof *v->values, by_row);
    for (int64_t i = 0; i < v->count; i++) sorted[i] = v->values[i].value;
    for (int64_t i = 0; i < rows; i++) stats[i] = (Stats){0};
    for (int64_t i = 0, end; i < v->count; i = end) {
        for (end = i; end < v->count && v->values[end].row == v->values[i].row;) end++;
        stats[v->values[i].row] = stats_of_sorted(sorted + i, end - i);
    }
    memory_free(sorted);
    return OK;
}

void row_values_free(RowValues *v) {
    memory_free(v->values);
    *v = (RowValues){0};
}

/* ---- what many tables need ---- */

double share_of(double part, double whole) {
    return whole > 0 ? part / whole : NAN;
}

bool in_step(const TraceEvent *event) {
    return event->step >= 0;
}

double steps_length(const Trace *t) {
    double length = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].kind == TRACE_STEP) length += (double)trace_length(&t->events[i]);
    return length;
}

double device_length(const Trace *t) {
    double length = 0;
    for (int64_t i = 0; i < t->count; i++)
        if (trace_on_device(&t->events[i]) && in_step(&t->events[i]))
            length += (double)trace_length(&t->events[i]);
    return length;
}

void operation_label(const TraceEvent *e, char text[LABEL_BYTES]) {
    if (!e->in_operation)
        snprintf(text, LABEL_BYTES, "-");
    else
        snprintf(text, LABEL_BYTES, "%s %s", operation_name(e->operation), pass_name(e->pass));
}

/* ---- all ---- */

/* Asked for and told; or an event made up, for the sake of the columns. */
static bool has_latency(const Trace *t) {
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].queued) return true;
    return false;
}

/* A table's maker: one of them, that of tables with names or of others. */
typedef struct {
    Status (*named)(const Trace *trace, unsigned names, Table *table);
    Status (*plain)(const Trace *trace, Table *table);
} Maker;

Status tables_make(const Trace *trace, unsigned names, Tables *tables) {
    static const Maker makers[] = {
        {table_operations, NULL}, {NULL, table_overview},   {NULL, table_model},        {NULL, table_device},
        {NULL, table_perf},       {NULL, table_categories}, {NULL, table_work},         {table_kernels, NULL},
        {NULL, table_copies},     {NULL, table_ranges},     {NULL, table_distribution}, {NULL, table_memory},
        {NULL, table_timeline},   {NULL, table_tensors},    {NULL, table_sources},      {table_latency, NULL},
    };
    bool traced = trace->count > 0, latency = has_latency(trace);
    Status status = OK;
    *tables = (Tables){0};
    for (size_t i = 0; i < sizeof makers / sizeof *makers && !status; i++) {
        const Maker *m = &makers[i];
        if (!traced && m->plain != table_device && m->plain != table_perf) continue;
        if (!latency && m->named == table_latency) continue;
        Table *table = &tables->tables[tables->count++];
        status = m->named ? m->named(trace, names, table) : m->plain(trace, table);
    }
    if (status) tables_free(tables);
    return status;
}

void tables_free(Tables *tables) {
    for (int i = 0; i < tables->count; i++) table_free(&tables->tables[i]);
    *tables = (Tables){0};
}

const Table *tables_find(const Tables *tables, const char *key) {
    for (int i = 0; i < tables->count; i++)
        if (strcmp(tables->tables[i].key, key) == 0) return &tables->tables[i];
    return NULL;
}

bool tables_have_column(const char *key) {
    bool found = false;
    for (unsigned names = NAMES_PLAIN; names <= NAMES_TORCH && !found; names++) {
        Trace *trace = NULL;
        Tables tables = {0};
        Status status = trace_open(&trace); // with an event, so that every table is made
        if (!status)
            status =
                trace_add(trace, &(TraceEvent){.name = "", .parent = -1, .launch = -1, .queued = 1}, NULL);
        if (!status) status = trace_finish(trace);
        if (!status) status = tables_make(trace, names, &tables);
        for (int i = 0; i < tables.count; i++) found = found || table_has_column(&tables.tables[i], key);
        status_free(status);
        tables_free(&tables);
        trace_close(trace);
    }
    return found;
}
