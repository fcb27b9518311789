#include "profile/bundle_schema.h"

#include "profile/bundle.h"

#include <math.h>
#include <string.h>

enum { ITEMS_MOST = 1000000, PLACE_BYTES = 256 };

typedef enum {
    NO_FIELD, // ends a list of fields
    TEXT,
    COUNT,   // a whole number, not negative
    MEASURE, // a number, not negative
    NUMBER,  // any, as an overhead, which noise may make negative
    PERHAPS, // a measure, or null where it could not be taken
    TRUTH,
    OBJECT,
    LIST,   // of objects
    TEXTS,  // a list of texts
    EVENTS, // a list of [name, begin, length, category, depth]
    ROWS,   // a list of lists of texts, numbers and nulls
} Kind;

typedef struct Field {
    const char *key;
    Kind kind;
    const struct Field *fields; // of the object, or of each object of the list
} Field;

static const Field peaks[] = {{"flops", MEASURE, NULL}, {"bandwidth", MEASURE, NULL}, {0}};
static const Field limits[] = {{"measured", OBJECT, peaks}, {"sheet", OBJECT, peaks}, {0}};
static const Field run[] = {{"program", TEXT, NULL},     {"model", TEXT, NULL},
                            {"dtype", TEXT, NULL},       {"device", TEXT, NULL},
                            {"library", TEXT, NULL},     {"host", TEXT, NULL},
                            {"batch", COUNT, NULL},      {"seq", COUNT, NULL},
                            {"accum", COUNT, NULL},      {"layers", COUNT, NULL},
                            {"heads", COUNT, NULL},      {"width", COUNT, NULL},
                            {"parameters", COUNT, NULL}, {0}};
static const Field step[] = {{"name", TEXT, NULL},
                             {"recorded", COUNT, NULL},
                             {"ns", MEASURE, NULL},
                             {"low_ns", MEASURE, NULL},
                             {"high_ns", MEASURE, NULL},
                             {"traced_ns", MEASURE, NULL},
                             {"overhead", NUMBER, NULL},
                             {"reader_ns", MEASURE, NULL},
                             {"device_ns", MEASURE, NULL},
                             {"covered", MEASURE, NULL},
                             {"tokens", MEASURE, NULL},
                             {"launches", MEASURE, NULL},
                             {0}};
static const Field categories[] = {{"category", TEXT, NULL}, {"ns", MEASURE, NULL}, {0}};
static const Field phases[] = {
    {"phase", TEXT, NULL}, {"ns", MEASURE, NULL}, {"categories", LIST, categories}, {0}};
static const Field inside[] = {{"name", TEXT, NULL},     {"category", TEXT, NULL},    {"ns", MEASURE, NULL},
                               {"calls", MEASURE, NULL}, {"launches", MEASURE, NULL}, {0}};
static const Field operations[] = {
    {"place", TEXT, NULL},      {"operation", TEXT, NULL},      {"pass", TEXT, NULL},
    {"form", TEXT, NULL},       {"category", TEXT, NULL},       {"source", TEXT, NULL},
    {"ns", MEASURE, NULL},      {"low_ns", MEASURE, NULL},      {"high_ns", MEASURE, NULL},
    {"host_ns", MEASURE, NULL}, {"calls", MEASURE, NULL},       {"launches", MEASURE, NULL},
    {"flops", MEASURE, NULL},   {"least_bytes", MEASURE, NULL}, {"share_of_limit", MEASURE, NULL},
    {"limit", TEXT, NULL},      {"inside", LIST, inside},       {0}};
static const Field uses[] = {{"ns", MEASURE, NULL}, {"calls", MEASURE, NULL}, {0}};
static const Field kernels[] = {
    {"name", TEXT, NULL},      {"kind", TEXT, NULL},       {"category", TEXT, NULL}, {"place", TEXT, NULL},
    {"forward", OBJECT, uses}, {"backward", OBJECT, uses}, {"update", OBJECT, uses}, {0}};
static const Field classes[] = {{"class", TEXT, NULL}, {"bytes", COUNT, NULL}, {0}};
static const Field tensors[] = {{"name", TEXT, NULL}, {"class", TEXT, NULL}, {"bytes", COUNT, NULL}, {0}};
static const Field memory[] = {
    {"peak_bytes", COUNT, NULL}, {"classes", LIST, classes}, {"largest", LIST, tensors}, {0}};
static const Field tracks[] = {{"name", TEXT, NULL}, {"events", EVENTS, NULL}, {0}};
static const Field timeline[] = {
    {"step", COUNT, NULL}, {"tracks", LIST, tracks}, {"names", TEXTS, NULL}, {0}};
static const Field audit[] = {{"check", TEXT, NULL}, {"passed", TRUTH, NULL}, {"detail", TEXT, NULL}, {0}};
static const Field columns[] = {{"key", TEXT, NULL}, {"title", TEXT, NULL}, {"kind", TEXT, NULL}, {0}};
static const Field tables[] = {{"key", TEXT, NULL},  {"title", TEXT, NULL},  {"columns", LIST, columns},
                               {"rows", ROWS, NULL}, {"notes", TEXTS, NULL}, {0}};
static const Field paths[] = {{"label", TEXT, NULL},
                              {"source", TEXT, NULL},
                              {"source_note", TEXT, NULL},
                              {"window", TEXT, NULL},
                              {"step", OBJECT, step},
                              {"phases", LIST, phases},
                              {"operations", LIST, operations},
                              {"kernels", LIST, kernels},
                              {"memory", OBJECT, memory},
                              {"timeline", OBJECT, timeline},
                              {"tables", LIST, tables},
                              {"audit", LIST, audit},
                              {0}};
static const Field differences[] = {{"place", TEXT, NULL},
                                    {"operation", TEXT, NULL},
                                    {"pass", TEXT, NULL},
                                    {"difference", PERHAPS, NULL},
                                    {0}};
static const Field questions[] = {{"question", TEXT, NULL}, {"answer", TEXTS, NULL}, {0}};
static const Field document[] = {{"schema", TEXT, NULL},         {"version", COUNT, NULL},
                                 {"run", OBJECT, run},           {"peaks", OBJECT, limits},
                                 {"paths", LIST, paths},         {"differences", LIST, differences},
                                 {"questions", LIST, questions}, {0}};

static Status check_value(const json_t *value, const Field *field, const char *place);

static Status check_object(const json_t *object, const Field *fields, const char *place) {
    if (!json_is_object(object)) return fail(ERROR_FORMAT, "%s: not an object", place);
    for (const Field *field = fields; field->kind != NO_FIELD; field++) {
        char inner[PLACE_BYTES];
        snprintf(inner, sizeof inner, "%s%s%s", place, *place ? "." : "", field->key);
        TRY(check_value(json_object_get(object, field->key), field, inner));
    }
    return OK;
}

static Status check_text(const json_t *value, const char *place) {
    if (!json_is_string(value)) return fail(ERROR_FORMAT, "%s: not a text", place);
    size_t length = json_string_length(value);
    if (length > BUNDLE_TEXT_BYTES || strlen(json_string_value(value)) != length)
        return fail(ERROR_FORMAT, "%s: a text of more than %d bytes, or with a zero in it", place,
                    BUNDLE_TEXT_BYTES);
    return OK;
}

static Status check_number(const json_t *value, Kind kind, const char *place) {
    if (kind == PERHAPS && json_is_null(value)) return OK;
    if (kind == COUNT ? !json_is_integer(value) : !json_is_number(value))
        return fail(ERROR_FORMAT, "%s: not a %snumber", place, kind == COUNT ? "whole " : "");
    double number = json_number_value(value);
    if (!isfinite(number) || (kind != NUMBER && number < 0))
        return fail(ERROR_FORMAT, "%s: %g is not a figure that can be", place, number);
    return OK;
}

/* [name, begin, length, category, depth] */
static Status check_event(const json_t *event, const char *place) {
    bool good = json_is_array(event) && json_array_size(event) == 5;
    for (size_t i = 0; i < 5 && good; i++) {
        const json_t *value = json_array_get(event, i);
        good = i == 3 ? json_is_string(value) : json_is_number(value) && isfinite(json_number_value(value));
        if (good && i != 1 && i != 3) good = json_number_value(value) >= 0;
    }
    return good ? OK : fail(ERROR_FORMAT, "%s: not an event [name, begin, length, category, depth]", place);
}

static Status check_row(const json_t *row, const char *place) {
    if (!json_is_array(row)) return fail(ERROR_FORMAT, "%s: not a row", place);
    size_t i;
    json_t *cell;
    json_array_foreach(row, i, cell) {
        bool good = json_is_null(cell) || json_is_string(cell) ||
                    (json_is_number(cell) && isfinite(json_number_value(cell)));
        if (!good) return fail(ERROR_FORMAT, "%s[%zu]: neither a text nor a number", place, i);
    }
    return OK;
}

static Status check_list(const json_t *list, const Field *field, const char *place) {
    if (!json_is_array(list)) return fail(ERROR_FORMAT, "%s: not a list", place);
    size_t count = json_array_size(list);
    if (count > ITEMS_MOST) return fail(ERROR_FORMAT, "%s: more than %d items", place, ITEMS_MOST);
    for (size_t i = 0; i < count; i++) {
        char inner[PLACE_BYTES];
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        const json_t *item = json_array_get(list, i);
        TRY(field->kind == TEXTS    ? check_text(item, inner)
            : field->kind == EVENTS ? check_event(item, inner)
            : field->kind == ROWS   ? check_row(item, inner)
                                    : check_object(item, field->fields, inner));
    }
    return OK;
}

static Status check_value(const json_t *value, const Field *field, const char *place) {
    if (!value) return fail(ERROR_FORMAT, "%s: missing", place);
    switch (field->kind) {
    case TEXT: return check_text(value, place);
    case TRUTH: return json_is_boolean(value) ? OK : fail(ERROR_FORMAT, "%s: neither true nor false", place);
    case OBJECT: return check_object(value, field->fields, place);
    case LIST:
    case TEXTS:
    case ROWS:
    case EVENTS: return check_list(value, field, place);
    default: return check_number(value, field->kind, place);
    }
}

/* ---- what a kind alone cannot say ---- */

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static bool is_operation(const char *name) {
    static const char *const names[] = {
#define OPERATION(operation, NAME, CATEGORY) #operation,
#include "kernels/ops.def"
#undef OPERATION
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static bool is_pass(const char *name) {
    return strcmp(name, "forward") == 0 || strcmp(name, "backward") == 0 || strcmp(name, "update") == 0;
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
    TRY(check_object(root, document, ""));
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
