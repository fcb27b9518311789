/* Tables of operations, their categories and sources. */
#include "report/tables_internal.h"
#include "report/kernel_name.h"
#include "report/torch_tables.h"

#include "base/memory.h"

#include <stdio.h>
#include <math.h>
#include <string.h>

/* ---- PyTorch's names, for events of the naive path ---- */

enum { TORCH_NAME_BYTES = 2 * LABEL_BYTES };

/* "Memcpy HtoD (Pinned -> Device)" */
static void name_copy(const CopyShape *copy, char name[TORCH_NAME_BYTES]) {
    static const char *const sides[COPY_COUNT] = {"HtoD", "DtoH", "DtoD", "PtoP", "Unknown"};
    const char *host = copy->host == HOST_MEMORY_PINNED ? "Pinned" : "Pageable";
    const bool from_host = copy->direction == COPY_HOST_TO_DEVICE,
               to_host = copy->direction == COPY_DEVICE_TO_HOST;
    snprintf(name, TORCH_NAME_BYTES, "Memcpy %s (%s -> %s)", sides[copy->direction],
             from_host ? host : "Device", to_host ? host : "Device");
}

/* The name of a device event's row in PyTorch: a kernel's name, "Memcpy HtoD (Pinned -> Device)", "Memset
 * (Device)". With `full` a kernel's name includes parameters and namespaces. */
static void torch_device_row(const TraceEvent *e, bool full, char name[TORCH_NAME_BYTES]) {
    char label[KERNEL_NAME_BYTES];
    kernel_label(e->name, label);
    if (e->kind == TRACE_COPY)
        name_copy(&e->copy, name);
    else if (e->kind == TRACE_FILL)
        snprintf(name, TORCH_NAME_BYTES, "Memset (Device)");
    else
        snprintf(name, TORCH_NAME_BYTES, "%s", full ? e->name : label);
}

/* Whether PyTorch has a row for the event, and its name: the operator that a primitive is, or belongs to
 * ("aten::addmm"), a range's own name, or "fusebox::linear forward" for operations without a PyTorch
 * operator. Layers, and operations made of calls, have no row: their time counts to their parent. */
static bool torch_row(const TraceEvent *e, char name[TORCH_NAME_BYTES]) {
    char label[LABEL_BYTES];
    operation_label(e, label);
    if (e->kind == TRACE_STEP && !e->own)
        snprintf(name, TORCH_NAME_BYTES, "ProfilerStep*");
    else if (e->kind == TRACE_OPERATION)
        snprintf(name, TORCH_NAME_BYTES, "fusebox::%s", label);
    else if (e->kind == TRACE_PRIMITIVE && !e->torch)
        snprintf(name, TORCH_NAME_BYTES, "fusebox::%s: %s", label, e->name);
    else
        snprintf(name, TORCH_NAME_BYTES, "%s", e->torch ? e->torch : e->name);
    if (e->kind == TRACE_OPERATION) return e->form != FORM_NAIVE;
    return e->kind > TRACE_OPERATION || e->layer < 0;
}

/* ---- operations ---- */

/* The sums of one row. Self times of all rows add up to the total. */
typedef struct {
    const char *name, *shapes; // owned by the trace of names
    double calls, self_cpu, cpu, self_device, device, self_memory, memory;
    bool on_device; // a row of the device itself: operators that launched its events count this time, too
} OperationSum;

typedef struct {
    Trace *names; // owns the rows' names
    OperationSum *rows;
    int64_t count, room;
    double *taken, *taken_below; // (events) bytes allocated by the event; and by the event with everything
                                 // below it
    bool torch, by_shape;        // by_shape: a row for each name and shapes
    bool kernels, full;          // PyTorch's rows of device events, with full names
} Operations;

static OperationSum *row_of(Operations *o, const char *name, const char *shapes) {
    name = trace_name(o->names, name);
    shapes = trace_name(o->names, o->by_shape ? shapes : "");
    for (int64_t i = 0; i < o->count; i++)
        if (o->rows[i].name == name && o->rows[i].shapes == shapes) return &o->rows[i];
    o->rows = memory_grow(o->rows, &o->room, o->count + 1, sizeof *o->rows);
    o->rows[o->count] = (OperationSum){.name = name, .shapes = shapes};
    return &o->rows[o->count++];
}

/* The name of the row for a host event; false: it has none, and its time counts to its parent. Steps, phases
 * and scopes are time between operations, except that with PyTorch's names each is a row. */
static bool row_name(const Operations *o, const TraceEvent *e, char name[TORCH_NAME_BYTES]) {
    char label[LABEL_BYTES];
    if (o->torch) return torch_row(e, name);
    operation_label(e, label);
    if (e->kind == TRACE_OPERATION)
        snprintf(name, TORCH_NAME_BYTES, "%s", label);
    else if (e->kind == TRACE_PRIMITIVE)
        snprintf(name, TORCH_NAME_BYTES, "%.*s: %.100s", 40, label, e->name);
    else
        snprintf(name, TORCH_NAME_BYTES, "(between operations)");
    return true;
}

/* The event itself or, for a primitive that is part of a PyTorch operator, the primitive of the same
 * operation that began the operator's call. */
static int64_t call_of(const Trace *t, int64_t event) {
    const TraceEvent *e = &t->events[event];
    int64_t call = event;
    for (int64_t i = event - 1; i > e->parent && t->events[call].torch_part; i--)
        if (t->events[i].parent == e->parent && t->events[i].torch == e->torch) call = i;
    return call;
}

/* The row of an event, or of its innermost ancestor with a row. */
static OperationSum *row_around(const Trace *t, int64_t event, Operations *o) {
    char name[TORCH_NAME_BYTES];
    while (event >= 0 && !row_name(o, &t->events[event], name)) event = t->events[event].parent;
    if (event < 0) return row_of(o, "(between operations)", "");
    const char *shapes = t->events[o->torch ? call_of(t, event) : event].shapes;
    return row_of(o, name, shapes ? shapes : "");
}

static void sum_event(const Trace *t, int64_t event, Operations *o) {
    const TraceEvent *e = &t->events[event];
    char name[TORCH_NAME_BYTES];
    bool between = e->kind < TRACE_OPERATION && !o->torch;
    OperationSum *row = row_around(t, event, o);
    if (row_name(o, e, name)) {
        row->calls += between ? e->kind == TRACE_STEP : !o->torch || call_of(t, event) == event;
        row->cpu += between ? (double)e->self : (double)trace_length(e);
        row->device += between ? (double)e->device_self : (double)e->device_total;
        row->memory += between ? o->taken[event] : o->taken_below[event];
    }
    row->self_cpu += (double)e->self;
    row->self_device += (double)e->device_self;
    row->self_memory += o->taken[event];
    /* in PyTorch, a call does not count to its caller's self time */
    if (e->kind == TRACE_RUNTIME && e->parent >= 0)
        row_around(t, e->parent, o)->self_cpu -= (double)trace_length(e);
}

static void sum_kernel(const TraceEvent *e, Operations *o) {
    char name[TORCH_NAME_BYTES];
    torch_device_row(e, o->full, name);
    OperationSum *row = row_of(o, name, "");
    row->on_device = true;
    row->calls += 1;
    row->device += (double)trace_length(e);
    row->self_device += (double)trace_length(e);
}

static void sum_events(const Trace *t, Operations *o) {
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        bool call = e->kind == TRACE_RUNTIME;
        if (o->kernels && trace_in_step(e) && trace_on_device(e)) sum_kernel(e, o);
        if (trace_in_step(e) && !trace_on_device(e) && (!call || o->torch)) sum_event(t, i, o);
    }
}

/* Sums the memory allocated by each event. In PyTorch's table memory freed meanwhile is subtracted. */
static void sum_memory(const Trace *t, Operations *o) {
    int64_t held[MEMORY_CLASS_COUNT] = {0};
    bool seen[MEMORY_CLASS_COUNT] = {false};
    for (int64_t i = 0; i < t->memory_count; i++) {
        const TraceMemory *m = &t->memory[i];
        int64_t more = m->bytes - held[m->class_];
        if (m->event >= 0 && (more > 0 || o->torch) && seen[m->class_]) o->taken[m->event] += (double)more;
        held[m->class_] = m->bytes;
        seen[m->class_] = true;
    }
    for (int64_t i = t->count - 1; i >= 0; i--) {
        o->taken_below[i] += o->taken[i];
        if (t->events[i].parent >= 0) o->taken_below[t->events[i].parent] += o->taken_below[i];
    }
}

static const TableColumn ours[] = {{"name", "Name", CELL_TEXT},
                                   {"self_cpu_share", "Self CPU %", CELL_SHARE},
                                   {"self_cpu_ns", "Self CPU", CELL_TIME},
                                   {"cpu_share", "CPU total %", CELL_SHARE},
                                   {"cpu_ns", "CPU total", CELL_TIME},
                                   {"cpu_mean_ns", "CPU average", CELL_TIME},
                                   {"self_device_share", "Self device %", CELL_SHARE},
                                   {"self_device_ns", "Self device", CELL_TIME},
                                   {"device_ns", "Device total", CELL_TIME},
                                   {"device_mean_ns", "Device average", CELL_TIME},
                                   {"cpu_memory_bytes", "CPU memory", CELL_BYTES},
                                   {"self_cpu_memory_bytes", "Self CPU memory", CELL_BYTES},
                                   {"device_memory_bytes", "Device memory", CELL_BYTES},
                                   {"self_device_memory_bytes", "Self device memory", CELL_BYTES},
                                   {"calls", "Calls", CELL_COUNT}};

/* PyTorch's column titles, and PyTorch's order of the two columns of self device time. */
static const TableColumn theirs[] = {{"name", "Name", CELL_TEXT},
                                     {"self_cpu_share", "Self CPU %", CELL_SHARE},
                                     {"self_cpu_ns", "Self CPU", CELL_TIME},
                                     {"cpu_share", "CPU total %", CELL_SHARE},
                                     {"cpu_ns", "CPU total", CELL_TIME},
                                     {"cpu_mean_ns", "CPU time avg", CELL_TIME},
                                     {"self_device_ns", "Self CUDA", CELL_TIME},
                                     {"self_device_share", "Self CUDA %", CELL_SHARE},
                                     {"device_ns", "CUDA total", CELL_TIME},
                                     {"device_mean_ns", "CUDA time avg", CELL_TIME},
                                     {"cpu_memory_bytes", "CPU Mem", CELL_BYTES},
                                     {"self_cpu_memory_bytes", "Self CPU Mem", CELL_BYTES},
                                     {"device_memory_bytes", "CUDA Mem", CELL_BYTES},
                                     {"self_device_memory_bytes", "Self CUDA Mem", CELL_BYTES},
                                     {"calls", "# of Calls", CELL_COUNT},
                                     {"shapes", "Input Shapes", CELL_TEXT}};

/* The same columns without a GPU. */
static const TableColumn theirs_on_cpu[] = {{"name", "Name", CELL_TEXT},
                                            {"self_cpu_share", "Self CPU %", CELL_SHARE},
                                            {"self_cpu_ns", "Self CPU", CELL_TIME},
                                            {"cpu_share", "CPU total %", CELL_SHARE},
                                            {"cpu_ns", "CPU total", CELL_TIME},
                                            {"cpu_mean_ns", "CPU time avg", CELL_TIME},
                                            {"cpu_memory_bytes", "CPU Mem", CELL_BYTES},
                                            {"self_cpu_memory_bytes", "Self CPU Mem", CELL_BYTES},
                                            {"calls", "# of Calls", CELL_COUNT},
                                            {"shapes", "Input Shapes", CELL_TEXT}};

/* Sets the cell of the last row in the column with this key, if there is one. */
static void set_keyed(Table *table, const char *key, double value) {
    int column = table_column(table, key);
    if (column >= 0) table_set(table, column, value);
}

static void add_row(const Trace *t, const OperationSum *r, double steps, double device, Table *table) {
    bool gpu = t->run.source != SOURCE_CLOCK;
    table_add_row(table);
    table_set_text(table, 0, r->name);
    set_keyed(table, "self_cpu_share", share_of(r->self_cpu, steps));
    set_keyed(table, "self_cpu_ns", r->self_cpu);
    set_keyed(table, "cpu_share", share_of(r->cpu, steps));
    set_keyed(table, "cpu_ns", r->cpu);
    set_keyed(table, "cpu_mean_ns", share_of(r->cpu, r->calls));
    set_keyed(table, "self_device_share", share_of(r->self_device, device));
    set_keyed(table, "self_device_ns", r->self_device);
    set_keyed(table, "device_ns", r->device);
    set_keyed(table, "device_mean_ns", share_of(r->device, r->calls));
    set_keyed(table, "cpu_memory_bytes", gpu ? 0 : r->memory);
    set_keyed(table, "self_cpu_memory_bytes", gpu ? 0 : r->self_memory);
    set_keyed(table, "device_memory_bytes", gpu ? r->memory : 0);
    set_keyed(table, "self_device_memory_bytes", gpu ? r->self_memory : 0);
    set_keyed(table, "calls", r->calls);
    if (*r->shapes) table_set_text(table, table->column_count - 1, r->shapes);
}

static void fill_operations(const Trace *t, Operations *o, Table *table) {
    double steps = trace_steps_ns(t), device = trace_device_ns(t), self = 0, self_device = 0;
    sum_memory(t, o);
    sum_events(t, o);
    for (int64_t i = 0; i < o->count; i++) {
        add_row(t, &o->rows[i], steps, device, table);
        self += o->rows[i].self_cpu;
        if (!o->rows[i].on_device) self_device += o->rows[i].self_device;
    }
    bool host_only = o->torch && t->run.source == SOURCE_CLOCK;
    table_arrange(table, &(TableView){.sort = host_only ? "self_cpu_ns" : "self_device_ns"});
    table_note(table, "Self CPU time total: %s", in_words(CELL_TIME, self).text);
    if (!host_only)
        table_note(table, "Self %s time total: %s", o->torch ? "CUDA" : "device",
                   in_words(CELL_TIME, self_device).text);
    table_note(
        table, "Of %lld recorded steps.%s", (long long)t->run.steps,
        o->kernels
            ? " A kernel's time is also that of the operator which launched it; the total counts it once."
            : "");
    if (t->run.left_out)
        table_note(table, "The profile kept no room for %lld events of later steps, which are missing here.",
                   (long long)t->run.left_out);
    table_note(
        table,
        o->torch
            ? "Memory: allocated for tensors that the operation fills first, minus memory released while "
              "nothing inside it ran"
            : "Memory: of tensors that the operation fills first, allocated during or directly before it");
}

/* Variants of a table of operations. */
typedef struct {
    bool torch, by_shape;
    bool whole; // with device columns even without a device, but without rows of kernels
    bool full;  // with full kernel names
} OperationsView;

static Table make_operations(const Trace *t, OperationsView view) {
    bool torch = view.torch, by_shape = view.by_shape;
    size_t room = (size_t)t->count + 1;
    Operations o = {.names = trace_open(),
                    .taken = memory_array(room, sizeof(double)),
                    .taken_below = memory_array(room, sizeof(double)),
                    .torch = torch,
                    .by_shape = by_shape,
                    .kernels = torch && !view.whole && t->run.source == SOURCE_CUPTI,
                    .full = view.full};
    const char *key = by_shape ? "operations_by_shape" : "operations",
               *title = by_shape ? "Operations by the shapes of their inputs" : "Operations";
    bool host_only = t->run.source == SOURCE_CLOCK && !view.whole;
    Table table = !torch      ? TABLE(key, title, ours)
                  : host_only ? TABLE(key, title, theirs_on_cpu)
                              : TABLE(key, title, theirs);
    if (torch && !by_shape) table.column_count--; // PyTorch shows shapes only when it groups by them
    fill_operations(t, &o, &table);
    trace_close(o.names);
    memory_free(o.rows);
    memory_free(o.taken);
    memory_free(o.taken_below);
    return table;
}

Table table_operations(const Trace *t) {
    return make_operations(t, (OperationsView){0});
}

Table torch_table(const Trace *t, bool by_shape, bool full) {
    return make_operations(t, (OperationsView){.torch = true, .by_shape = by_shape, .full = full});
}

Table torch_table_whole(const Trace *t) {
    Table table = make_operations(t, (OperationsView){.torch = true, .whole = true});
    table_arrange(&table, &(TableView){.sort = "device_ns"});
    return table;
}

/* ---- categories ---- */

Table table_categories(const Figures *f) {
    static const TableColumn columns[] = {{"category", "Category", CELL_TEXT},
                                          {"device_ns", "Device time", CELL_TIME},
                                          {"share", "Share", CELL_SHARE},
                                          {"forward_ns", "Forward", CELL_TIME},
                                          {"forward_share", "of forward", CELL_SHARE},
                                          {"backward_ns", "Backward", CELL_TIME},
                                          {"backward_share", "of backward", CELL_SHARE},
                                          {"other_ns", "Optimizer, others", CELL_TIME},
                                          {"events", "Kernels and copies", CELL_COUNT}};
    enum { FORWARD, BACKWARD, OTHER, PARTS };
    double ns[CATEGORY_COUNT][PARTS] = {{0}}, sums[PARTS] = {0};
    for (int p = 0; p < PHASE_COUNT; p++)
        for (int c = 0; c < CATEGORY_COUNT; c++) {
            int part = p == PHASE_FORWARD ? FORWARD : p == PHASE_BACKWARD ? BACKWARD : OTHER;
            double all = round((double)f->steps * f->phases[p].categories[c]); // rounded to whole nanoseconds
            ns[c][part] += all;
            sums[part] += all;
        }
    Table table = TABLE("categories", "Categories", columns);
    table_note(&table, "Softmax is no category of its own: inside self-attention it counts as attention.");
    for (int i = 0; i < CATEGORY_COUNT; i++) {
        double forward = ns[i][FORWARD], backward = ns[i][BACKWARD], other = ns[i][OTHER];
        table_add_row(&table);
        table_set_text(&table, 0, category_name(i));
        TABLE_SET(&table, 1, forward + backward + other,
                  share_of(forward + backward + other, sums[FORWARD] + sums[BACKWARD] + sums[OTHER]), forward,
                  share_of(forward, sums[FORWARD]), backward, share_of(backward, sums[BACKWARD]), other,
                  f->events[i]);
    }
    return table;
}

/* ---- sources ---- */

/* Whether the table already has this operation, pass and primitive, from the same line. */
static bool listed(const Table *table, const char *operation, const char *part, const char *source) {
    for (int64_t row = 0; row < table->rows; row++) {
        const Cell *cells = &table->cells[row * table->column_count];
        if (strcmp(cells[0].text, operation) == 0 && strcmp(cells[1].text, part) == 0 &&
            strcmp(cells[4].text, source) == 0)
            return true;
    }
    return false;
}

Table table_sources(const Trace *t) {
    static const TableColumn columns[] = {{"operation", "Operation", CELL_TEXT},
                                          {"primitive", "Primitive", CELL_TEXT},
                                          {"form", "Form", CELL_TEXT},
                                          {"category", "Category", CELL_TEXT},
                                          {"source", "Source", CELL_TEXT}};
    Table table = TABLE("sources", "Where it is implemented", columns);
    const char *last = NULL;
    for (int64_t i = 0; i < t->count; i++) {
        const TraceEvent *e = &t->events[i];
        char label[LABEL_BYTES];
        if (e->kind != TRACE_PRIMITIVE || !trace_in_step(e) || !e->source || e->source == last) continue;
        if (e->step != t->run.first_step) break; // every step is the same
        operation_label(e, label);
        last = e->source;
        if (listed(&table, label, e->name, e->source)) continue;
        const char *const cells[] = {label, e->name, form_name(e->form), category_name(e->category),
                                     e->source};
        table_add_row(&table);
        for (int k = 0; k < 5; k++) table_set_text(&table, k, cells[k]);
    }
    return table;
}
