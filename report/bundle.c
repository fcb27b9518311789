#include "report/bundle.h"

#include "base/memory.h"
#include "report/bundle_guide.h"
#include "report/bundle_schema.h"
#include "report/timeline.h"
#include "base/stats.h"

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
                        .covered = ratio(f->covered_ns, f->step_ns),
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
                                    .guide = bundle_guide(&profile->paths[0].figures)}};
    for (int i = 0; i < profile->count; i++) {
        Tables *tables = &made->tables[i];
        tables_make(&profile->paths[i].figures, options->names, tables);
        for (int k = 0; k < tables->count; k++) table_arrange(&tables->tables[k], &order);
        made->paths[i] = path_of(&profile->paths[i], tables, &made->rooms[i]);
    }
}

void bundle_unmake(MadeBundle *made) {
    bundle_guide_free(&made->bundle.guide);
    for (int64_t i = 0; i < made->bundle.paths_count; i++) {
        memory_free(made->paths[i].timeline);
        events_unmake(made->paths[i].recorded, made->paths[i].recorded_count);
        tables_free(&made->tables[i]);
    }
}
