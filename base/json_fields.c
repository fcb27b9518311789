#include "base/json_fields.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

enum { ITEMS_MOST = 1000000, WHERE_BYTES = 256 };

/* ---- members ---- */

static void *member(const Field *field, const void *object) {
    return (char *)(uintptr_t)object + field->offset;
}

static void *pointer_at(const Field *field, const void *object) {
    void *pointer;
    memcpy(&pointer, member(field, object), sizeof pointer);
    return pointer;
}

static void set_pointer(const Field *field, void *object, void *pointer) {
    memcpy(member(field, object), &pointer, sizeof pointer);
}

static int64_t *count_of(const Field *field, const void *object) {
    return (int64_t *)(uintptr_t)((const char *)object + field->count);
}

/* ---- writing ---- */

static void write_object(JsonWriter *w, const Field *fields, const void *object, int depth);

/* Writes a text, truncated to its longest length. */
static void write_text(JsonWriter *w, const char *text) {
    size_t length = text ? strlen(text) : 0;
    if (length > FIELD_TEXT_BYTES) length = FIELD_TEXT_BYTES;
    while (length && ((unsigned char)text[length] & 0xC0) == 0x80) length--; // do not split a character
    json_write_string(w, text, (int64_t)length);
}

static void write_list(JsonWriter *w, const Field *field, const void *object, int depth) {
    char *items = pointer_at(field, object);
    int64_t count = *count_of(field, object);
    json_write_open(w, '[');
    for (int64_t i = 0; i < count; i++) {
        if (field->kind == FIELD_LIST && !field->flat) json_write_line(w, depth, true);
        if (field->kind == FIELD_LIST)
            write_object(w, field->fields, items + (size_t)i * field->size, depth);
        else
            write_text(w, ((char **)items)[i]);
    }
    json_write_close(w, ']');
}

static void write_value(JsonWriter *w, const Field *field, const void *object, int depth) {
    if (field->ready) {
        json_write_json(w, pointer_at(field, object));
        return;
    }
    switch (field->kind) {
    case FIELD_TEXT: write_text(w, pointer_at(field, object)); break;
    case FIELD_WORD: write_text(w, field->word(*(int *)member(field, object))); break;
    case FIELD_COUNT: json_write_integer(w, *(int64_t *)member(field, object)); break;
    case FIELD_MEASURE:
    case FIELD_NUMBER:
    case FIELD_PERHAPS: json_write_number(w, *(double *)member(field, object)); break;
    case FIELD_TRUTH: json_write_boolean(w, *(bool *)member(field, object)); break;
    case FIELD_OBJECT: write_object(w, field->fields, member(field, object), depth); break;
    case FIELD_LIST:
    case FIELD_TEXTS: write_list(w, field, object, depth); break;
    case FIELD_ITEMS: field->write(w, object); break;
    case FIELD_END: break;
    }
}

static void write_object(JsonWriter *w, const Field *fields, const void *object, int depth) {
    json_write_open(w, '{');
    for (const Field *field = fields; field->kind != FIELD_END; field++) {
        if (field->kind == FIELD_LIST && !field->flat) json_write_line(w, depth + 1, true);
        json_write_key(w, field->key);
        write_value(w, field, object, depth + 1);
    }
    json_write_close(w, '}');
}

void fields_write(JsonWriter *w, const Field *fields, const void *object) {
    write_object(w, fields, object, 0);
}

/* ---- checking ---- */

static Status check_text(const json_t *value, const char *where) {
    if (!json_is_string(value)) return fail(ERROR_FORMAT, "%s: not a text", where);
    size_t length = json_string_length(value);
    if (length > FIELD_TEXT_BYTES || strlen(json_string_value(value)) != length)
        return fail(ERROR_FORMAT, "%s: a text of more than %d bytes, or one that contains a zero byte", where,
                    FIELD_TEXT_BYTES);
    return OK;
}

static Status check_number(const json_t *value, FieldKind kind, const char *where) {
    if (kind == FIELD_PERHAPS && json_is_null(value)) return OK;
    if (kind == FIELD_COUNT ? !json_is_integer(value) : !json_is_number(value))
        return fail(ERROR_FORMAT, "%s: not a %snumber", where, kind == FIELD_COUNT ? "whole " : "");
    double number = json_number_value(value);
    if (!isfinite(number) || (kind != FIELD_NUMBER && number < 0))
        return fail(ERROR_FORMAT, "%s: %g is out of range", where, number);
    return OK;
}

static Status check_list(const json_t *list, const Field *field, const char *where) {
    if (!json_is_array(list)) return fail(ERROR_FORMAT, "%s: not a list", where);
    size_t count = json_array_size(list);
    if (count > ITEMS_MOST) return fail(ERROR_FORMAT, "%s: more than %d items", where, ITEMS_MOST);
    for (size_t i = 0; i < count; i++) {
        char inner[WHERE_BYTES];
        snprintf(inner, sizeof inner, "%s[%zu]", where, i);
        const json_t *item = json_array_get(list, i);
        TRY(field->kind == FIELD_TEXTS   ? check_text(item, inner)
            : field->kind == FIELD_ITEMS ? field->check(item, inner)
                                         : fields_check(item, field->fields, inner));
    }
    return OK;
}

static Status check_value(const json_t *value, const Field *field, const char *where) {
    if (!value && field->optional) return OK;
    if (!value) return fail(ERROR_FORMAT, "%s: missing", where);
    switch (field->kind) {
    case FIELD_TEXT:
    case FIELD_WORD: return check_text(value, where);
    case FIELD_TRUTH:
        return json_is_boolean(value) ? OK : fail(ERROR_FORMAT, "%s: neither true nor false", where);
    case FIELD_OBJECT: return fields_check(value, field->fields, where);
    case FIELD_LIST:
    case FIELD_TEXTS:
    case FIELD_ITEMS: return check_list(value, field, where);
    case FIELD_COUNT:
    case FIELD_MEASURE:
    case FIELD_NUMBER:
    case FIELD_PERHAPS: return check_number(value, field->kind, where);
    case FIELD_END: break;
    }
    return fail(ERROR_INTERNAL, "%s: a field of no kind", where);
}

Status fields_check(const json_t *object, const Field *fields, const char *where) {
    if (!json_is_object(object)) return fail(ERROR_FORMAT, "%s: not an object", where);
    for (const Field *field = fields; field->kind != FIELD_END; field++) {
        char inner[WHERE_BYTES];
        snprintf(inner, sizeof inner, "%s%s%s", where, *where ? "." : "", field->key);
        TRY(check_value(json_object_get(object, field->key), field, inner));
    }
    return OK;
}

/* ---- reading ---- */

int field_word(const char *(*word)(int i), const char *name) {
    int i = 0;
    while (word(i) && strcmp(word(i), name) != 0) i++;
    return word(i) ? i : -1;
}

static char *copy_of(const json_t *value) {
    char *text = memory_text(json_string_value(value));
    utf8_tame(text, (int64_t)strlen(text), false);
    return text;
}

static void read_list(const json_t *list, const Field *field, void *to) {
    size_t count = json_array_size(list), size = field->kind == FIELD_LIST ? field->size : sizeof(char *);
    char *items = memory_array(count + 1, size);
    for (size_t i = 0; i < count; i++)
        if (field->kind == FIELD_LIST)
            fields_read(json_array_get(list, i), field->fields, items + i * size);
        else
            ((char **)items)[i] = copy_of(json_array_get(list, i));
    set_pointer(field, to, items);
    *count_of(field, to) = (int64_t)count;
}

static void read_value(const json_t *value, const Field *field, void *to) {
    switch (field->kind) {
    case FIELD_TEXT: set_pointer(field, to, copy_of(value)); break;
    case FIELD_WORD: *(int *)member(field, to) = field_word(field->word, json_string_value(value)); break;
    case FIELD_COUNT: *(int64_t *)member(field, to) = json_integer_value(value); break;
    case FIELD_MEASURE:
    case FIELD_NUMBER: *(double *)member(field, to) = json_number_value(value); break;
    case FIELD_PERHAPS:
        *(double *)member(field, to) = json_is_null(value) ? NAN : json_number_value(value);
        break;
    case FIELD_TRUTH: *(bool *)member(field, to) = json_is_true(value); break;
    case FIELD_OBJECT: fields_read(value, field->fields, member(field, to)); break;
    case FIELD_LIST:
    case FIELD_TEXTS: read_list(value, field, to); break;
    case FIELD_ITEMS:
        if (field->read) field->read(value, to);
        break;
    case FIELD_END: break;
    }
}

void fields_read(const json_t *object, const Field *fields, void *to) {
    for (const Field *field = fields; field->kind != FIELD_END; field++) {
        const json_t *value = json_object_get(object, field->key);
        if (field->ready) continue;
        if (value)
            read_value(value, field, to);
        else if (field->kind == FIELD_COUNT)
            *(int64_t *)member(field, to) = -1;
    }
}

void fields_free(const Field *fields, void *object) {
    for (const Field *field = fields; field->kind != FIELD_END; field++) {
        bool list = field->kind == FIELD_LIST || field->kind == FIELD_TEXTS;
        if (field->kind == FIELD_ITEMS && field->free) field->free(object);
        if (field->kind == FIELD_OBJECT && !field->ready) fields_free(field->fields, member(field, object));
        for (int64_t i = 0; list && !field->ready && i < *count_of(field, object); i++)
            if (field->kind == FIELD_LIST)
                fields_free(field->fields, (char *)pointer_at(field, object) + (size_t)i * field->size);
            else
                memory_free(((char **)pointer_at(field, object))[i]);
        if (field->ready || field->kind == FIELD_TEXT || list) memory_free(pointer_at(field, object));
    }
}

/* ---- describing ---- */

static void describe(const Field *fields, int depth, FILE *file) {
    static const char *const names[] = {[FIELD_TEXT] = "text",
                                        [FIELD_WORD] = "text",
                                        [FIELD_COUNT] = "whole number",
                                        [FIELD_MEASURE] = "number >= 0",
                                        [FIELD_NUMBER] = "number",
                                        [FIELD_PERHAPS] = "number >= 0, or null",
                                        [FIELD_TRUTH] = "true or false",
                                        [FIELD_OBJECT] = "object",
                                        [FIELD_LIST] = "list of objects",
                                        [FIELD_TEXTS] = "list of texts",
                                        [FIELD_ITEMS] = "list of lists",
                                        [FIELD_END] = ""};
    for (const Field *field = fields; field->kind != FIELD_END; field++) {
        fprintf(file, "%*s- `%s`: %s%s\n", 2 * depth, "", field->key, names[field->kind],
                field->optional ? ", absent in older files" : "");
        if (field->fields) describe(field->fields, depth + 1, file);
    }
}

void fields_describe(const Field *fields, FILE *file) {
    describe(fields, 0, file);
}
