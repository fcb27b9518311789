/* profile: commands for the bundles and comparisons that ./train and ./infer write. */
#include "base/files.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/version.h"
#include "base/wrap.h"
#include "report/anatomy.h"
#include "report/bundle_check.h"
#include "report/bundle_trace.h"
#include "report/chrome.h"
#include "report/diff.h"
#include "report/markdown_report.h"
#include "report/page.h"
#include "report/picture.h"
#include "report/print.h"
#include "report/torch_tables.h"

#include <stdio.h>
#include <string.h>

enum { LIMITS_MOST = 32, EXIT_EXCEEDED = 8 };

static const char *const usage[] = {"diff BEFORE.json AFTER.json [--fail-if LIMIT]...",
                                    "diff A1.json A2.json... vs B1.json... [--fail-if LIMIT]...",
                                    "check FILE.json...",
                                    "page FILE.json PAGE.html",
                                    "trace FILE.json TRACE.json [naive|fused]",
                                    "tables FILE.json [--torch-compat]",
                                    "questions FILE.json",
                                    "report FILE.json",
                                    "picture COMPARE.json PICTURE.svg",
                                    "anatomy [NAME]",
                                    "schema",
                                    "--version",
                                    "--manual",
                                    NULL};

static const char help[] =
    "\n"
    "A FILE.json is a profile, or the folder of --profile-out that holds it.\n"
    "\n"
    "  diff     compares two profiles, or several runs per side, operation by\n"
    "           operation: added, removed, slower, faster, or the same within noise,\n"
    "           which is below 1%, or within the spread between the runs.\n"
    "           Times are judged only with two or more runs per side; five detect a\n"
    "           change of a few percent. LIMIT is \"step>+3%\", \"memory>+1%\" or\n"
    "           \"launches>+0%\", or names a call, with or without its pass: \"attention\n"
    "           backward>+5%\"; \"<-3%\" limits a gain. Exit code 8 if a significant\n"
    "           change exceeds a limit.\n"
    "  check    checks profiles: their form, that sums equal those of their parts,\n"
    "           that copies of a figure are equal, and that the audit's verdicts\n"
    "           follow from its figures. Exit code 4 if anything is wrong.\n"
    "  page     writes the HTML page of a profile; it needs no network and no other\n"
    "           file.\n"
    "  trace    writes the trace of a path (by default the first) for Perfetto and\n"
    "           chrome://tracing; compressed if TRACE ends in .gz.\n"
    "  tables, questions, report\n"
    "           print a profile like --report=tables and --report=questions, or as\n"
    "           Markdown; with --torch-compat operations have the names and\n"
    "           columns of PyTorch's profiler.\n"
    "  picture  draws the comparison that `./train --compare --out=FOLDER` wrote to\n"
    "           FOLDER/compare.json, operation by operation.\n"
    "  anatomy  describes the CUDA kernels of this version, or those whose name or\n"
    "           file contains NAME: what is parallel, grid and block, registers and\n"
    "           shared memory, what limits occupancy, how memory is read, where\n"
    "           threads wait, what could still be fused.\n"
    "  schema   prints the keys of a profile; docs/profile-schema.md explains them.\n";

static const OptionNote manual[] = {
    {"COMMANDS", NULL},
    {"diff BEFORE.json AFTER.json [--fail-if LIMIT]...", "Compares two profiles, operation by operation."},
    {"diff A1.json A2.json... vs B1.json B2.json...", "Compares several runs per side."},
    {"check FILE.json...", "Checks that profiles are consistent."},
    {"page FILE.json PAGE.html", "Writes the HTML page of a profile."},
    {"trace FILE.json TRACE.json [naive|fused]", "Writes the trace of a path, for Perfetto."},
    {"tables FILE.json [--torch-compat]", "Prints a profile as tables, also with PyTorch's names."},
    {"questions FILE.json", "Prints a profile as answers to seven questions."},
    {"report FILE.json", "Prints a profile as Markdown."},
    {"picture COMPARE.json PICTURE.svg", "Draws a comparison."},
    {"anatomy [NAME]", "Describes the CUDA kernels of this version."},
    {"schema", "Prints the keys of a profile."},
    {"EXAMPLES", NULL},
    {"fusebox-profile check profile/profiling_stats.json", "Checks a profile again."},
    {"fusebox-profile diff old.json new.json --fail-if 'step>+3%'", "Fails if the step became slower."},
    {"EXIT STATUS", NULL},
    {"0", "Done."},
    {"2", "An unknown, malformed or contradictory command."},
    {"3", "A file is missing, or cannot be read or written."},
    {"4", "A file is malformed, or check found something wrong."},
    {"8", "A change that is not noise exceeds a limit of diff."},
    {"FILES", NULL},
    {"profiling_stats.json", "A profile, as --profile-out writes it into a folder, which stands for it."},
    {"compare.json", "A comparison, as fusebox-train --compare --out=FOLDER writes it."},
    {"SEE ALSO", NULL},
    {"fusebox-train(1), fusebox-infer(1)", ""},
    {0},
};

static const OptionSet described = {.program = "profile",
                                    .version = FUSEBOX_VERSION,
                                    .summary = "Compares, checks and shows profiles.",
                                    .manual = manual};

static void print_help(const char *called) {
    for (int i = 0; usage[i]; i++) printf("%s %s %s\n", i ? "      " : "Usage:", called, usage[i]);
    fputs(help, stdout);
}

/* "--fail-if LIMIT" or "--fail-if=LIMIT" at argv[*at]; moves *at to its last word. */
static Status read_limit(int argc, char **argv, int *at, DiffLimit *limits, int *count) {
    const char *text = argv[*at] + strlen("--fail-if");
    if (*count == LIMITS_MOST) return fail(ERROR_USAGE, "more than %d --fail-if options", LIMITS_MOST);
    if (*text == '=')
        text++;
    else if (*text || *at + 1 == argc)
        return fail(ERROR_USAGE, "%s: write --fail-if=\"step>+3%%\"", argv[*at]);
    else
        text = argv[++*at];
    return diff_limit_parse(text, &limits[(*count)++]);
}

/* The paths before and after the word "vs", or without it two paths. */
typedef struct {
    const char *paths[2][DIFF_RUNS_MOST];
    int counts[2];
} DiffFiles;

static Status add_file(const char *path, bool second, DiffFiles *files) {
    if (files->counts[second] == DIFF_RUNS_MOST)
        return fail(ERROR_USAGE, "diff takes at most %d runs per side", DIFF_RUNS_MOST);
    files->paths[second][files->counts[second]++] = path;
    return OK;
}

static Status read_diff(int argc, char **argv, DiffFiles *files, DiffLimit *limits, int *limit_count) {
    bool versus = false, second = false;
    for (int i = 0; i < argc; i++) versus |= strcmp(argv[i], "vs") == 0;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--fail-if", strlen("--fail-if")) == 0) {
            TRY(read_limit(argc, argv, &i, limits, limit_count));
            continue;
        }
        if (argv[i][0] == '-') return fail(ERROR_USAGE, "diff has no option %s; it has --fail-if", argv[i]);
        if (strcmp(argv[i], "vs") == 0) {
            if (second) return fail(ERROR_USAGE, "diff has two sides, but there is a second 'vs'");
            second = true;
            continue;
        }
        if (!versus && files->counts[1])
            return fail(ERROR_USAGE,
                        "diff compares two files; %s is a third. Several runs per side: A1 A2 vs B1 B2",
                        argv[i]);
        TRY(add_file(argv[i], second, files));
        second |= !versus;
    }
    if (files->counts[0] && files->counts[1]) return OK;
    return fail(ERROR_USAGE,
                "diff needs two files, diff BEFORE.json AFTER.json, or runs on both sides of vs");
}

static Status diff(int argc, char **argv, int *code) {
    static Bundle bundles[2][DIFF_RUNS_MOST];
    DiffFiles files = {0};
    DiffLimit limits[LIMITS_MOST];
    int limit_count = 0, exceeded = 0;
    TRY(read_diff(argc, argv, &files, limits, &limit_count));
    Status status = OK;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < files.counts[side] && !status; i++)
            status = bundle_read(files.paths[side][i], &bundles[side][i]);
    const DiffSide sides[2] = {{bundles[0], files.counts[0]}, {bundles[1], files.counts[1]}};
    if (!status) status = diff_bundles(sides, limits, limit_count, stdout, &exceeded);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < files.counts[side]; i++) bundle_free(&bundles[side][i]);
    if (exceeded) *code = EXIT_EXCEEDED;
    return status;
}

static Status check(int argc, char **argv) {
    if (argc == 0) return fail(ERROR_USAGE, "check needs a file: check FILE.json");
    for (int i = 0; i < argc; i++) {
        CLOSED_BY(bundle_free) Bundle bundle = {0};
        TRY(bundle_read(argv[i], &bundle));
        TRY(fail_at(bundle_check(&bundle), "%s", argv[i]));
        printf("%s: %s, %s, on %s; %d path%s\n", argv[i], bundle.run.model, bundle.run.dtype,
               bundle.run.device, (int)bundle.paths_count, bundle.paths_count == 1 ? "" : "s");
    }
    return OK;
}

static Status page(int argc, char **argv) {
    if (argc != 2)
        return fail(ERROR_USAGE, "page needs a bundle and a file to write: page FILE.json PAGE.html");
    OWNED char *text = NULL;
    int64_t length;
    CLOSED_BY(bundle_free) Bundle bundle = {0};
    TRY(bundle_read_text(argv[0], &text, &length, &bundle));
    return page_write(text, length, argv[1]);
}

/* The path with this label; -1: none. */
static int64_t find_path(const Bundle *b, const char *label) {
    int64_t i = b->paths_count - 1;
    while (i >= 0 && strcmp(b->paths[i].label, label) != 0) i--;
    return i;
}

static Status trace(int argc, char **argv) {
    if (argc != 2 && argc != 3)
        return fail(ERROR_USAGE, "trace needs a bundle and a file to write: trace FILE.json TRACE.json");
    CLOSED_BY(bundle_free) Bundle bundle = {0};
    CLOSED_BY(bundle_trace_free) BundleTrace made = {0};
    TRY(bundle_read(argv[0], &bundle));
    const int64_t path = argc == 3 ? find_path(&bundle, argv[2]) : 0;
    if (path < 0)
        return fail(ERROR_USAGE, "%s has no path '%s'; its first is '%s'", argv[0], argv[2],
                    bundle.paths[0].label);
    TRY(bundle_trace(&bundle, path, &made));
    return chrome_write(&made.trace, argv[1]);
}

/* Prints a bundle in one of its forms. */
static Status print(const char *verb, int argc, char **argv) {
    const TableView all = {.width = report_width(stdout), .split = true};
    const bool tables = strcmp(verb, "tables") == 0,
               torch = tables && argc == 2 && strcmp(argv[1], "--torch-compat") == 0;
    CLOSED_BY(bundle_free) Bundle bundle = {0};
    if (argc != 1 + torch) return fail(ERROR_USAGE, "%s needs a bundle: %s FILE.json", verb, verb);
    TRY(bundle_read(argv[0], &bundle));
    if (torch) TRY(fail_at(torch_tables(&bundle, false), "%s", argv[0]));
    if (tables) bundle_print_tables(&bundle, &all, stdout);
    if (strcmp(verb, "questions") == 0) bundle_print_questions(&bundle, stdout);
    if (strcmp(verb, "report") == 0)
        markdown_report_print(&bundle, stdout);
    else
        bundle_print_audit(&bundle, stdout);
    return OK;
}

static Status picture(int argc, char **argv) {
    if (argc != 2)
        return fail(ERROR_USAGE, "picture needs a comparison and a file to write: picture COMPARE.json "
                                 "PICTURE.svg");
    return picture_write(argv[0], argv[1]);
}

static Status anatomy(int argc, char **argv) {
    if (argc > 1) return fail(ERROR_USAGE, "anatomy takes one name: anatomy [NAME]");
    if (!anatomy_print(argc ? argv[0] : "", stdout))
        return fail(ERROR_USAGE, "no CUDA kernel or kernel file is named '%s'; profile anatomy lists all",
                    argv[0]);
    return OK;
}

static Status run(const char *called, int argc, char **argv, int *code) {
    static const char *const commands =
        "diff, check, page, trace, tables, questions, report, picture, anatomy and schema";
    if (argc < 2) return fail(ERROR_USAGE, "a command is needed: %s, or --help", commands);
    const char *verb = argv[1];
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0 || strcmp(verb, "help") == 0) {
        print_help(called);
        return OK;
    }
    if (strcmp(verb, "--version") == 0 || strcmp(verb, "-V") == 0) {
        puts(FUSEBOX_VERSION);
        return OK;
    }
    if (strcmp(verb, "--manual") == 0) {
        options_print_manual(&described, stdout);
        return OK;
    }
    if (strcmp(verb, "diff") == 0) return diff(argc - 2, argv + 2, code);
    if (strcmp(verb, "check") == 0) return check(argc - 2, argv + 2);
    if (strcmp(verb, "page") == 0) return page(argc - 2, argv + 2);
    if (strcmp(verb, "tables") == 0 || strcmp(verb, "questions") == 0 || strcmp(verb, "report") == 0)
        return print(verb, argc - 2, argv + 2);
    if (strcmp(verb, "trace") == 0) return trace(argc - 2, argv + 2);
    if (strcmp(verb, "picture") == 0) return picture(argc - 2, argv + 2);
    if (strcmp(verb, "anatomy") == 0) return anatomy(argc - 2, argv + 2);
    if (strcmp(verb, "schema") == 0) {
        fields_describe(bundle_fields, stdout);
        return OK;
    }
    return fail(ERROR_USAGE, "there is no command '%s'; the commands are %s, and --help", verb, commands);
}

int main(int argc, char **argv) {
    int code = 0;
    const char *called = argc ? path_name(argv[0]) : "profile";
    Status status = run(called, argc, argv, &code);
    int failed = status_exit(status, called);
    return failed ? failed : code;
}
