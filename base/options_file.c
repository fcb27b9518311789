#include "base/options_internal.h"

#include "base/json_read.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MOST = 1 << 20 }; // bytes of a configuration file

/* The type that the option expects of a JSON value. */
static Status expect_type(OptionKind kind) {
    switch (kind) {
    case OPTION_FLAG: return fail(ERROR_USAGE, "expected true or false");
    case OPTION_INTEGER: return fail(ERROR_USAGE, "expected a whole number");
    case OPTION_NUMBER: return fail(ERROR_USAGE, "expected a number");
    case OPTION_LIST: return fail(ERROR_USAGE, "expected an array of whole numbers");
    case OPTION_HEADING:
    case OPTION_TEXT:
    case OPTION_CHOICE: break;
    }
    return fail(ERROR_USAGE, "expected a string");
}

/* Converts the value to command-line syntax, so that one validation serves both. The writer's commas
 * separate list elements. A text may be a bare number, as in "fused": 1. */
static Status value_text(OptionKind kind, const json_t *value, JsonWriter *text) {
    char digits[NUMBER_TEXT];
    bool textual = kind == OPTION_TEXT || kind == OPTION_CHOICE;
    if (kind == OPTION_FLAG && json_is_boolean(value)) {
        json_write_integer(text, json_is_true(value));
    } else if (json_is_integer(value) && kind != OPTION_FLAG && kind != OPTION_LIST) {
        json_write_integer(text, json_integer_value(value));
    } else if (kind == OPTION_NUMBER && json_is_real(value)) {
        number_text(json_real_value(value), digits);
        json_write_json(text, digits);
    } else if (textual && json_is_string(value)) {
        json_write_json(text, json_string_value(value));
    } else if (kind == OPTION_LIST && json_is_array(value) && json_array_size(value) > 0) {
        size_t i;
        json_t *item;
        json_array_foreach((json_t *)(uintptr_t)value, i, item) {
            if (!json_is_integer(item)) return expect_type(kind);
            json_write_integer(text, json_integer_value(item));
        }
    } else {
        return expect_type(kind);
    }
    return OK;
}

/* Stores one value. Its source becomes `source` unless the value equals the default. */
static Status read_value(OptionSet *set, int index, const json_t *value, OptionSource source) {
    CLOSED_BY(json_writer_free) JsonWriter text = {0};
    CLOSED_BY(json_writer_free) JsonWriter before = {0};
    CLOSED_BY(json_writer_free) JsonWriter after = {0};
    char shown[100] = "";
    option_write_json(set, index, &before);
    TRY(value_text(set->table[index].kind, value, &text));
    json_dumpb(value, shown, sizeof shown - 1, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    TRY(fail_at(option_store(set, index, text.text), "%s", shown));
    option_write_json(set, index, &after);
    if (strcmp(before.text, after.text) != 0) set->source[index] = source;
    return OK;
}

/* A message is one line, so the key is printed as JSON. */
static Status fail_key(const OptionSet *set, const char *path, const char *key) {
    CLOSED_BY(json_writer_free) JsonWriter shown = {0};
    json_write_text(&shown, key);
    return fail(ERROR_USAGE, "%s: unknown key %.100s%s", path, shown.text, option_hint(set, key, true).text);
}

static Status read_object(OptionSet *set, const char *path, json_t *object, OptionSource source) {
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return fail(ERROR_FORMAT, "%s: expected a JSON object of option names and values", path);
    json_object_foreach(object, key, value) {
        int index = option_find(set, key);
        if (index < 0) return fail_key(set, path, key);
        if (source == OPTION_SOURCE_TRAVELLED && !set->table[index].travels) continue;
        if (set->table[index].command_line_only)
            return fail(ERROR_USAGE, "%s: \"%s\" belongs on the command line only", path, key);
        if (set->source[index] != OPTION_SOURCE_DEFAULT) continue;
        TRY(fail_at(read_value(set, index, value, source), "%s: \"%s\"", path, key));
    }
    return OK;
}

static Status read_file(OptionSet *set, const char *path, OptionSource source) {
    json_auto_t *object = NULL;
    TRY(json_read(path, FILE_MOST, &object));
    return read_object(set, path, object, source);
}

Status options_read_file(OptionSet *set, const char *path) {
    return read_file(set, path, OPTION_SOURCE_FILE);
}

Status options_read_travelling(OptionSet *set, const char *path) {
    return read_file(set, path, OPTION_SOURCE_TRAVELLED);
}

/* Values that a file cannot express are omitted: an empty list, or a number below its minimum that stands
 * for "derived from others". */
static bool absent(const OptionSet *set, int index) {
    const Option *option = &set->table[index];
    const void *field = set->fields[index];
    switch (option->kind) {
    case OPTION_LIST: return ((const OptionList *)field)->count == 0;
    case OPTION_INTEGER: return *(const int64_t *)field < option->least;
    case OPTION_NUMBER: return *(const double *)field < option->low;
    case OPTION_HEADING:
    case OPTION_FLAG:
    case OPTION_TEXT:
    case OPTION_CHOICE: break;
    }
    return false;
}

char *options_json(const OptionSet *set, bool lines) {
    JsonWriter writer = {0};
    json_write_open(&writer, '{');
    for (int i = 0; i < set->count; i++) {
        if (set->table[i].kind == OPTION_HEADING || set->table[i].command_line_only || absent(set, i))
            continue;
        if (lines) json_write_line(&writer, 4, true);
        json_write_key(&writer, set->table[i].name);
        if (lines) json_write_json(&writer, " ");
        option_write_json(set, i, &writer);
    }
    if (lines) json_write_line(&writer, 0, false);
    json_write_close(&writer, '}');
    return writer.text;
}

Status options_print(const OptionSet *set) {
    OWNED char *json = options_json(set, true);
    bool failed = puts(json) < 0 || fflush(stdout) != 0;
    return failed ? fail(ERROR_FILE, "cannot write to standard output") : OK;
}
