/* json_fields: the form of a JSON object, told once as a table of {key, kind, offset}: it is written from
 * a struct by this table, checked, read into the struct, freed and described. A table ends with {0}. */
#pragma once

#include "base/json_writer.h"

#include <jansson.h>
#include <stdio.h>

/* Longer texts are cut where they are written, and refused where they are read. */
enum { FIELD_TEXT_BYTES = 4096 };

/* And the type of the struct's member. Numbers are finite. */
typedef enum {
    FIELD_END,
    FIELD_TEXT,    // char *
    FIELD_WORD,    // an enum, as a text: its name; one that is not known is read as -1
    FIELD_COUNT,   // int64_t, not negative
    FIELD_MEASURE, // double, not negative
    FIELD_NUMBER,  // double
    FIELD_PERHAPS, // double, not negative; what is not finite is null
    FIELD_TRUTH,   // bool
    FIELD_OBJECT,  // a struct, by `fields`
    FIELD_LIST,    // a pointer to structs, by `fields`
    FIELD_TEXTS,   // char **
    FIELD_ITEMS,   // a list that `check`, `write`, `read` and `free` know
} FieldKind;

typedef struct Field {
    const char *key;
    FieldKind kind;
    size_t offset; // of the member
    size_t count;  // of a list's int64_t
    size_t size;   // of a list's structs
    const struct Field *fields;
    const char *(*word)(int i); // the name of an enum's value; NULL behind the last
    Status (*check)(const json_t *item, const char *where);
    /* Of items, for the struct that has them: read after the fields before them, and what was checked. */
    void (*write)(JsonWriter *writer, const void *object);
    void (*read)(const json_t *items, void *object);
    void (*free)(void *object);
    bool flat;     // a list without lines of its own
    bool ready;    // the member is a char * of JSON text, which is written as it is and not read
    bool optional; // where it is absent a count is read as -1, all else as zero
} Field;

/* Entries of a table: FIELD(TEXT, "label", BundlePath, label); a list `rows` of structs has its count in
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

/* Writes the object, a list's objects and large members on lines of their own. */
void fields_write(JsonWriter *writer, const Field *fields, const void *object);

/* Each key is there with a value of its kind; keys that the table does not know are fine. ERROR_FORMAT
 * with where the first fault is: "paths[0].step.ns: ...". */
CHECKED Status fields_check(const json_t *object, const Field *fields, const char *where);

/* Reads what has been checked into a struct of zeros. In texts, characters that control terminals become
 * '?'. */
void fields_read(const json_t *object, const Field *fields, void *to);
void fields_free(const Field *fields, void *object);

/* The enum's value that `word` gives this name; -1: none. */
int field_word(const char *(*word)(int i), const char *name);

/* The table as a Markdown list. */
void fields_describe(const Field *fields, FILE *file);
