#include "report/bundle_guide.h"

#include "base/memory.h"
#include "report/tables_internal.h"
#include "report/torch_tables.h"

#include <string.h>

enum { OPERATORS_MOST = 30, ATEN_MOST = 10, KERNELS_MOST = 20 };

static double cell(const Table *table, int64_t row, const char *key) {
    return table->cells[row * table->column_count + table_column(table, key)].number;
}

static double ms(const Table *table, int64_t row, const char *key) {
    double ns = cell(table, row, key);
    return ns > 0 ? 1e-6 * ns : 0;
}

static const char *name_of(const Table *table, int64_t row) {
    return table->cells[row * table->column_count].text;
}

static bool is_aten(const char *name) {
    return strncmp(name, "aten::", 6) == 0;
}

/* The first primitive with a call of this name; NULL: none. */
static const TraceEvent *first_of(const Trace *t, const char *name) {
    for (int64_t i = 0; i < t->count; i++)
        if (t->events[i].torch && strcmp(t->events[i].torch, name) == 0) return &t->events[i];
    return NULL;
}

/* Takes the first rows, with `aten` only PyTorch's own operators; returns their number. */
static int64_t take_operators(const Trace *t, const Table *table, bool aten, GuideRow *rows, int64_t most) {
    int64_t count = 0;
    for (int64_t i = 0; i < table->rows && count < most; i++) {
        const char *name = name_of(table, i);
        if (aten && !is_aten(name)) continue;
        const TraceEvent *first = aten ? first_of(t, name) : NULL;
        rows[count] = (GuideRow){.name = memory_text(name),
                                 .device_ms = ms(table, i, "device_ns"),
                                 .device_mean_ms = ms(table, i, "device_mean_ns"),
                                 .host_ms = ms(table, i, "cpu_ns"),
                                 .host_mean_ms = ms(table, i, "cpu_mean_ns"),
                                 .self_device_ms = ms(table, i, "self_device_ns"),
                                 .self_host_ms = ms(table, i, "self_cpu_ns"),
                                 .count = (int64_t)cell(table, i, "calls"),
                                 .source = first ? first->source : NULL,
                                 .category = category_name(first ? first->category : CATEGORY_OTHER)};
        rows[count].native = aten ? rows[count].name + strlen("aten::") : NULL;
        count++;
    }
    return count;
}

static int64_t take_kernels(const Table *table, GuideRow *rows) {
    int64_t count = 0;
    for (; count < table->rows && count < KERNELS_MOST; count++)
        rows[count] = (GuideRow){.name = memory_text(name_of(table, count)),
                                 .device_ms = ms(table, count, "total_ns"),
                                 .device_mean_ms = ms(table, count, "mean_ns"),
                                 .count = (int64_t)cell(table, count, "instances")};
    return count;
}

static void sum_categories(const Figures *f, GuideCategory categories[CATEGORY_COUNT]) {
    Table table = table_categories(f);
    for (int64_t i = 0; i < table.rows; i++)
        categories[i] = (GuideCategory){ms(&table, i, "device_ns"),
                                        100 * ratio(cell(&table, i, "device_ns"), trace_device_ns(f->trace)),
                                        (int64_t)cell(&table, i, "events")};
    table_free(&table);
}

BundleGuide bundle_guide(const Figures *f) {
    const Trace *t = f->trace;
    Table operators = torch_table_whole(t), kernels = table_kernels(f, NAMES_PLAIN);
    BundleGuide g = {.batch = t->run.batch,
                     .seq = t->run.seq,
                     .width = t->run.width,
                     .device = t->run.device,
                     .device_ms = 1e-6 * trace_device_ns(t),
                     .host_ms = 1e-6 * trace_steps_ns(t),
                     .operators = operators.rows,
                     .kernels = kernels.rows,
                     .top_operators = memory_array(OPERATORS_MOST, sizeof(GuideRow)),
                     .top_aten = memory_array(ATEN_MOST, sizeof(GuideRow)),
                     .top_kernels = memory_array(KERNELS_MOST, sizeof(GuideRow))};
    for (int64_t row = 0; row < operators.rows; row++) g.aten += is_aten(name_of(&operators, row));
    g.top_operators_count = take_operators(t, &operators, false, g.top_operators, OPERATORS_MOST);
    g.top_aten_count = take_operators(t, &operators, true, g.top_aten, ATEN_MOST);
    g.top_kernels_count = take_kernels(&kernels, g.top_kernels);
    sum_categories(f, g.categories);
    table_free(&operators);
    table_free(&kernels);
    return g;
}

void bundle_guide_free(const BundleGuide *g) {
    GuideRow *const rows[] = {g->top_operators, g->top_aten, g->top_kernels};
    const int64_t counts[] = {g->top_operators_count, g->top_aten_count, g->top_kernels_count};
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < counts[k]; i++) memory_free(rows[k][i].name);
        memory_free(rows[k]);
    }
}
