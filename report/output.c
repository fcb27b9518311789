#include "report/output.h"

#include "base/cores.h"
#include "base/directories.h"
#include "base/memory.h"
#include "report/bundle.h"
#include "report/chrome.h"
#include "report/markdown_report.h"
#include "report/page.h"
#include "report/text_file.h"

#include <inttypes.h>

/* ---- the terminal ---- */

void profile_print_head(const char *label, const TraceRun *r, FILE *file) {
    fprintf(file, "%s%s%s, batch %" PRId64 ", seq %" PRId64 ", %s, on %s: %s%s%s; %s%s%s\n",
            label ? label : "", label ? ": " : "", r->model, r->batch, r->seq, r->dtype, r->device,
            source_name(r->source), *r->source_note ? ": " : "", r->source_note, r->step,
            *r->step ? ", " : "", r->window);
    if (r->cores_waited > CORES_SHARED) fprintf(file, "%s\n", cores_warning(r->cores_waited).text);
}

static void print_audit(const ProfilePath *path, FILE *file) {
    const Trace *t = path->trace;
    fprintf(file, "audit, %s\n", path->label);
    for (int64_t i = 0; i < t->finding_count; i++)
        fprintf(file, "  %-6s %s: %s\n", t->findings[i].passed ? "passed" : "FAILED", t->findings[i].name,
                t->findings[i].detail);
}

void profile_print(const Profile *profile, const ProfileOptions *options, FILE *file) {
    if (options->questions) {
        Answers answers = questions_answer(profile);
        for (int i = 0; i < profile->count; i++)
            profile_print_head(profile->paths[i].label, &profile->paths[i].trace->run, file);
        fprintf(file, "\n");
        answers_print(&answers, file);
        fprintf(file, "\n");
        answers_free(&answers);
    }
    for (int i = 0; i < profile->count; i++) print_audit(&profile->paths[i], file);
}

/* ---- files ---- */

enum { FILE_NAME_BYTES = 256 };

/* "trace_naive_bs8.json" */
static void file_name(const char *stem, const char *label, const ProfileOptions *options, const char *ending,
                      char name[FILE_NAME_BYTES]) {
    snprintf(name, FILE_NAME_BYTES, "%s%s%s%s%s", stem, label ? "_" : "", label ? label : "",
             options->suffix ? options->suffix : "", ending);
}

static char *named(const char *folder, const char *stem, const char *label, const ProfileOptions *options,
                   const char *ending) {
    char name[FILE_NAME_BYTES];
    file_name(stem, label, options, ending, name);
    return path_join(folder, name);
}

static Status write_bundle(const Profile *profile, const Answers *answers, const char *folder,
                           const ProfileOptions *options) {
    JsonWriter bundle = {0};
    char *json = named(folder, "profiling_stats", NULL, options, ".json");
    char *html = named(folder, "profile", NULL, options, ".html");
    bundle_render(profile, answers, &bundle);
    Status status = json_writer_save(&bundle, json);
    if (!status) status = page_write(bundle.text, (int64_t)bundle.length, html);
    json_writer_free(&bundle);
    memory_free(json);
    memory_free(html);
    return status;
}

static Status write_report(const Profile *profile, const Answers *answers, const char *folder,
                           const ProfileOptions *options) {
    TextFile text;
    char name[FILE_NAME_BYTES];
    file_name("kernel_analysis_report", NULL, options, ".md", name);
    TRY(text_file_open(&text));
    markdown_report_print(profile, answers, text.file);
    return text_file_save(&text, folder, name);
}

static Status write_traces(const Profile *profile, const char *folder, const ProfileOptions *options) {
    for (int i = 0; i < profile->count; i++) {
        char *path = named(folder, "trace", profile->count > 1 ? profile->paths[i].label : NULL, options,
                           options->compress ? ".json.gz" : ".json");
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
    TextFile text;
    char name[128];
    snprintf(name, sizeof name, "%s%s%s%s", label ? label : "", label ? "_" : "", table ? table->key : "all",
             table ? ".csv" : ".md");
    TRY(text_file_open(&text));
    if (table)
        table_print_csv(table, text.file);
    else
        print_all(path, view, text.file);
    return text_file_save(&text, folder, name);
}

/* A file for each table, tables/operations.csv, and all in tables/all.md; of two paths
 * tables/naive_operations.csv. */
static Status write_tables(const Profile *profile, const char *folder, const ProfileOptions *options) {
    char *tables = named(folder, "tables", NULL, options, "");
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
    TRY(directory_make(folder));
    Answers answers = questions_answer(profile);
    Status status = write_bundle(profile, &answers, folder, options);
    if (!status) status = write_report(profile, &answers, folder, options);
    if (!status) status = write_traces(profile, folder, options);
    if (!status) status = write_tables(profile, folder, options);
    answers_free(&answers);
    return status;
}
