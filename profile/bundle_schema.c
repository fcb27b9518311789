#include "profile/bundle_schema.h"

#include <math.h>
#include <string.h>

/* ---- what is in no struct: drawings and tables ---- */

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

static Status check_row(const json_t *row, const char *where) {
    if (!json_is_array(row)) return fail(ERROR_FORMAT, "%s: not a row", where);
    size_t i;
    json_t *cell;
    json_array_foreach(row, i, cell) {
        bool good = json_is_null(cell) || json_is_string(cell) ||
                    (json_is_number(cell) && isfinite(json_number_value(cell)));
        if (!good) return fail(ERROR_FORMAT, "%s[%zu]: neither a text nor a number", where, i);
    }
    return OK;
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
static const Field columns[] = {TEXT_ONLY("key"), TEXT_ONLY("title"), TEXT_ONLY("kind"), {0}};
static const Field tables[] = {TEXT_ONLY("key"),
                               TEXT_ONLY("title"),
                               {.key = "columns", .kind = FIELD_LIST, .fields = columns},
                               {.key = "rows", .kind = FIELD_ITEMS, .check = check_row},
                               {.key = "notes", .kind = FIELD_TEXTS},
                               {0}};

static const Field run[] = {FIELD(TEXT, "program", BundleRun, program),
                            FIELD(TEXT, "model", BundleRun, model),
                            FIELD(TEXT, "dtype", BundleRun, dtype),
                            FIELD(TEXT, "device", BundleRun, device),
                            FIELD(TEXT, "library", BundleRun, library),
                            FIELD(TEXT, "host", BundleRun, host),
                            FIELD(COUNT, "batch", BundleRun, batch),
                            FIELD(COUNT, "seq", BundleRun, seq),
                            FIELD(COUNT, "accum", BundleRun, accum),
                            FIELD(COUNT, "layers", BundleRun, layers),
                            FIELD(COUNT, "heads", BundleRun, heads),
                            FIELD(COUNT, "width", BundleRun, width),
                            FIELD(COUNT, "parameters", BundleRun, parameters),
                            {0}};
static const Field peaks[] = {
    FIELD(MEASURE, "flops", Peaks, flops), FIELD(MEASURE, "bandwidth", Peaks, bandwidth), {0}};
static const Field limits[] = {FIELD_OBJECT_OF("measured", Bundle, measured, peaks),
                               FIELD_OBJECT_OF("sheet", Bundle, sheet, peaks),
                               {0}};
static const Field step[] = {FIELD(TEXT, "name", BundleStep, name),
                             FIELD(COUNT, "recorded", BundleStep, recorded),
                             FIELD_OPTIONAL(COUNT, "timed", BundleStep, timed),
                             FIELD(MEASURE, "ns", BundleStep, ns),
                             FIELD(MEASURE, "low_ns", BundleStep, low),
                             FIELD(MEASURE, "high_ns", BundleStep, high),
                             FIELD(MEASURE, "traced_ns", BundleStep, traced),
                             FIELD(NUMBER, "overhead", BundleStep, overhead),
                             FIELD(MEASURE, "reader_ns", BundleStep, reader),
                             FIELD(MEASURE, "device_ns", BundleStep, device),
                             FIELD(MEASURE, "covered", BundleStep, covered),
                             FIELD(MEASURE, "tokens", BundleStep, tokens),
                             FIELD(MEASURE, "launches", BundleStep, launches),
                             {0}};
static const Field categories[] = {
    FIELD(TEXT, "category", BundleShare, category), FIELD(MEASURE, "ns", BundleShare, ns), {0}};
static const Field phases[] = {FIELD(TEXT, "phase", BundlePhase, phase),
                               FIELD(MEASURE, "ns", BundlePhase, ns),
                               FIELD_LIST_OF("categories", BundlePhase, categories, categories),
                               {0}};
static const Field inside[] = {FIELD(TEXT, "name", BundleInside, name),
                               FIELD(TEXT, "category", BundleInside, category),
                               FIELD(MEASURE, "ns", BundleInside, ns),
                               FIELD(MEASURE, "calls", BundleInside, calls),
                               FIELD(MEASURE, "launches", BundleInside, launches),
                               {0}};
static const Field operations[] = {FIELD(TEXT, "place", BundleRow, call),
                                   FIELD(TEXT, "operation", BundleRow, operation),
                                   FIELD(TEXT, "pass", BundleRow, pass),
                                   FIELD(TEXT, "form", BundleRow, form),
                                   FIELD(TEXT, "category", BundleRow, category),
                                   FIELD(TEXT, "source", BundleRow, source),
                                   FIELD(MEASURE, "ns", BundleRow, ns),
                                   FIELD(MEASURE, "low_ns", BundleRow, low),
                                   FIELD(MEASURE, "high_ns", BundleRow, high),
                                   FIELD(MEASURE, "host_ns", BundleRow, host_ns),
                                   FIELD(MEASURE, "calls", BundleRow, calls),
                                   FIELD(MEASURE, "launches", BundleRow, launches),
                                   FIELD(MEASURE, "flops", BundleRow, flops),
                                   FIELD(MEASURE, "least_bytes", BundleRow, least_bytes),
                                   FIELD_OPTIONAL(COUNT, "memory_bytes", BundleRow, memory_bytes),
                                   FIELD(MEASURE, "share_of_limit", BundleRow, share_of_limit),
                                   FIELD(TEXT, "limit", BundleRow, limit),
                                   FIELD_LIST_OF("inside", BundleRow, inside, inside),
                                   {0}};
static const Field uses[] = {
    FIELD(MEASURE, "ns", KernelUse, ns), FIELD(MEASURE, "calls", KernelUse, calls), {0}};
static const Field kernels[] = {FIELD(TEXT, "name", BundleKernel, name),
                                FIELD_OPTIONAL(TEXT, "label", BundleKernel, label),
                                FIELD_OPTIONAL(TEXT, "decoded", BundleKernel, decoded),
                                FIELD(TEXT, "kind", BundleKernel, kind),
                                FIELD(TEXT, "category", BundleKernel, category),
                                FIELD(TEXT, "place", BundleKernel, call),
                                FIELD_OBJECT_OF("forward", BundleKernel, forward, uses),
                                FIELD_OBJECT_OF("backward", BundleKernel, backward, uses),
                                FIELD_OBJECT_OF("update", BundleKernel, update, uses),
                                {0}};
static const Field classes[] = {
    FIELD(TEXT, "class", BundleMemory, class_), FIELD(COUNT, "bytes", BundleMemory, bytes), {0}};
static const Field tensors[] = {FIELD(TEXT, "name", BundleMemory, name),
                                FIELD(TEXT, "class", BundleMemory, class_),
                                FIELD(COUNT, "bytes", BundleMemory, bytes),
                                {0}};
static const Field memory[] = {FIELD(COUNT, "peak_bytes", BundlePath, peak_bytes),
                               FIELD_LIST_OF("classes", BundlePath, classes, classes),
                               FIELD_LIST_OF("largest", BundlePath, largest, tensors),
                               {0}};
static const Field audit[] = {FIELD(TEXT, "check", BundleCheck, check),
                              FIELD(TRUTH, "passed", BundleCheck, passed),
                              FIELD(TEXT, "detail", BundleCheck, detail),
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
    {.key = "tables",
     .kind = FIELD_LIST,
     .offset = offsetof(BundlePath, tables),
     .fields = tables,
     .ready = true},
    FIELD_LIST_OF("audit", BundlePath, audit, audit),
    {0}};
static const Field differences[] = {FIELD(TEXT, "place", BundleDifference, call),
                                    FIELD(TEXT, "operation", BundleDifference, operation),
                                    FIELD(TEXT, "pass", BundleDifference, pass),
                                    FIELD(PERHAPS, "difference", BundleDifference, difference),
                                    {0}};
static const Field answers[] = {FIELD(TEXT, "question", BundleAnswer, question),
                                {.key = "answer",
                                 .kind = FIELD_TEXTS,
                                 .offset = offsetof(BundleAnswer, lines),
                                 .count = offsetof(BundleAnswer, lines_count)},
                                {0}};
const Field bundle_fields[] = {
    FIELD(TEXT, "schema", Bundle, schema),
    FIELD(COUNT, "version", Bundle, version),
    FIELD_OBJECT_OF("run", Bundle, run, run),
    {.key = "peaks", .kind = FIELD_OBJECT, .fields = limits} /* of the bundle itself */,
    FIELD_LIST_OF("paths", Bundle, paths, paths),
    FIELD_LIST_OF("differences", Bundle, differences, differences),
    FIELD_LIST_OF("questions", Bundle, answers, answers),
    {0}};

/* ---- what a kind alone cannot say ---- */

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static bool is_operation(const char *name) {
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(operation_name((Operation)i), name) == 0) return true;
    return false;
}

static bool is_pass(const char *name) {
    for (int i = 0; i < PASS_COUNT; i++)
        if (strcmp(pass_name((Pass)i), name) == 0) return true;
    return false;
}

/* Sums of many steps are rounded. */
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
    enum { ROWS_MOST = 2000 }; // compared in pairs
    size_t count = json_array_size(rows);
    if (count > ROWS_MOST) return fail(ERROR_FORMAT, "paths[%zu].operations: more than %d", path, ROWS_MOST);
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(rows, i);
        if (!is_pass(text_of(row, "pass")) || !is_operation(text_of(row, "operation")))
            return fail(ERROR_FORMAT, "paths[%zu].operations[%zu]: no operation is called '%s %s'", path, i,
                        text_of(row, "operation"), text_of(row, "pass"));
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

/* Texts stand in columns of texts, numbers in the others. */
static bool cells_fit(const json_t *row, const json_t *heads) {
    size_t i;
    json_t *cell;
    json_array_foreach(row, i, cell) {
        bool text = strcmp(text_of(json_array_get(heads, i), "kind"), "text") == 0;
        if (!json_is_null(cell) && json_is_string(cell) != text) return false;
    }
    return true;
}

static Status check_tables(const json_t *list, size_t path) {
    size_t i, k;
    json_t *table, *row;
    json_array_foreach(list, i, table) {
        const json_t *heads = json_object_get(table, "columns");
        size_t width = json_array_size(heads);
        json_array_foreach(json_object_get(table, "rows"), k, row) {
            if (json_array_size(row) != width)
                return fail(ERROR_FORMAT, "paths[%zu].tables[%zu].rows[%zu]: %zu cells in %zu columns", path,
                            i, k, json_array_size(row), width);
            if (!cells_fit(row, heads))
                return fail(ERROR_FORMAT,
                            "paths[%zu].tables[%zu].rows[%zu]: a cell is not of its column's kind", path, i,
                            k);
        }
    }
    return OK;
}

Status bundle_check(const json_t *root) {
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
        TRY(check_tables(json_object_get(path, "tables"), i));
    }
    return OK;
}
