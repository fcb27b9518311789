/* value: what a template's expressions have as values: Python's, since templates are written for it. All
 * memory is a pool's, which is freed at once. A pool also counts what a template may still cost, in steps
 * and bytes: where that is spent, `over` is set, loops end early, and whoever calls next refuses
 * (jinja_step). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct JinjaPool {
    struct JinjaChunk *chunks;
    char *at; // in the newest chunk
    size_t left;
    int64_t bytes, steps; // that may still be taken
    int depth;            // of what is being called or walked through
    bool over;
} JinjaPool;

void *jinja_take(JinjaPool *pool, size_t bytes); // zeroed
void jinja_pool_free(JinjaPool *pool);
/* False where the pool is over. Each function that calls itself enters first, and leaves where that was
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
    VALUE_RANGE,     // a list of what range() gives
    VALUE_VIEW,      // of a dict's items, keys or values: a list without indices
    VALUE_GENERATOR, // a list that can be gone through once
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
    bool safe; // a string that the filter `safe` has marked
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *bytes;      // of a string, UTF-8; the name of what is undefined
        struct JinjaList *list; // of the kinds from VALUE_LIST to VALUE_GENERATOR
        struct JinjaDict *dict; // of a namespace, too
        struct JinjaLoop *loop; // run.h has these four
        struct JinjaMacro *macro;
        const struct JinjaBuiltin *function;
        struct JinjaMethod *method;
    };
    int64_t length; // of `bytes`
} JinjaValue;

typedef struct JinjaList {
    JinjaValue *items;
    int64_t count, room;
    struct JinjaPending *pending; // run.h: what a generator does when it is gone through
    bool broken;                  // a generator of which a part is left, which nobody may see
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
JinjaValue jinja_string(const char *bytes, int64_t length); // not copied
JinjaValue jinja_word(const char *text);                    // the same of a C string
JinjaValue jinja_list(JinjaPool *pool, JinjaKind kind);
void jinja_add(JinjaPool *pool, JinjaValue list, JinjaValue item);
JinjaValue jinja_dict(JinjaPool *pool, JinjaKind kind);
/* NULL where the dict has no such key. */
JinjaValue *jinja_find(JinjaPool *pool, const JinjaDict *dict, JinjaValue key);
void jinja_put(JinjaPool *pool, JinjaDict *dict, JinjaValue key, JinjaValue value);

bool jinja_is_list(JinjaValue value); // of the kinds that have a list
bool jinja_is(JinjaValue value, const char *text);
bool jinja_true(JinjaValue value);
bool jinja_number(JinjaValue value, double *real); // a bool is a number
bool jinja_whole(JinjaValue value, int64_t *whole);
bool jinja_equal(JinjaPool *pool, JinjaValue a, JinjaValue b);
/* -1, 0 or 1; false where the two have no order. */
bool jinja_compare(JinjaPool *pool, JinjaValue a, JinjaValue b, int *order);
bool jinja_hashable(JinjaValue value);
const char *jinja_kind_name(JinjaKind kind); // as Python's

/* ---- texts that grow ---- */

typedef struct {
    JinjaPool *pool;
    char *bytes;
    int64_t count, room;
} JinjaText;
void jinja_write(JinjaText *text, const void *bytes, int64_t count);
void jinja_write_word(JinjaText *text, const char *word);
JinjaValue jinja_written(const JinjaText *text);

/* As Python's str() and repr(). False for what has no text here: a macro, a generator, ... */
bool jinja_write_value(JinjaText *text, JinjaValue value);
bool jinja_write_repr(JinjaText *text, JinjaValue value);
void jinja_write_float(JinjaText *text, double value);
