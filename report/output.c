#include "report/output.h"

#include "base/directories.h"
#include "base/memory.h"
#include "report/bundle.h"
#include "report/bundle_trace.h"
#include "report/chrome.h"
#include "report/markdown_report.h"
#include "report/page.h"
#include "report/print.h"
#include "report/text_file.h"
#include "report/torch_tables.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

static Status write_text(const JsonWriter *text, const char *folder, const ProfileOptions *options) {
    OWNED char *json = named(folder, "profiling_stats", NULL, options, ".json");
    OWNED char *html = named(folder, "profile", NULL, options, ".html");
    TRY(directory_make(folder));
    TRY(json_writer_save(text, json));
    return page_write(text->text, (int64_t)text->length, html);
}

/* Replaces the tables of operations by those with PyTorch's names, sorted as the options say. */
static Status in_torch_words(Bundle *file, const ProfileOptions *options) {
    TRY(torch_tables(file, options->names & NAMES_FULL));
    const TableView order = {.sort = options->view.sort};
    for (int64_t i = 0; i < file->paths_count; i++)
        for (int64_t k = 0; k < file->paths[i].tables_count; k++)
            if (strncmp(file->paths[i].tables[k].key, "operations", strlen("operations")) == 0)
                table_arrange(&file->paths[i].tables[k], &order);
    return OK;
}

/* Writes the bundle into `folder`, unless that is "", and returns it as read back. All other output is
 * made from that. */
static Status write_bundle(const Bundle *bundle, const char *folder, const ProfileOptions *options,
                           Bundle *file) {
    CLOSED_BY(json_writer_free) JsonWriter text = {0};
    *file = (Bundle){0};
    fields_write(&text, bundle_fields, bundle);
    if (*folder) TRY(write_text(&text, folder, options));
    TRY(bundle_parse(text.text, (int64_t)text.length, "profiling_stats", file));
    return options->torch ? in_torch_words(file, options) : OK;
}

/* "_bs8_seq128" and the suffix, as in names of guides to PyTorch's profiler. A sweep's suffix already contains
 * the sizes. */
static void sizes_of(const TraceRun *run, const char *suffix, char text[FILE_NAME_BYTES]) {
    int length = 0;
    if (!suffix || strncmp(suffix, "_bs", 3) != 0)
        length = snprintf(text, FILE_NAME_BYTES, "_bs%" PRId64 "_seq%" PRId64, run->batch, run->seq);
    snprintf(text + length, (size_t)(FILE_NAME_BYTES - length), "%s", suffix ? suffix : "");
}

static Status write_report(const Bundle *bundle, const char *folder, const ProfileOptions *options) {
    TextFile text;
    char sizes[FILE_NAME_BYTES], name[FILE_NAME_BYTES];
    sizes_of(&bundle->run, options->suffix, sizes);
    snprintf(name, sizeof name, "kernel_analysis_report%.200s.md", sizes);
    TRY(text_file_open(&text));
    markdown_report_print(bundle, text.file);
    return text_file_save(&text, folder, name);
}

/* "gpt2_naive_trace_bs8_seq128.json". Characters that are unsuitable in a file name become "-", and "(changed)"
 * after a model's name is omitted. */
static void trace_name_of(const TraceRun *run, const char *label, const char *suffix,
                          char name[FILE_NAME_BYTES]) {
    char sizes[FILE_NAME_BYTES];
    sizes_of(run, suffix, sizes);
    snprintf(name, FILE_NAME_BYTES, "%.*s%s%s_trace%s.json", (int)strcspn(run->model, " "), run->model,
             label ? "_" : "", label ? label : "", sizes);
    for (char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("._-", *at)) *at = '-';
}

static Status write_trace(const Bundle *file, int64_t path, const char *to) {
    CLOSED_BY(bundle_trace_free) BundleTrace made = {0};
    TRY(bundle_trace(file, path, &made));
    return chrome_write(&made.trace, to);
}

static Status write_traces(const Bundle *file, const char *folder, const ProfileOptions *options) {
    for (int64_t i = 0; i < file->paths_count; i++) {
        const char *label = file->paths_count > 1 ? file->paths[i].label : NULL;
        char name[FILE_NAME_BYTES];
        if (options->trace && *options->trace)
            file_name("trace", label, options, strchr(options->trace, '.'), name);
        else
            trace_name_of(&file->run, label, options->suffix, name);
        OWNED char *path = path_join(folder, name);
        TRY(write_trace(file, i, path));
    }
    return OK;
}

/* The tables of a path, with its heading, as Markdown. */
static void print_all(const Bundle *b, const BundlePath *path, const TableView *view, FILE *file) {
    fprintf(file, "# ");
    bundle_print_head(b, path, file);
    fprintf(file, "\n");
    for (int64_t i = 0; i < path->tables_count; i++) table_print_markdown(&path->tables[i], view, file);
}

/* Prints "naive_operations.csv" into `text` and saves it. */
static Status save_table(TextFile *text, const char *folder, const char *label, const char *key,
                         const char *ending) {
    char name[FILE_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s%s%s", label ? label : "", label ? "_" : "", key, ending);
    return text_file_save(text, folder, name);
}

/* One file per table, tables/operations.csv, and all in tables/all.md; with two paths
 * tables/naive_operations.csv. */
static Status write_tables(const Bundle *b, const char *folder, const ProfileOptions *options) {
    OWNED char *tables = named(folder, "tables", NULL, options, "");
    TextFile text;
    TRY(directory_make(tables));
    for (int64_t i = 0; i < b->paths_count; i++) {
        const BundlePath *path = &b->paths[i];
        const char *label = b->paths_count > 1 ? path->label : NULL;
        for (int64_t k = 0; k < path->tables_count; k++) {
            TRY(text_file_open(&text));
            table_print_csv(&path->tables[k], text.file);
            TRY(save_table(&text, tables, label, path->tables[k].key, ".csv"));
        }
        TRY(text_file_open(&text));
        print_all(b, path, &options->view, text.file);
        TRY(save_table(&text, tables, label, "all", ".md"));
    }
    return OK;
}

static Status write_rendered(const Bundle *file, const ProfileOptions *options, const char *folder) {
    TRY(write_report(file, folder, options));
    TRY(write_traces(file, folder, options));
    return write_tables(file, folder, options);
}

static void print(const Bundle *bundle, const ProfileOptions *options, FILE *file) {
    if (!options->questions) bundle_print_tables(bundle, &options->view, file);
    fputc('\n', file);
    if (options->questions) bundle_print_questions(bundle, file);
    bundle_print_audit(bundle, file);
}

Status report_profile(const Profile *profile, const ProfileOptions *options, const char *folder, FILE *file) {
    MadeBundle made;
    CLOSED_BY(bundle_free) Bundle read = {0};
    Answers answers = questions_answer(profile);
    bundle_make(profile, &answers, options, &made);
    Status status = write_bundle(&made.bundle, folder, options, &read);
    bundle_unmake(&made);
    answers_free(&answers);
    TRY(status);
    if (file) print(&read, options, file);
    return *folder ? write_rendered(&read, options, folder) : OK;
}

void report_timed(const Trace *trace, const char *label, const ProfileOptions *options, FILE *file) {
    Tables tables;
    tables_make(&(Figures){.trace = trace}, options->names, &tables);
    fputc('\n', file);
    run_print_head(label, &trace->run, file);
    for (int i = 0; i < tables.count; i++) {
        table_arrange(&tables.tables[i], &options->view);
        fputc('\n', file);
        table_print_text(&tables.tables[i], &options->view, file);
    }
    tables_free(&tables);
}
