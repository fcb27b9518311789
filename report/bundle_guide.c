#include "report/bundle_guide.h"

#include "base/json_writer.h"
#include "base/memory.h"
#include "report/tables_internal.h"

#include <string.h>

enum { OPERATORS_MOST = 30, ATEN_MOST = 10, KERNELS_MOST = 20 };

static double cell(const Table *table, int64_t row, const char *key) {
    return table->cells[row * table->column_count + table_column(table, key)].number;
}

static const char *name_of(const Table *table, int64_t row) {
    return table->cells[row * table->column_count].text;
}

static void write_ms(JsonWriter *w, const char *key, double ns) {
    json_member_number(w, key, ns > 0 ? 1e-6 * ns : 0);
}

static bool is_aten(const char *name) {
    return strncmp(name, "aten::", 6) == 0;
}

/* The first primitive that is a call of this name; NULL: none. */
static const TraceEvent *first_of(const Trace *t, const char *name) {
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].torch && strcmp(t->events[i].torch, name) == 0) return &t->events[i];
    return NULL;
}

/* Its implementation here stands for the file of PyTorch's. */
static void write_origin(JsonWriter *w, const Trace *t, const char *name) {
    const TraceEvent *first = first_of(t, name);
    json_member_text(w, "native_function", name + strlen("aten::"));
    json_member_text(w, "potential_cuda_file", first && first->source ? first->source : "");
    json_member_text(w, "category", category_name(first ? first->category : CATEGORY_OTHER));
}

static char *write_operators(const Trace *t, const Table *table, bool aten) {
    JsonWriter w = {0};
    int64_t most = aten ? ATEN_MOST : OPERATORS_MOST;
    json_write_open(&w, '[');
    for (int64_t row = 0; row < table->rows && most > 0; row++) {
        const char *name = name_of(table, row);
        if (aten && !is_aten(name)) continue;
        most--;
        json_write_line(&w, 1, true);
        json_write_open(&w, '{');
        json_member_text(&w, "name", name);
        write_ms(&w, "cuda_time_total_ms", cell(table, row, "device_ns"));
        write_ms(&w, "cuda_time_avg_ms", cell(table, row, "device_mean_ns"));
        write_ms(&w, "cpu_time_total_ms", cell(table, row, "cpu_ns"));
        write_ms(&w, "cpu_time_avg_ms", cell(table, row, "cpu_mean_ns"));
        json_member_integer(&w, "count", (int64_t)cell(table, row, "calls"));
        write_ms(&w, "self_cuda_time_ms", cell(table, row, "self_device_ns"));
        write_ms(&w, "self_cpu_time_ms", cell(table, row, "self_cpu_ns"));
        if (aten) write_origin(&w, t, name);
        json_write_close(&w, '}');
    }
    json_write_close(&w, ']');
    return w.text;
}

static char *write_kernels(const Table *kernels) {
    JsonWriter w = {0};
    json_write_open(&w, '[');
    for (int64_t row = 0; row < kernels->rows && row < KERNELS_MOST; row++) {
        json_write_line(&w, 1, true);
        json_write_open(&w, '{');
        json_member_text(&w, "name", name_of(kernels, row));
        write_ms(&w, "cuda_time_total_ms", cell(kernels, row, "total_ns"));
        write_ms(&w, "cuda_time_avg_ms", cell(kernels, row, "mean_ns"));
        json_member_integer(&w, "count", (int64_t)cell(kernels, row, "instances"));
        json_write_close(&w, '}');
    }
    json_write_close(&w, ']');
    return w.text;
}

static char *write_categories(const Trace *t) {
    JsonWriter w = {0};
    Table table = table_categories(t);
    json_write_open(&w, '{');
    for (int64_t row = 0; row < table.rows; row++) {
        json_member_open(&w, name_of(&table, row), '{');
        write_ms(&w, "total_time_ms", cell(&table, row, "device_ns"));
        json_member_number(&w, "percentage", 100 * ratio(cell(&table, row, "device_ns"), trace_device_ns(t)));
        json_member_integer(&w, "call_count", (int64_t)cell(&table, row, "events"));
        json_write_close(&w, '}');
    }
    json_write_close(&w, '}');
    table_free(&table);
    return w.text;
}

static char *write_summary(const Trace *t, const Table *operators, int64_t kernels) {
    JsonWriter w = {0};
    int64_t aten = 0;
    for (int64_t row = 0; row < operators->rows; row++) aten += is_aten(name_of(operators, row));
    json_write_open(&w, '{');
    write_ms(&w, "total_cuda_time_ms", trace_device_ns(t));
    write_ms(&w, "total_cpu_time_ms", trace_steps_ns(t));
    json_member_integer(&w, "total_operators", operators->rows);
    json_member_integer(&w, "aten_operators", aten);
    json_member_integer(&w, "cuda_kernels", kernels);
    json_write_close(&w, '}');
    return w.text;
}

static char *write_config(const TraceRun *r) {
    JsonWriter w = {0};
    json_write_open(&w, '{');
    json_member_integer(&w, "batch_size", r->batch);
    json_member_integer(&w, "seq_len", r->seq);
    json_member_integer(&w, "hidden_size", r->width);
    json_member_text(&w, "device", r->device);
    json_write_close(&w, '}');
    return w.text;
}

BundleGuide bundle_guide(const Trace *t) {
    Table operators = table_torch(t), kernels = table_kernels(t, NAMES_PLAIN);
    BundleGuide guide = {.config = write_config(&t->run),
                         .summary = write_summary(t, &operators, kernels.rows),
                         .top_operators = write_operators(t, &operators, false),
                         .top_aten_operators = write_operators(t, &operators, true),
                         .top_cuda_kernels = write_kernels(&kernels),
                         .category_statistics = write_categories(t)};
    table_free(&operators);
    table_free(&kernels);
    return guide;
}

void bundle_guide_free(const BundleGuide *g) {
    char *const texts[] = {g->config,           g->summary,
                           g->top_operators,    g->top_aten_operators,
                           g->top_cuda_kernels, g->category_statistics};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) memory_free(texts[i]);
}
