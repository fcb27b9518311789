/* json_fields: describes a JSON object once, as a table of {key, kind, offset}. The table drives writing
 * from a struct, checking, reading, freeing and documenting. It ends with {0}. */
#pragma once

#include "base/json_writer.h"

#include <jansson.h>
#include <stdio.h>

/* Longer texts are truncated when written and refused when read. */
enum { FIELD_TEXT_BYTES = 4096 };

/* The kind of a value, and the type of the struct's member. Numbers are finite. */
typedef enum {
    FIELD_END,
    FIELD_TEXT,    // char *
    FIELD_WORD,    // an enum by name; an unknown name is read as -1
    FIELD_COUNT,   // int64_t, not negative
    FIELD_MEASURE, // double, not negative
    FIELD_NUMBER,  // double
    FIELD_PERHAPS, // double, not negative; a non-finite value is null
    FIELD_TRUTH,   // bool
    FIELD_OBJECT,  // a struct, by `fields`
    FIELD_LIST,    // a pointer to structs, by `fields`
    FIELD_TEXTS,   // char **
    FIELD_ITEMS,   // a list handled by `check`, `write`, `read` and `free`
} FieldKind;

typedef struct Field {
    const char *key;
    FieldKind kind;
    size_t offset; // offset of the member in its struct
    size_t count;  // offset of a list's int64_t count
    size_t size;   // bytes of one struct of a list
    const struct Field *fields;
    const char *(*word)(int i); // the name of an enum's value; NULL after the last
    Status (*check)(const json_t *item, const char *where);
    /* For FIELD_ITEMS, called with the struct that contains the list. Reading follows the check and the
     * fields before. */
    void (*write)(JsonWriter *writer, const void *object);
    void (*read)(const json_t *items, void *object);
    void (*free)(void *object);
    bool flat;     // print the list on one line
    bool ready;    // the member is JSON text, written verbatim and not read
    bool optional; // may be absent: a count is then read as -1, anything else as zero
} Field;

/* Table entries: FIELD(TEXT, "label", BundlePath, label). A list `rows` of structs has its count in
 * rows_count. */
#define FIELD(kind_, key_, type, member)                                                                     \
    { .key = key_, .kind = FIELD_##kind_, .offset = offsetof(type, member) }
#define FIELD_OPTIONAL(kind_, key_, type, member)                                                            \
    { .key = key_, .kind = FIELD_##kind_, .offset = offsetof(type, member), .optional = true }
#define FIELD_WORD_OF(key_, type, member, word_)                                                             \
    { .key = key_, .kind = FIELD_WORD, .offset = offsetof(type, member), .word = word_ }
#define FIELD_OBJECT_OF(key_, type, member, fields_)                                                         \
    { .key = key_, .kind = FIELD_OBJECT, .offset = offsetof(type, member), .fields = fields_ }
#define FIELD_LIST_OF(key_, type, member, fields_)                                                           \
    {                                                                                                        \
        .key = key_, .kind = FIELD_LIST, .offset = offsetof(type, member),                                   \
        .count = offsetof(type, member##_count), .size = sizeof *((type *)0)->member, .fields = fields_      \
    }

/* Writes the object. Objects in lists and large members start a new line. */
void fields_write(JsonWriter *writer, const Field *fields, const void *object);

/* Checks that each key has a value of its kind; unknown keys are ignored. ERROR_FORMAT names the first
 * fault: "paths[0].step.ns: ...". */
CHECKED Status fields_check(const json_t *object, const Field *fields, const char *where);

/* Reads a checked object into a zeroed struct. Terminal control characters in texts become '?'. */
void fields_read(const json_t *object, const Field *fields, void *to);
void fields_free(const Field *fields, void *object);

/* The enum value with this name, or -1. */
int field_word(const char *(*word)(int i), const char *name);

/* Prints the table as a Markdown list. */
void fields_describe(const Field *fields, FILE *file);
