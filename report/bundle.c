#include "report/bundle.h"

#include "base/memory.h"
#include "base/stats.h"
#include "report/tables_internal.h"
#include "report/timeline.h"
#include "report/torch_tables.h"

#include <string.h>

enum { LARGEST = 50 }; // tensors

static BundleStep step_of(const Figures *f) {
    const char *name = f->trace->run.step;
    if (!*name) name = figures_pass_ns(f, PASS_UPDATE) > 0 ? STEP_OF_TRAINING : STEP_OF_A_PASS;
    return (BundleStep){.name = name,
                        .recorded = f->steps,
                        .timed = f->timed,
                        .ns = 1e6 * f->step_ms,
                        .low = 1e6 * f->low,
                        .high = 1e6 * f->high,
                        .spread = 1e6 * f->spread,
                        .traced = f->step_ns,
                        .overhead = f->overhead,
                        .overhead_noise = f->overhead_noise,
                        .reader = 1e6 * f->reader_ms,
                        .device = f->device_ns,
                        .covered = f->covered,
                        .tokens = f->tokens,
                        .launches = f->launches,
                        .cores_waited = f->trace->run.cores_waited};
}

/* Adds the phases, their categories and the memory classes that are not empty. */
static void add_parts(const Figures *f, BundlePath *path, BundleRoom *room) {
    for (int p = 0; p < PHASE_COUNT; p++) {
        BundlePhase phase = {.phase = phase_name(p), .ns = f->phases[p].ns, .categories = room->shares[p]};
        for (int c = 0; c < CATEGORY_COUNT; c++)
            if (f->phases[p].categories[c] > 0)
                phase.categories[phase.categories_count++] =
                    (BundleShare){category_name(c), f->phases[p].categories[c]};
        if (phase.ns > 0) room->phases[path->phases_count++] = phase;
    }
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
        if (f->peak_classes[c])
            room->classes[path->classes_count++] = (TraceTensor){NULL, (MemoryClass)c, f->peak_classes[c]};
    path->phases = room->phases;
    path->classes = room->classes;
}

static char *timeline_of(const Trace *trace) {
    JsonWriter w = {0};
    timeline_write(trace, &w);
    return w.text;
}

static BundlePath path_of(const ProfilePath *from, const Tables *tables, BundleRoom *room) {
    const Figures *f = &from->figures;
    const Trace *t = from->trace;
    BundlePath path = {.label = from->label,
                       .source = source_name(t->run.source),
                       .source_note = t->run.source_note,
                       .window = t->run.window,
                       .step = step_of(f),
                       .rows = f->rows,
                       .rows_count = f->row_count,
                       .kernels = f->kernels,
                       .kernels_count = f->kernel_count,
                       .peak_bytes = f->peak_bytes,
                       .largest = t->tensors,
                       .largest_count = t->tensor_count < LARGEST ? t->tensor_count : LARGEST,
                       .audit = t->findings,
                       .audit_count = t->finding_count,
                       .timeline = timeline_of(t),
                       .tables = (Table *)(uintptr_t)tables->tables, // never modified
                       .tables_count = tables->count};
    add_parts(f, &path, room);
    path.recorded = events_make(t, &path.recorded_count);
    return path;
}

/* ---- the guide: values for scripts that read the JSON of a PyTorch profile ---- */

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

static BundleGuide guide_of(const Figures *f) {
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

static void free_guide(const BundleGuide *g) {
    GuideRow *const rows[] = {g->top_operators, g->top_aten, g->top_kernels};
    const int64_t counts[] = {g->top_operators_count, g->top_aten_count, g->top_kernels_count};
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < counts[k]; i++) memory_free(rows[k][i].name);
        memory_free(rows[k]);
    }
}

/* ---- the bundle ---- */

void bundle_make(const Profile *profile, const Answers *answers, const ProfileOptions *options,
                 MadeBundle *made) {
    const TableView order = {.sort = options->view.sort};
    *made = (MadeBundle){.bundle = {.schema = BUNDLE_SCHEMA,
                                    .version = BUNDLE_VERSION,
                                    .run = profile->paths[0].trace->run,
                                    .paths = made->paths,
                                    .paths_count = profile->count,
                                    .differences = profile->differences,
                                    .differences_count = profile->difference_count,
                                    .answers = answers->answers,
                                    .answers_count = QUESTION_COUNT,
                                    .guide = guide_of(&profile->paths[0].figures)}};
    for (int i = 0; i < profile->count; i++) {
        Tables *tables = &made->tables[i];
        tables_make(&profile->paths[i].figures, options->names, tables);
        for (int k = 0; k < tables->count; k++) table_arrange(&tables->tables[k], &order);
        made->paths[i] = path_of(&profile->paths[i], tables, &made->rooms[i]);
    }
}

void bundle_unmake(MadeBundle *made) {
    free_guide(&made->bundle.guide);
    for (int64_t i = 0; i < made->bundle.paths_count; i++) {
        memory_free(made->paths[i].timeline);
        events_unmake(made->paths[i].recorded, made->paths[i].recorded_count);
        tables_free(&made->tables[i]);
    }
}
