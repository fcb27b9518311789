#include "base/json_writer.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(JsonWriter *w, const char *text, size_t length) {
    w->text = memory_grow(w->text, &w->room, (int64_t)(w->length + length + 1), 1);
    if (length) memcpy(w->text + w->length, text, length);
    w->length += length;
    w->text[w->length] = 0;
}

static void append_text(JsonWriter *w, const char *text) {
    append(w, text, strlen(text));
}

/* Writes a comma after a value: unless the text ends in an opening bracket, a colon or a comma. Strings
 * end in a quote, so their contents cannot be mistaken for one of these. */
static void separate_by(JsonWriter *w, const char *comma) {
    size_t end = w->length;
    while (end && (w->text[end - 1] == ' ' || w->text[end - 1] == '\n')) end--;
    if (end && !strchr("{[:,", w->text[end - 1])) append_text(w, comma);
}

static void separate(JsonWriter *w) {
    separate_by(w, w->spaced ? ", " : ",");
}

void json_write_open(JsonWriter *w, char bracket) {
    separate(w);
    append(w, &bracket, 1);
}

void json_write_close(JsonWriter *w, char bracket) {
    append(w, &bracket, 1);
}

void json_write_key(JsonWriter *w, const char *key) {
    json_write_text(w, key);
    append_text(w, w->spaced ? ": " : ":");
}

void json_write_integer(JsonWriter *w, int64_t value) {
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%" PRId64, value);
    json_write_json(w, text);
}

void json_write_boolean(JsonWriter *w, bool value) {
    json_write_json(w, value ? "true" : "false");
}

void number_text(double value, char text[NUMBER_TEXT]) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, NUMBER_TEXT, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

void json_write_number(JsonWriter *w, double value) {
    char text[NUMBER_TEXT] = "null";
    if (isfinite(value)) number_text(value, text);
    json_write_json(w, text);
}

void json_write_real(JsonWriter *w, double value) {
    size_t before = w->length;
    json_write_number(w, value);
    if (isfinite(value) && !strpbrk(w->text + before, ".e")) append_text(w, ".0");
}

static void append_escaped(JsonWriter *w, uint8_t character) {
    const char *plain = "\"\\\n\t\r", *letters = "\"\\ntr", *at = strchr(plain, character);
    char text[8];
    if (character && at)
        snprintf(text, sizeof text, "\\%c", letters[at - plain]);
    else
        snprintf(text, sizeof text, "\\u%04x", character);
    append_text(w, text);
}

void json_write_string(JsonWriter *w, const char *text, int64_t length) {
    const uint8_t *bytes = (const uint8_t *)text;
    separate(w);
    append_text(w, "\"");
    for (int64_t i = 0, n; i < length; i += n) {
        n = utf8_character(bytes + i, length - i);
        if (n == 0) {
            append_text(w, "\xEF\xBF\xBD");
            n = 1;
        } else if (bytes[i] < 0x20 || bytes[i] == '"' || bytes[i] == '\\') {
            append_escaped(w, bytes[i]);
        } else {
            append(w, text + i, (size_t)n);
        }
    }
    append_text(w, "\"");
}

void json_write_text(JsonWriter *w, const char *text) {
    json_write_string(w, text, text ? (int64_t)strlen(text) : 0);
}

void json_member_text(JsonWriter *w, const char *key, const char *text) {
    json_write_key(w, key);
    json_write_text(w, text);
}

void json_member_integer(JsonWriter *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_integer(w, value);
}

void json_member_number(JsonWriter *w, const char *key, double value) {
    json_write_key(w, key);
    json_write_number(w, value);
}

void json_member_boolean(JsonWriter *w, const char *key, bool value) {
    json_write_key(w, key);
    json_write_boolean(w, value);
}

void json_member_open(JsonWriter *w, const char *key, char bracket) {
    json_write_key(w, key);
    json_write_open(w, bracket);
}

void json_write_line(JsonWriter *w, int spaces, bool before_value) {
    char indent[64];
    if (before_value) separate_by(w, ",");
    snprintf(indent, sizeof indent, "\n%*s", spaces, "");
    append_text(w, indent);
}

void json_write_json(JsonWriter *w, const char *json) {
    separate(w);
    append_text(w, json);
}

Status json_writer_save(const JsonWriter *w, const char *path) {
    return file_write(path, w->text, (int64_t)w->length);
}

void json_writer_clear(JsonWriter *w) {
    w->length = 0;
}

void json_writer_free(JsonWriter *w) {
    memory_free(w->text);
    *w = (JsonWriter){0};
}
