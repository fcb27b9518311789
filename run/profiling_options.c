#include "run/profiling_options.h"

#include "base/directories.h"
#include "base/memory.h"
#include "report/tables.h"
#include "report/torch_tables.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void profiling_options_resolve(const OptionSet *set, ProfilingOptions *o) {
    static const char *const of_tables[] = {"sort",         "limit",     "unit",      "full-names",
                                            "torch-compat", "op-detail", "thread-sep"};
    for (size_t i = 0; i < sizeof of_tables / sizeof *of_tables && !options_given(set, "report"); i++)
        if (options_given(set, of_tables[i])) o->report = REPORT_TABLES;
    if (o->sweep && !*o->window) o->window = "2,0,1,5,1";
    o->set = set;
}

static bool is_setting(const char *name) {
    static const char *const others[] = {
        "profile", "profile-out", "profile-trace", "profile-name", "report",      "sort",
        "limit",   "unit",        "full-names",    "torch-compat", "op-detail",   "thread-sep",
        "quiet",   "out",         "log",           "log-rank",     "tensorboard", "print-config",
        "json",    "output",      "sweep",         "hash-trace"};
    size_t i = 0, count = sizeof others / sizeof *others;
    while (i < count && strcmp(name, others[i]) != 0) i++;
    return i == count;
}

static char *setting(const char *name, json_t *value) {
    enum { VALUE_BYTES = 200, SETTING_BYTES = 320 };
    char text[SETTING_BYTES];
    char *number = json_is_string(value)
                       ? NULL
                       : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(text, sizeof text, "%.100s=%.*s", name, VALUE_BYTES, number ? number : json_string_value(value));
    free(number);
    return memory_text(text);
}

char **profiling_options_settings(const OptionSet *set, int64_t *count) {
    OWNED char *text = options_json(set, false);
    json_auto_t *root = json_loads(text, 0, NULL);
    json_t *value;
    char **settings = memory_array(json_object_size(root) + 1, sizeof *settings);
    const char *name;
    *count = 0;
    json_object_foreach(root, name, value) if (is_setting(name)) settings[(*count)++] = setting(name, value);
    return settings;
}

void profiling_options_settings_free(char **settings, int64_t count) {
    for (int64_t i = 0; i < count; i++) memory_free(settings[i]);
    memory_free(settings);
}

Status profiling_options_window(const ProfilingOptions *o, Window *window) {
    TRY(window_parse(o->window, window));
    window->untimed = o->skip_benchmark;
    return OK;
}

Status profiling_options_steps(const ProfilingOptions *o, int64_t *steps) {
    Window window;
    TRY(profiling_options_window(o, &window));
    *steps = window_last(&window);
    return OK;
}

Status profiling_options_device(const ProfilingOptions *o, const Device *device) {
    if (o->targets != TARGETS_GPU || device->backend == BACKEND_CUDA) return OK;
    return fail(ERROR_USAGE,
                "--profile-targets=gpu: this run uses no GPU, so nothing would be recorded; give cpu");
}

Status profiling_options_folder(const ProfilingOptions *o) {
    if (!*o->out) return OK;
    TRY(directory_make(o->out));
    if (access(o->out, W_OK | X_OK) == 0) return OK;
    return fail(ERROR_FILE, "--profile-out=%.200s: cannot write files there: %s", o->out, strerror(errno));
}

Status profiling_options_check(const ProfilingOptions *o, const ComputeOptions *compute, const OptionSet *set,
                               int64_t steps) {
    static const char *const others[] = {
        "profile-out",  "profile-trace", "profile-graphs", "profile-latency", "profile-isolate",
        "report",       "timer-only",    "sort",           "profile-targets", "limit",
        "unit",         "full-names",    "torch-compat",   "op-detail",       "thread-sep",
        "profile-name", "skip-benchmark"};
    if (o->graphs && !compute->graphs)
        return fail(ERROR_USAGE, "--profile-graphs and --graphs=0 exclude each other; give one of them");
    if (o->graphs && o->latency)
        return fail(ERROR_USAGE,
                    "--profile-graphs and --profile-latency exclude each other: a graph's kernels "
                    "are queued together, and CUPTI gives them no times of their own there");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        TRY(option_needs(set, others[i], *o->window, "--profile"));
    TRY(option_needs(set, "profile-trace", *o->out, "--profile-out"));
    TRY(options_exclude(set, "timer-only", "skip-benchmark"));
    TRY(options_exclude(set, "timer-only", "profile-out")); // without a trace there is nothing to write
    TRY(options_exclude(set, "timer-only", "profile-graphs"));
    TRY(options_exclude(set, "timer-only", "profile-latency"));
    TRY(options_exclude(set, "timer-only", "profile-isolate"));
    TRY(options_exclude(set, "timer-only", "profile-targets"));
    if (o->targets == TARGETS_CPU && (o->graphs || o->latency || o->isolate))
        return fail(ERROR_USAGE, "--profile-targets=cpu records no kernels, which --profile-graphs, "
                                 "--profile-latency and --profile-isolate are about");
    TRY(options_exclude(set, "profile-graphs", "profile-isolate"));
    if (o->sweep && !*o->out)
        return fail(ERROR_USAGE, "--sweep needs --profile-out=FOLDER, where the profiles of all sizes go");
    if (!*o->window && options_given(set, "profile"))
        return fail(ERROR_USAGE,
                    "--profile= is empty; --profile traces a few steps, --profile=[10,20) steps 10 to 19");
    if (!*o->window) return OK;
    if (*o->trace && strcmp(o->trace, "trace.json") != 0 && strcmp(o->trace, "trace.json.gz") != 0)
        return fail(ERROR_USAGE, "--profile-trace=%.100s: expected trace.json or trace.json.gz", o->trace);
    Window window;
    TRY(window_parse(o->window, &window));
    int64_t last = window_last_recorded(&window);
    if (steps && last > steps)
        return fail(ERROR_USAGE,
                    "--profile=%.100s records up to step %" PRId64 ", but the run ends after step %" PRId64
                    "; give --steps=%" PRId64 " or an earlier window",
                    o->window, last, steps, last);
    if (*o->sort && !tables_have_column(o->sort) && !(o->torch && torch_tables_have_column(o->sort)))
        return fail(ERROR_USAGE,
                    "--sort=%.100s: no table of the profile has such a column; try name, cpu_ns, device_ns, "
                    "total_ns, calls or bytes",
                    o->sort);
    return OK;
}
