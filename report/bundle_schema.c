#include "report/bundle_schema.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/limits_fields.h"
#include "base/memory.h"
#include "report/table_json.h"

#include <math.h>
#include <string.h>

/* ---- keys without a struct: drawings and tables ---- */

/* [name, begin, length, category, depth] */
static Status check_event(const json_t *event, const char *where) {
    bool good = json_is_array(event) && json_array_size(event) == 5;
    for (size_t i = 0; i < 5 && good; i++) {
        const json_t *value = json_array_get(event, i);
        good = i == 3 ? json_is_string(value) : json_is_number(value) && isfinite(json_number_value(value));
        if (good && i != 1 && i != 3) good = json_number_value(value) >= 0;
    }
    return good ? OK : fail(ERROR_FORMAT, "%s: not an event [name, begin, length, category, depth]", where);
}

/* ---- the keys ---- */

#define TEXT_ONLY(key_)                                                                                      \
    { .key = key_, .kind = FIELD_TEXT }

static const Field tracks[] = {
    TEXT_ONLY("name"), {.key = "events", .kind = FIELD_ITEMS, .check = check_event}, {0}};
static const Field timeline[] = {{.key = "step", .kind = FIELD_COUNT},
                                 {.key = "tracks", .kind = FIELD_LIST, .fields = tracks},
                                 {.key = "names", .kind = FIELD_TEXTS},
                                 {0}};
static const Field run[] = {FIELD(TEXT, "program", TraceRun, program),
                            FIELD(TEXT, "model", TraceRun, model),
                            FIELD(TEXT, "dtype", TraceRun, dtype),
                            FIELD(TEXT, "device", TraceRun, device),
                            FIELD(TEXT, "library", TraceRun, library),
                            FIELD(TEXT, "host", TraceRun, host),
                            FIELD(COUNT, "batch", TraceRun, batch),
                            FIELD(COUNT, "seq", TraceRun, seq),
                            FIELD(COUNT, "accum", TraceRun, accum),
                            FIELD(COUNT, "layers", TraceRun, layers),
                            FIELD(COUNT, "heads", TraceRun, heads),
                            FIELD(COUNT, "width", TraceRun, width),
                            FIELD(COUNT, "parameters", TraceRun, parameters),
                            FIELD_OPTIONAL(TEXT, "unit", TraceRun, unit),
                            FIELD_OPTIONAL(TEXT, "command", TraceRun, command),
                            FIELD_OPTIONAL(TEXT, "version", TraceRun, version),
                            FIELD_OPTIONAL(TEXT, "date", TraceRun, date),
                            FIELD_OPTIONAL(TEXT, "commit", TraceRun, commit),
                            FIELD_OPTIONAL(TEXT, "build", TraceRun, build),
                            FIELD_OPTIONAL(TEXT, "driver", TraceRun, driver),
                            FIELD_OPTIONAL(TEXT, "device_clocks", TraceRun, device_clocks),
                            FIELD_OPTIONAL(TEXT, "host_clocks", TraceRun, host_clocks),
                            FIELD_OPTIONAL(TEXT, "communication", TraceRun, engine),
                            FIELD_OPTIONAL(COUNT, "threads", TraceRun, threads),
                            FIELD_OPTIONAL(COUNT, "ranks", TraceRun, ranks),
                            {.key = "settings",
                             .kind = FIELD_TEXTS,
                             .offset = offsetof(TraceRun, settings),
                             .count = offsetof(TraceRun, settings_count),
                             .flat = true,
                             .optional = true},
                            {0}};
static const Field limits[] = {FIELD_OBJECT_OF("measured", Bundle, run.measured, peaks_fields),
                               FIELD_OBJECT_OF("sheet", Bundle, run.sheet, peaks_fields),
                               {0}};
static const Field step[] = {FIELD(TEXT, "name", BundleStep, name),
                             FIELD(COUNT, "recorded", BundleStep, recorded),
                             FIELD_OPTIONAL(COUNT, "timed", BundleStep, timed),
                             FIELD(MEASURE, "ns", BundleStep, ns),
                             FIELD(MEASURE, "low_ns", BundleStep, low),
                             FIELD(MEASURE, "high_ns", BundleStep, high),
                             FIELD_OPTIONAL(MEASURE, "spread_ns", BundleStep, spread),
                             FIELD(MEASURE, "traced_ns", BundleStep, traced),
                             FIELD(NUMBER, "overhead", BundleStep, overhead),
                             FIELD_OPTIONAL(TRUTH, "overhead_noise", BundleStep, overhead_noise),
                             FIELD(MEASURE, "reader_ns", BundleStep, reader),
                             FIELD(MEASURE, "device_ns", BundleStep, device),
                             FIELD(MEASURE, "covered", BundleStep, covered),
                             FIELD(MEASURE, "tokens", BundleStep, tokens),
                             FIELD(MEASURE, "launches", BundleStep, launches),
                             FIELD_OPTIONAL(MEASURE, "cores_waited", BundleStep, cores_waited),
                             {0}};
static const Field categories[] = {
    FIELD(TEXT, "category", BundleShare, category), FIELD(MEASURE, "ns", BundleShare, ns), {0}};
static const Field phases[] = {FIELD(TEXT, "phase", BundlePhase, phase),
                               FIELD(MEASURE, "ns", BundlePhase, ns),
                               FIELD_LIST_OF("categories", BundlePhase, categories, categories),
                               {0}};
static const Field inside[] = {FIELD(TEXT, "name", InsideRow, name),
                               FIELD_WORD_OF("category", InsideRow, category, category_name),
                               {.key = "arithmetic",
                                .kind = FIELD_WORD,
                                .offset = offsetof(InsideRow, arithmetic),
                                .word = arithmetic_name,
                                .optional = true},
                               FIELD(MEASURE, "ns", InsideRow, ns),
                               FIELD(MEASURE, "calls", InsideRow, calls),
                               FIELD(MEASURE, "launches", InsideRow, launches),
                               {0}};
static const Field operations[] = {FIELD(TEXT, "place", OperationRow, call),
                                   FIELD(TEXT, "operation", OperationRow, operation),
                                   FIELD_WORD_OF("pass", OperationRow, pass, pass_name),
                                   FIELD_WORD_OF("form", OperationRow, form, form_name),
                                   FIELD_WORD_OF("category", OperationRow, category, category_name),
                                   FIELD(TEXT, "source", OperationRow, source),
                                   FIELD(MEASURE, "ns", OperationRow, ns),
                                   FIELD(MEASURE, "low_ns", OperationRow, low),
                                   FIELD(MEASURE, "high_ns", OperationRow, high),
                                   FIELD_OPTIONAL(MEASURE, "median_ns", OperationRow, median),
                                   FIELD_OPTIONAL(MEASURE, "spread_ns", OperationRow, spread),
                                   FIELD(MEASURE, "host_ns", OperationRow, host_ns),
                                   FIELD(MEASURE, "calls", OperationRow, calls),
                                   FIELD(MEASURE, "launches", OperationRow, launches),
                                   FIELD(MEASURE, "flops", OperationRow, work.flops),
                                   FIELD(MEASURE, "least_bytes", OperationRow, work.bytes),
                                   FIELD_OPTIONAL(MEASURE, "flops_needed", OperationRow, work.needed),
                                   FIELD_OPTIONAL(MEASURE, "flops8", OperationRow, work.flops8),
                                   FIELD_OPTIONAL(MEASURE, "written_bytes", OperationRow, work.written),
                                   FIELD_OPTIONAL(MEASURE, "least_sent_bytes", OperationRow, work.sent),
                                   FIELD_OPTIONAL(COUNT, "memory_bytes", OperationRow, memory),
                                   FIELD(MEASURE, "share_of_limit", OperationRow, share_of_limit),
                                   FIELD(TEXT, "limit", OperationRow, limit),
                                   FIELD_LIST_OF("inside", OperationRow, inside, inside),
                                   {0}};
static const Field uses[] = {
    FIELD(MEASURE, "ns", KernelUse, ns), FIELD(MEASURE, "calls", KernelUse, calls), {0}};
static const Field kernels[] = {FIELD(TEXT, "name", KernelRow, name),
                                FIELD_OPTIONAL(TEXT, "label", KernelRow, label),
                                FIELD_OPTIONAL(TEXT, "decoded", KernelRow, decoded),
                                FIELD_WORD_OF("kind", KernelRow, kind, trace_kind_name),
                                FIELD_WORD_OF("category", KernelRow, category, category_name),
                                FIELD(TEXT, "place", KernelRow, call),
                                FIELD_OPTIONAL(TEXT, "shapes", KernelRow, shapes),
                                FIELD_OPTIONAL(TEXT, "source", KernelRow, source),
                                FIELD_OBJECT_OF("forward", KernelRow, in[PASS_FORWARD], uses),
                                FIELD_OBJECT_OF("backward", KernelRow, in[PASS_BACKWARD], uses),
                                FIELD_OBJECT_OF("update", KernelRow, in[PASS_UPDATE], uses),
                                {0}};
static const Field classes[] = {FIELD_WORD_OF("class", TraceTensor, class_, memory_class_name),
                                FIELD(COUNT, "bytes", TraceTensor, bytes),
                                {0}};
static const Field tensors[] = {FIELD(TEXT, "name", TraceTensor, name),
                                FIELD_WORD_OF("class", TraceTensor, class_, memory_class_name),
                                FIELD(COUNT, "bytes", TraceTensor, bytes),
                                {0}};
static const Field memory[] = {FIELD(COUNT, "peak_bytes", BundlePath, peak_bytes),
                               FIELD_LIST_OF("classes", BundlePath, classes, classes),
                               FIELD_LIST_OF("largest", BundlePath, largest, tensors),
                               {0}};
static const Field audit[] = {FIELD(TEXT, "check", TraceFinding, name),
                              FIELD(TRUTH, "passed", TraceFinding, passed),
                              FIELD_OPTIONAL(NUMBER, "found", TraceFinding, found),
                              FIELD_OPTIONAL(NUMBER, "allowed", TraceFinding, allowed),
                              FIELD(TEXT, "detail", TraceFinding, detail),
                              {0}};
static const Field paths[] = {
    FIELD(TEXT, "label", BundlePath, label),
    FIELD(TEXT, "source", BundlePath, source),
    FIELD(TEXT, "source_note", BundlePath, source_note),
    FIELD(TEXT, "window", BundlePath, window),
    FIELD_OBJECT_OF("step", BundlePath, step, step),
    FIELD_LIST_OF("phases", BundlePath, phases, phases),
    FIELD_LIST_OF("operations", BundlePath, rows, operations),
    FIELD_LIST_OF("kernels", BundlePath, kernels, kernels),
    {.key = "memory", .kind = FIELD_OBJECT, .fields = memory} /* of the path itself */,
    {.key = "timeline",
     .kind = FIELD_OBJECT,
     .offset = offsetof(BundlePath, timeline),
     .fields = timeline,
     .ready = true},
    FIELD_LIST_OF("tables", BundlePath, tables, table_fields),
    FIELD_LIST_OF("audit", BundlePath, audit, audit),
    {.key = "recorded",
     .kind = FIELD_LIST,
     .offset = offsetof(BundlePath, recorded),
     .count = offsetof(BundlePath, recorded_count),
     .size = sizeof(RankEvents),
     .fields = event_fields,
     .optional = true},
    {0}};
static const Field differences[] = {FIELD(TEXT, "place", Difference, call),
                                    FIELD(TEXT, "operation", Difference, operation),
                                    FIELD_WORD_OF("pass", Difference, pass, pass_name),
                                    FIELD(PERHAPS, "difference", Difference, difference),
                                    {0}};
static const Field answers[] = {FIELD(TEXT, "question", Answer, question),
                                {.key = "answer",
                                 .kind = FIELD_TEXTS,
                                 .offset = offsetof(Answer, lines),
                                 .count = offsetof(Answer, count)},
                                {0}};
/* Keys that guides to PyTorch's profiler use. */
#define GUIDE_TIMES                                                                                          \
    FIELD(TEXT, "name", GuideRow, name), FIELD(MEASURE, "cuda_time_total_ms", GuideRow, device_ms),          \
        FIELD(MEASURE, "cuda_time_avg_ms", GuideRow, device_mean_ms)
#define GUIDE_OPERATOR                                                                                       \
    GUIDE_TIMES, FIELD(MEASURE, "cpu_time_total_ms", GuideRow, host_ms),                                     \
        FIELD(MEASURE, "cpu_time_avg_ms", GuideRow, host_mean_ms), FIELD(COUNT, "count", GuideRow, count),   \
        FIELD(MEASURE, "self_cuda_time_ms", GuideRow, self_device_ms),                                       \
        FIELD(MEASURE, "self_cpu_time_ms", GuideRow, self_host_ms)
static const Field guide_config[] = {FIELD(COUNT, "batch_size", Bundle, guide.batch),
                                     FIELD(COUNT, "seq_len", Bundle, guide.seq),
                                     FIELD(COUNT, "hidden_size", Bundle, guide.width),
                                     FIELD(TEXT, "device", Bundle, guide.device),
                                     {0}};
static const Field guide_summary[] = {FIELD(MEASURE, "total_cuda_time_ms", Bundle, guide.device_ms),
                                      FIELD(MEASURE, "total_cpu_time_ms", Bundle, guide.host_ms),
                                      FIELD(COUNT, "total_operators", Bundle, guide.operators),
                                      FIELD(COUNT, "aten_operators", Bundle, guide.aten),
                                      FIELD(COUNT, "cuda_kernels", Bundle, guide.kernels),
                                      {0}};
static const Field guide_operators[] = {GUIDE_OPERATOR, {0}};
static const Field guide_aten[] = {GUIDE_OPERATOR,
                                   FIELD(TEXT, "native_function", GuideRow, native),
                                   FIELD(TEXT, "potential_cuda_file", GuideRow, source),
                                   FIELD(TEXT, "category", GuideRow, category),
                                   {0}};
static const Field guide_kernels[] = {GUIDE_TIMES, FIELD(COUNT, "count", GuideRow, count), {0}};
static const Field guide_category[] = {FIELD(MEASURE, "total_time_ms", GuideCategory, ms),
                                       FIELD(MEASURE, "percentage", GuideCategory, percent),
                                       FIELD(COUNT, "call_count", GuideCategory, count),
                                       {0}};
#define OF_CATEGORY(key_, CATEGORY)                                                                          \
    {                                                                                                        \
        .key = key_, .kind = FIELD_OBJECT,                                                                   \
        .offset = offsetof(Bundle, guide.categories[CATEGORY_##CATEGORY]), .fields = guide_category,         \
        .optional = true                                                                                     \
    }
static const Field guide_categories[] = {
    OF_CATEGORY("matrix", MATRIX),         OF_CATEGORY("normalization", NORMALIZATION),
    OF_CATEGORY("activation", ACTIVATION), OF_CATEGORY("attention", ATTENTION),
    OF_CATEGORY("embedding", EMBEDDING),   OF_CATEGORY("elementwise", ELEMENTWISE),
    OF_CATEGORY("memory", MEMORY),         OF_CATEGORY("loss", LOSS),
    OF_CATEGORY("optimizer", OPTIMIZER),   OF_CATEGORY("communication", COMMUNICATION),
    OF_CATEGORY("other", OTHER),           {0}};
#define GUIDE(key_, fields_)                                                                                 \
    { .key = #key_, .kind = FIELD_OBJECT, .fields = fields_, .optional = true }
#define GUIDE_LIST(key_, member, fields_)                                                                    \
    {                                                                                                        \
        .key = #key_, .kind = FIELD_LIST, .offset = offsetof(Bundle, guide.member),                          \
        .count = offsetof(Bundle, guide.member##_count), .size = sizeof(GuideRow), .fields = fields_,        \
        .optional = true                                                                                     \
    }

const Field bundle_fields[] = {
    FIELD(TEXT, "schema", Bundle, schema),
    FIELD(COUNT, "version", Bundle, version),
    FIELD_OBJECT_OF("run", Bundle, run, run),
    {.key = "peaks", .kind = FIELD_OBJECT, .fields = limits} /* of the bundle itself */,
    FIELD_LIST_OF("paths", Bundle, paths, paths),
    FIELD_LIST_OF("differences", Bundle, differences, differences),
    FIELD_LIST_OF("questions", Bundle, answers, answers),
    GUIDE(config, guide_config),
    GUIDE(summary, guide_summary),
    GUIDE_LIST(top_operators, top_operators, guide_operators),
    GUIDE_LIST(top_aten_operators, top_aten, guide_aten),
    GUIDE_LIST(top_cuda_kernels, top_kernels, guide_kernels),
    GUIDE(category_statistics, guide_categories),
    {0}};

/* ---- checks beyond kinds ---- */

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

/* Sums over many steps are rounded. */
static bool ordered(const json_t *row) {
    double low = number_of(row, "low_ns"), middle = number_of(row, "ns"), high = number_of(row, "high_ns");
    return low <= middle * (1 + 1e-9) && middle <= high * (1 + 1e-9);
}

static bool same_identity(const json_t *a, const json_t *b) {
    return strcmp(text_of(a, "place"), text_of(b, "place")) == 0 &&
           strcmp(text_of(a, "operation"), text_of(b, "operation")) == 0 &&
           strcmp(text_of(a, "pass"), text_of(b, "pass")) == 0;
}

static Status check_operations(const json_t *rows, size_t path) {
    enum { ROWS_MOST = 2000 }; // duplicates are searched in pairs
    size_t count = json_array_size(rows);
    if (count > ROWS_MOST) return fail(ERROR_FORMAT, "paths[%zu].operations: more than %d", path, ROWS_MOST);
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *pass = text_of(row, "pass"), *form = text_of(row, "form");
        if (field_word(pass_name, pass) < 0 || field_word(form_name, form) < 0)
            return fail(ERROR_FORMAT, "paths[%zu].operations[%zu]: '%s' is not a pass, or '%s' not a form",
                        path, i, pass, form);
        if (!*text_of(row, "operation"))
            return fail(ERROR_FORMAT, "paths[%zu].operations[%zu]: an operation without a name", path, i);
        if (!ordered(row))
            return fail(ERROR_FORMAT, "paths[%zu].operations[%zu].ns: not between its low and its high", path,
                        i);
        for (size_t k = 0; k < i; k++)
            if (same_identity(row, json_array_get(rows, k)))
                return fail(ERROR_FORMAT, "paths[%zu].operations: %zu and %zu are the same", path, k, i);
    }
    return OK;
}

static Status check_timeline(const json_t *drawn, size_t path) {
    size_t names = json_array_size(json_object_get(drawn, "names")), i, k;
    json_t *track, *event;
    json_array_foreach(json_object_get(drawn, "tracks"), i, track) {
        json_array_foreach(json_object_get(track, "events"), k, event) {
            if (json_number_value(json_array_get(event, 0)) >= (double)names)
                return fail(ERROR_FORMAT, "paths[%zu].timeline.tracks[%zu].events[%zu]: has no name", path, i,
                            k);
        }
    }
    return OK;
}

/* Checks a parsed document: its form, by the table; minimum <= average <= maximum; known names and unique
 * identities. */
static Status check_bundle(const json_t *root) {
    const char *schema = text_of(root, "schema");
    if (!schema || strcmp(schema, BUNDLE_SCHEMA) != 0)
        return fail(ERROR_FORMAT, "not a profile of fusebox: no \"schema\": \"" BUNDLE_SCHEMA "\" in it");
    if (number_of(root, "version") != BUNDLE_VERSION)
        return fail(ERROR_FORMAT, "version %g of the profile's schema; this program reads version %d",
                    number_of(root, "version"), BUNDLE_VERSION);
    TRY(fields_check(root, bundle_fields, ""));
    const json_t *list = json_object_get(root, "paths");
    size_t count = json_array_size(list);
    if (count < 1 || count > FORM_COUNT)
        return fail(ERROR_FORMAT, "paths: %zu of them; there are 1 or 2", count);
    for (size_t i = 0; i < count; i++) {
        const json_t *path = json_array_get(list, i);
        if (!ordered(json_object_get(path, "step")))
            return fail(ERROR_FORMAT, "paths[%zu].step.ns: not between its low and its high", i);
        if (i && strcmp(text_of(path, "label"), text_of(json_array_get(list, 0), "label")) == 0)
            return fail(ERROR_FORMAT, "paths: both are called '%s'", text_of(path, "label"));
        TRY(check_operations(json_object_get(path, "operations"), i));
        TRY(check_timeline(json_object_get(path, "timeline"), i));
        TRY(table_check_all(json_object_get(path, "tables"), i));
        TRY(events_check(json_object_get(path, "recorded"), i));
    }
    return OK;
}

/* ---- reading ---- */

Status bundle_parse(const char *text, int64_t length, const char *name, Bundle *bundle) {
    json_auto_t *root = NULL;
    *bundle = (Bundle){0};
    TRY(json_parse(text, length, name, &root));
    TRY(fail_at(check_bundle(root), "%s", name));
    fields_read(root, bundle_fields, bundle);
    return OK;
}

Status bundle_read_text(const char *path, char **text, int64_t *length, Bundle *bundle) {
    PathKind kind;
    *text = NULL;
    *bundle = (Bundle){0};
    TRY(path_kind(path, &kind));
    OWNED char *file = kind == PATH_FOLDER ? path_join(path, BUNDLE_FILE) : memory_text(path);
    TRY(file_read(file, BUNDLE_BYTES_MOST, text, length));
    return bundle_parse(*text, *length, file, bundle);
}

Status bundle_read(const char *path, Bundle *bundle) {
    OWNED char *text = NULL;
    int64_t length;
    return bundle_read_text(path, &text, &length, bundle);
}

const char *bundle_step_name(const BundlePath *path) {
    const char *name = path->step.name;
    return strcmp(name, STEP_OF_TRAINING) == 0 || strcmp(name, STEP_OF_A_PASS) == 0 ? "" : name;
}

void bundle_free(Bundle *bundle) {
    fields_free(bundle_fields, bundle);
    *bundle = (Bundle){0};
}
