/* json_writer: builds JSON text in memory. The output is always valid JSON. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// all zero: an empty text
typedef struct {
    char *text; // zero-terminated unless NULL
    size_t length;
    int64_t room;
    bool spaced; // writes ", " and ": " as Python does, not "," and ":"
} JsonWriter;

/* Values and keys write a preceding comma where one is due. */
void json_write_open(JsonWriter *writer, char bracket); // '{' or '['
void json_write_close(JsonWriter *writer, char bracket);
void json_write_key(JsonWriter *writer, const char *key);
void json_write_integer(JsonWriter *writer, int64_t value);
void json_write_boolean(JsonWriter *writer, bool value);

/* The shortest digits that read back as the same double. A non-finite value is written as null. */
void json_write_number(JsonWriter *writer, double value);
/* The same, but 1.0 for 1: other readers tell reals from integers. */
void json_write_real(JsonWriter *writer, double value);

/* Bytes that are not UTF-8 become U+FFFD. */
void json_write_string(JsonWriter *writer, const char *text, int64_t length);
void json_write_text(JsonWriter *writer, const char *text); // ends in a zero; NULL is an empty text

/* A key and its value. */
void json_member_text(JsonWriter *writer, const char *key, const char *text);
void json_member_integer(JsonWriter *writer, const char *key, int64_t value);
void json_member_number(JsonWriter *writer, const char *key, double value);
void json_member_boolean(JsonWriter *writer, const char *key, bool value);
void json_member_open(JsonWriter *writer, const char *key, char bracket);

/* Starts a new line, indented by `spaces`, after a comma if one is due. */
void json_write_line(JsonWriter *writer, int spaces, bool before_value);

/* Inserts JSON text verbatim. */
void json_write_json(JsonWriter *writer, const char *json);

/* Writes the text to a file. */
CHECKED Status json_writer_save(const JsonWriter *writer, const char *path);
void json_writer_clear(JsonWriter *writer); // forgets the text, keeps the memory
void json_writer_free(JsonWriter *writer);

/* The digits that json_write_number writes, for a finite value. */
enum { NUMBER_TEXT = 32 };
void number_text(double value, char text[NUMBER_TEXT]);
