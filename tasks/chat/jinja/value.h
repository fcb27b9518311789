/* value: the values of a template's expressions, with Python's types. All memory belongs to a pool, which is
 * freed at once. A pool also limits steps and bytes: when these are used up, `over` is set, loops end early,
 * and the next caller fails (jinja_step). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct JinjaPool {
    struct JinjaChunk *chunks;
    char *at; // next free byte of the newest chunk
    size_t left;
    int64_t bytes, steps; // remaining budget
    int depth;            // depth of nested calls
    bool over;
} JinjaPool;

void *jinja_take(JinjaPool *pool, size_t bytes); // zeroed memory
void jinja_pool_free(JinjaPool *pool);
/* Returns false if the pool is over. Recursive functions call enter first, and leave if that returned
 * true. */
bool jinja_spend(JinjaPool *pool, int64_t steps);
bool jinja_enter(JinjaPool *pool);
void jinja_leave(JinjaPool *pool);

typedef enum {
    VALUE_MISSING, // an argument that was not given
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,     // the result of range(), a list
    VALUE_VIEW,      // a dict's items, keys or values: a list without indices
    VALUE_GENERATOR, // a list that can be iterated once
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,
    VALUE_METHOD,
    VALUE_KINDS
} JinjaKind;

typedef struct JinjaValue {
    JinjaKind kind;
    bool safe; // a string marked by the filter `safe`
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *bytes;      // bytes of a string, UTF-8; or name of an undefined value
        struct JinjaList *list; // for the kinds from VALUE_LIST to VALUE_GENERATOR
        struct JinjaDict *dict; // also for a namespace
        struct JinjaLoop *loop; // see run.h for these four
        struct JinjaMacro *macro;
        const struct JinjaBuiltin *function;
        struct JinjaMethod *method;
    };
    int64_t length; // length of `bytes`
} JinjaValue;

typedef struct JinjaList {
    JinjaValue *items;
    int64_t count, room;
    struct JinjaPending *pending; // see run.h: a generator that has not run yet
    bool broken;                  // a partly consumed generator, which must not be used
} JinjaList;

/* In the order of insertion. */
typedef struct JinjaDict {
    JinjaValue *keys, *values;
    int64_t count, room;
} JinjaDict;

static const JinjaValue jinja_none = {.kind = VALUE_NONE};

JinjaValue jinja_undefined(const char *name);
JinjaValue jinja_bool(bool truth);
JinjaValue jinja_int(int64_t integer);
JinjaValue jinja_float(double real);
JinjaValue jinja_string(const char *bytes, int64_t length); // the bytes are not copied
JinjaValue jinja_word(const char *text);                    // the same for a C string
JinjaValue jinja_list(JinjaPool *pool, JinjaKind kind);
void jinja_add(JinjaPool *pool, JinjaValue list, JinjaValue item);
JinjaValue jinja_dict(JinjaPool *pool, JinjaKind kind);
/* NULL if the dict has no such key. */
JinjaValue *jinja_find(JinjaPool *pool, const JinjaDict *dict, JinjaValue key);
void jinja_put(JinjaPool *pool, JinjaDict *dict, JinjaValue key, JinjaValue value);

bool jinja_is_list(JinjaValue value); // whether the kind has a list
bool jinja_is(JinjaValue value, const char *text);
bool jinja_true(JinjaValue value);
bool jinja_number(JinjaValue value, double *real); // a bool is a number
bool jinja_whole(JinjaValue value, int64_t *whole);
bool jinja_equal(JinjaPool *pool, JinjaValue a, JinjaValue b);
/* -1, 0 or 1; false if the two have no order. */
bool jinja_compare(JinjaPool *pool, JinjaValue a, JinjaValue b, int *order);
bool jinja_hashable(JinjaValue value);
const char *jinja_kind_name(JinjaKind kind); // Python's name of the kind

/* ---- texts that grow ---- */

typedef struct {
    JinjaPool *pool;
    char *bytes;
    int64_t count, room;
} JinjaText;
void jinja_write(JinjaText *text, const void *bytes, int64_t count);
void jinja_write_word(JinjaText *text, const char *word);
JinjaValue jinja_written(const JinjaText *text);

/* Like Python's str(). False for values without a supported text: a macro, a generator, ... */
bool jinja_write_value(JinjaText *text, JinjaValue value);

/* ---- json.c: conversion to JSON, as Python's json.dumps() does, and from jansson's ---- */

typedef struct {
    int indent; // -1: all on one line
    const char *item, *key;
    bool ascii; // other characters are escaped
} JinjaJson;

/* Returns false for values that JSON cannot represent: an undefined value, a macro, ... */
bool jinja_write_json(JinjaText *text, JinjaValue value, const JinjaJson *form, int depth);

/* Strings are still owned by the object. */
JinjaValue jinja_from_json(JinjaPool *pool, const json_t *json);
