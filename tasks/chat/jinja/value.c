#include "tasks/chat/jinja/value.h"

#include "base/memory.h"

#include <string.h>

/* ---- the pool ---- */

enum { CHUNK = 1 << 16, DEPTH_MOST = 400, ALIGNMENT = 16 };

typedef struct JinjaChunk {
    struct JinjaChunk *next;
    _Alignas(ALIGNMENT) char bytes[];
} JinjaChunk;

void *jinja_take(JinjaPool *pool, size_t bytes) {
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > pool->left) {
        size_t room = bytes > CHUNK ? bytes : CHUNK;
        JinjaChunk *chunk = memory_allocate(sizeof *chunk + room);
        chunk->next = pool->chunks;
        pool->chunks = chunk;
        pool->at = chunk->bytes;
        pool->left = room;
        pool->bytes -= (int64_t)room;
        pool->over |= pool->bytes < 0;
    }
    char *taken = pool->at;
    pool->at += bytes;
    pool->left -= bytes;
    return taken;
}

void jinja_pool_free(JinjaPool *pool) {
    while (pool->chunks) {
        JinjaChunk *next = pool->chunks->next;
        memory_free(pool->chunks);
        pool->chunks = next;
    }
    *pool = (JinjaPool){0};
}

bool jinja_spend(JinjaPool *pool, int64_t steps) {
    pool->steps -= steps;
    pool->over |= pool->steps < 0;
    return !pool->over;
}

bool jinja_enter(JinjaPool *pool) {
    pool->over |= pool->depth >= DEPTH_MOST;
    if (!jinja_spend(pool, 1)) return false;
    pool->depth++;
    return true;
}

void jinja_leave(JinjaPool *pool) {
    pool->depth--;
}

/* ---- making ---- */

JinjaValue jinja_undefined(const char *name) {
    return (JinjaValue){.kind = VALUE_UNDEFINED, .bytes = name, .length = (int64_t)strlen(name)};
}

JinjaValue jinja_bool(bool truth) {
    return (JinjaValue){.kind = VALUE_BOOL, .truth = truth};
}

JinjaValue jinja_int(int64_t integer) {
    return (JinjaValue){.kind = VALUE_INT, .integer = integer};
}

JinjaValue jinja_float(double real) {
    return (JinjaValue){.kind = VALUE_FLOAT, .real = real};
}

JinjaValue jinja_string(const char *bytes, int64_t length) {
    return (JinjaValue){.kind = VALUE_STRING, .bytes = bytes, .length = length};
}

JinjaValue jinja_word(const char *text) {
    return jinja_string(text, (int64_t)strlen(text));
}

JinjaValue jinja_list(JinjaPool *pool, JinjaKind kind) {
    return (JinjaValue){.kind = kind, .list = jinja_take(pool, sizeof(JinjaList))};
}

static JinjaValue *grow(JinjaPool *pool, JinjaValue *old, int64_t count, int64_t room) {
    JinjaValue *values = jinja_take(pool, (size_t)room * sizeof *values);
    if (count) memcpy(values, old, (size_t)count * sizeof *values);
    return values;
}

void jinja_add(JinjaPool *pool, JinjaValue value, JinjaValue item) {
    JinjaList *list = value.list;
    if (!jinja_spend(pool, 1)) return;
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 4;
        list->items = grow(pool, list->items, list->count, list->room);
    }
    list->items[list->count++] = item;
}

JinjaValue jinja_dict(JinjaPool *pool, JinjaKind kind) {
    return (JinjaValue){.kind = kind, .dict = jinja_take(pool, sizeof(JinjaDict))};
}

JinjaValue *jinja_find(JinjaPool *pool, const JinjaDict *dict, JinjaValue key) {
    for (int64_t i = 0; i < dict->count; i++)
        if (jinja_equal(pool, dict->keys[i], key)) return &dict->values[i];
    return NULL;
}

void jinja_put(JinjaPool *pool, JinjaDict *dict, JinjaValue key, JinjaValue value) {
    JinjaValue *item = jinja_find(pool, dict, key);
    if (item) *item = value;
    if (item || pool->over) return;
    if (dict->count == dict->room) {
        dict->room = dict->room ? 2 * dict->room : 4;
        dict->keys = grow(pool, dict->keys, dict->count, dict->room);
        dict->values = grow(pool, dict->values, dict->count, dict->room);
    }
    dict->keys[dict->count] = key;
    dict->values[dict->count++] = value;
}

/* ---- kinds of values ---- */

bool jinja_is_list(JinjaValue value) {
    return value.kind >= VALUE_LIST && value.kind <= VALUE_GENERATOR;
}

bool jinja_is(JinjaValue value, const char *text) {
    return value.kind == VALUE_STRING && value.length == (int64_t)strlen(text) &&
           memcmp(value.bytes, text, (size_t)value.length) == 0;
}

bool jinja_true(JinjaValue value) {
    if (value.kind <= VALUE_NONE) return false;
    if (value.kind == VALUE_BOOL) return value.truth;
    if (value.kind == VALUE_INT) return value.integer != 0;
    if (value.kind == VALUE_FLOAT) return value.real != 0;
    if (value.kind == VALUE_STRING) return value.length > 0;
    if (value.kind == VALUE_DICT) return value.dict->count > 0;
    return !jinja_is_list(value) || value.kind == VALUE_GENERATOR || value.list->count > 0;
}

bool jinja_whole(JinjaValue value, int64_t *whole) {
    *whole = value.kind == VALUE_BOOL ? value.truth : value.integer;
    return value.kind == VALUE_BOOL || value.kind == VALUE_INT;
}

bool jinja_number(JinjaValue value, double *real) {
    int64_t whole;
    *real = jinja_whole(value, &whole) ? (double)whole : value.real;
    return value.kind == VALUE_BOOL || value.kind == VALUE_INT || value.kind == VALUE_FLOAT;
}

static bool equal_dicts(JinjaPool *pool, const JinjaDict *a, const JinjaDict *b) {
    bool equal = a->count == b->count;
    for (int64_t i = 0; equal && i < a->count; i++) {
        const JinjaValue *other = jinja_find(pool, b, a->keys[i]);
        equal = other && jinja_equal(pool, a->values[i], *other);
    }
    return equal;
}

static bool equal_inside(JinjaPool *pool, JinjaValue a, JinjaValue b) {
    if (a.kind == VALUE_DICT) return equal_dicts(pool, a.dict, b.dict);
    bool equal = a.list->count == b.list->count;
    for (int64_t i = 0; equal && i < a.list->count; i++)
        equal = jinja_equal(pool, a.list->items[i], b.list->items[i]);
    return equal;
}

bool jinja_equal(JinjaPool *pool, JinjaValue a, JinjaValue b) {
    double x, y;
    int64_t m, n;
    if (jinja_whole(a, &m) && jinja_whole(b, &n)) return m == n;
    if (jinja_number(a, &x) && jinja_number(b, &y)) return x == y;
    if (a.kind != b.kind) return false;
    if (a.kind <= VALUE_NONE) return true;
    if (a.kind == VALUE_STRING) {
        jinja_spend(pool, a.length >> 8);
        return a.length == b.length && memcmp(a.bytes, b.bytes, (size_t)a.length) == 0;
    }
    if (a.kind > VALUE_RANGE && a.kind != VALUE_DICT) return a.list == b.list; // identity
    if (!jinja_enter(pool)) return false;
    bool equal = equal_inside(pool, a, b);
    jinja_leave(pool);
    return equal;
}

static bool compare_lists(JinjaPool *pool, const JinjaList *a, const JinjaList *b, int *order) {
    for (int64_t i = 0; i < a->count && i < b->count; i++)
        if (!jinja_equal(pool, a->items[i], b->items[i]))
            return jinja_compare(pool, a->items[i], b->items[i], order);
    *order = (a->count > b->count) - (a->count < b->count);
    return true;
}

bool jinja_compare(JinjaPool *pool, JinjaValue a, JinjaValue b, int *order) {
    double x, y;
    int64_t m, n;
    *order = 0;
    if (jinja_whole(a, &m) && jinja_whole(b, &n)) {
        *order = (m > n) - (m < n);
        return true;
    }
    if (jinja_number(a, &x) && jinja_number(b, &y)) {
        *order = (x > y) - (x < y);
        return x == x && y == y;
    }
    if (a.kind != b.kind) return false;
    if (a.kind == VALUE_STRING) { // byte order is character order in UTF-8
        int64_t least = a.length < b.length ? a.length : b.length;
        int bytes = least ? memcmp(a.bytes, b.bytes, (size_t)least) : 0;
        *order = bytes ? (bytes > 0) - (bytes < 0) : (a.length > b.length) - (a.length < b.length);
        return true;
    }
    if ((a.kind != VALUE_LIST && a.kind != VALUE_TUPLE) || !jinja_enter(pool)) return false;
    bool comparable = compare_lists(pool, a.list, b.list, order);
    jinja_leave(pool);
    return comparable;
}

/* In Python a tuple of hashable items is hashable, too; no template uses one as a key. */
bool jinja_hashable(JinjaValue value) {
    return value.kind <= VALUE_STRING;
}

const char *jinja_kind_name(JinjaKind kind) {
    static const char *const names[VALUE_KINDS] = {
        "nothing", "undefined", "None",      "bool", "int",       "float", "str",   "list",     "tuple",
        "range",   "view",      "generator", "dict", "namespace", "loop",  "macro", "function", "method"};
    return names[kind];
}
