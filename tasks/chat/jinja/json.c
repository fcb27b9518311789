#include "tasks/chat/jinja/value.h"

#include "tasks/chat/jinja/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void write_unit(JinjaText *text, unsigned code) {
    char escape[16];
    snprintf(escape, sizeof escape, "\\u%04x", code & 0xffff);
    jinja_write_word(text, escape);
}

static void write_code(JinjaText *text, int32_t code) {
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    const char *found = code && code < 0x80 ? strchr(plain, code) : NULL;
    if (found) {
        jinja_write_word(text, "\\");
        jinja_write(text, letters + (found - plain), 1);
    } else if (code >= 0x10000) { // two UTF-16 units
        write_unit(text, 0xd800 + ((unsigned)(code - 0x10000) >> 10));
        write_unit(text, 0xdc00 + ((unsigned)(code - 0x10000) & 0x3ff));
    } else {
        write_unit(text, (unsigned)code);
    }
}

static void write_string(JinjaText *text, JinjaValue string, bool ascii) {
    jinja_write_word(text, "\"");
    for (int64_t at = 0, size; at < string.length; at += size) {
        int32_t code = jinja_decode(string.bytes + at, string.length - at, &size);
        if (code < 0x20 || code == '"' || code == '\\' || (ascii && code >= 0x7f))
            write_code(text, code);
        else
            jinja_write(text, string.bytes + at, size);
    }
    jinja_write_word(text, "\"");
}

static bool write_scalar(JinjaText *text, JinjaValue value) {
    if (value.kind == VALUE_NONE) {
        jinja_write_word(text, "null");
    } else if (value.kind == VALUE_BOOL) {
        jinja_write_word(text, value.truth ? "true" : "false");
    } else if (value.kind == VALUE_FLOAT && !isfinite(value.real)) {
        jinja_write_word(text, isnan(value.real) ? "NaN" : value.real < 0 ? "-Infinity" : "Infinity");
    } else {
        return (value.kind == VALUE_INT || value.kind == VALUE_FLOAT) && jinja_write_value(text, value);
    }
    return true;
}

/* A key that is not a string is converted to one. */
static bool write_key(JinjaText *text, JinjaValue key, const JinjaJson *form) {
    bool written = true;
    if (key.kind == VALUE_STRING) {
        write_string(text, key, form->ascii);
    } else {
        jinja_write_word(text, "\"");
        written = write_scalar(text, key);
        jinja_write_word(text, "\"");
    }
    jinja_write_word(text, form->key);
    return written;
}

static void begin_line(JinjaText *text, const JinjaJson *form, int depth) {
    if (form->indent < 0) return;
    jinja_write_word(text, "\n");
    for (int i = 0; i < depth * form->indent; i++) jinja_write_word(text, " ");
}

static bool write_items(JinjaText *text, JinjaValue value, const JinjaJson *form, int depth) {
    bool dict = value.kind == VALUE_DICT, written = true;
    int64_t count = dict ? value.dict->count : value.list->count;
    jinja_write_word(text, dict ? "{" : "[");
    for (int64_t i = 0; written && i < count && !text->pool->over; i++) {
        if (i) jinja_write_word(text, form->item);
        begin_line(text, form, depth + 1);
        if (dict) written = write_key(text, value.dict->keys[i], form);
        JinjaValue item = dict ? value.dict->values[i] : value.list->items[i];
        written = written && jinja_write_json(text, item, form, depth + 1);
    }
    if (count) begin_line(text, form, depth);
    jinja_write_word(text, dict ? "}" : "]");
    return written;
}

bool jinja_write_json(JinjaText *text, JinjaValue value, const JinjaJson *form, int depth) {
    if (value.kind == VALUE_STRING) {
        write_string(text, value, form->ascii);
        return true;
    }
    if (value.kind != VALUE_LIST && value.kind != VALUE_TUPLE && value.kind != VALUE_DICT)
        return write_scalar(text, value);
    if (!jinja_enter(text->pool)) return true;
    bool written = write_items(text, value, form, depth);
    jinja_leave(text->pool);
    return written;
}

JinjaValue jinja_from_json(JinjaPool *pool, const json_t *json) {
    JinjaValue value = jinja_none;
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_string(json)) return jinja_string(json_string_value(json), (int64_t)json_string_length(json));
    if (json_is_boolean(json)) return jinja_bool(json_is_true(json));
    if (json_is_integer(json)) return jinja_int(json_integer_value(json));
    if (json_is_real(json)) return jinja_float(json_real_value(json));
    if (json_is_array(json)) {
        value = jinja_list(pool, VALUE_LIST);
        json_array_foreach(json, i, item) jinja_add(pool, value, jinja_from_json(pool, item));
    } else if (json_is_object(json)) {
        value = jinja_dict(pool, VALUE_DICT);
        json_object_foreach((json_t *)json, key, item)
            jinja_put(pool, value.dict, jinja_word(key), jinja_from_json(pool, item));
    }
    return value;
}
