#define _GNU_SOURCE
#include "profile/output.h"

#include "base/directories.h"
#include "base/memory.h"
#include "profile/bundle.h"
#include "profile/chrome.h"
#include "profile/markdown_report.h"
#include "profile/page.h"
#include "profile/questions.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- the terminal ---- */

void profile_print_head(const char *label, const TraceRun *r, FILE *file) {
    fprintf(file, "%s%s%s, batch %" PRId64 ", seq %" PRId64 ", %s, on %s: %s%s%s; %s%s%s\n",
            label ? label : "", label ? ": " : "", r->model, r->batch, r->seq, r->dtype, r->device,
            source_name(r->source), *r->source_note ? ": " : "", r->source_note, r->step,
            *r->step ? ", " : "", r->window);
}

static void print_audit(const ProfilePath *path, FILE *file) {
    const Trace *t = path->trace;
    fprintf(file, "audit, %s\n", path->label);
    for (int64_t i = 0; i < t->finding_count; i++)
        fprintf(file, "  %-6s %s: %s\n", t->findings[i].passed ? "passed" : "FAILED", t->findings[i].name,
                t->findings[i].detail);
}

Status profile_print(const Profile *profile, const ProfileOptions *options, FILE *file) {
    Answers answers = {0};
    if (options->questions) TRY(questions_answer(profile, &answers));
    if (options->questions) {
        for (int i = 0; i < profile->count; i++)
            profile_print_head(profile->paths[i].label, &profile->paths[i].trace->run, file);
        fprintf(file, "\n");
        questions_print(&answers, file);
        fprintf(file, "\n");
    }
    for (int i = 0; i < profile->count; i++) print_audit(&profile->paths[i], file);
    questions_free(&answers);
    return OK;
}

/* ---- files ---- */

static Status named(const char *folder, const char *stem, const char *label, const ProfileOptions *options,
                    const char *ending, char **path) {
    char name[256];
    snprintf(name, sizeof name, "%s%s%s%s%s", stem, label ? "_" : "", label ? label : "",
             options->suffix ? options->suffix : "", ending);
    *path = path_join(folder, name);
    return OK;
}

static Status write_bundle(const JsonWriter *bundle, const char *folder, const ProfileOptions *options) {
    char *path = NULL;
    TRY(named(folder, "profiling_stats", NULL, options, ".json", &path));
    Status status = file_write(path, bundle->text, (int64_t)bundle->length);
    memory_free(path);
    if (status) return status;
    TRY(named(folder, "profile", NULL, options, ".html", &path));
    status = page_write(bundle->text, (int64_t)bundle->length, path);
    memory_free(path);
    return status;
}

static Status write_digest(const Profile *profile, const Answers *answers, const char *folder,
                           const ProfileOptions *options) {
    char *path = NULL, *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) return fail(ERROR_MEMORY, "out of host memory for the digest");
    digest_print(profile, answers, memory);
    Status status = fclose(memory) == 0 ? OK : fail(ERROR_MEMORY, "out of host memory for the digest");
    if (!status) status = named(folder, "kernel_analysis_report", NULL, options, ".md", &path);
    if (!status) status = file_write(path, text, (int64_t)length);
    memory_free(path);
    free(text); // the C library's own
    return status;
}

static Status write_traces(const Profile *profile, const char *folder, const ProfileOptions *options) {
    for (int i = 0; i < profile->count; i++) {
        char *path = NULL;
        TRY(named(folder, "trace", profile->count > 1 ? profile->paths[i].label : NULL, options,
                  options->compress ? ".json.gz" : ".json", &path));
        Status status = chrome_write(profile->paths[i].trace, path);
        memory_free(path);
        if (status) return status;
    }
    return OK;
}

/* The tables of a path, with its head, as Markdown. */
static void print_all(const ProfilePath *path, const TableView *view, FILE *file) {
    fprintf(file, "# ");
    profile_print_head(path->label, &path->trace->run, file);
    fprintf(file, "\n");
    for (int i = 0; i < path->tables.count; i++) table_print_markdown(&path->tables.tables[i], view, file);
}

/* One table as CSV, or with NULL all as Markdown, into "LABEL_NAME.ENDING". */
static Status write_table(const ProfilePath *path, const Table *table, const char *folder, const char *label,
                          const TableView *view) {
    char *file = NULL, *text = NULL, name[128];
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) return fail(ERROR_MEMORY, "out of host memory for a table");
    if (table)
        table_print_csv(table, memory);
    else
        print_all(path, view, memory);
    Status status = fclose(memory) == 0 ? OK : fail(ERROR_MEMORY, "out of host memory for a table");
    snprintf(name, sizeof name, "%s%s%s%s", label ? label : "", label ? "_" : "", table ? table->key : "all",
             table ? ".csv" : ".md");
    file = path_join(folder, name);
    if (!status) status = file_write(file, text, (int64_t)length);
    memory_free(file);
    free(text); // the C library's own
    return status;
}

/* A file for each table, tables/operations.csv, and all in tables/all.md; of two paths
 * tables/naive_operations.csv. */
static Status write_tables(const Profile *profile, const char *folder, const ProfileOptions *options) {
    char *tables = NULL;
    TRY(named(folder, "tables", NULL, options, "", &tables));
    Status status = directory_make(tables);
    for (int i = 0; i < profile->count && !status; i++) {
        const ProfilePath *path = &profile->paths[i];
        const char *label = profile->count > 1 ? path->label : NULL;
        for (int k = 0; k < path->tables.count && !status; k++)
            status = write_table(path, &path->tables.tables[k], tables, label, &options->view);
        if (!status) status = write_table(path, NULL, tables, label, &options->view);
    }
    memory_free(tables);
    return status;
}

Status profile_write(const Profile *profile, const char *folder, const ProfileOptions *options) {
    Answers answers;
    JsonWriter bundle = {0};
    TRY(directory_make(folder));
    TRY(questions_answer(profile, &answers));
    Status status = bundle_render(profile, &answers, &bundle);
    if (!status) status = write_bundle(&bundle, folder, options);
    if (!status) status = write_digest(profile, &answers, folder, options);
    if (!status) status = write_traces(profile, folder, options);
    if (!status) status = write_tables(profile, folder, options);
    json_writer_free(&bundle);
    questions_free(&answers);
    return status;
}
