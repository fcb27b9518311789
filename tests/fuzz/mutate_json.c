/* Mutations of JSON that keep it valid: a value anywhere is removed, duplicated, replaced or changed. Half of
 * the time bytes are changed, as in any text. */
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

enum { TEXT = 64 };

/* A value that readers may not expect. */
static json_t *odd_value(unsigned *seed) {
    static const char *const values[] = {
        "null", "true",     "0",  "-1", "1",    "3",      "1e308",      "-0.5",
        "\"\"", "\"none\"", "[]", "{}", "[[]]", "[1, 1]", "2147483648", "9223372036854775807"};
    return json_loads(values[fuzz_draw(seed, sizeof values / sizeof *values)], JSON_DECODE_ANY, NULL);
}

/* A text changed by libFuzzer if the result is UTF-8; else NULL. */
static json_t *changed_text(const char *text) {
    uint8_t bytes[TEXT];
    size_t length = strlen(text) < TEXT ? strlen(text) : TEXT;
    memcpy(bytes, text, length);
    return json_stringn((const char *)bytes, LLVMFuzzerMutate(bytes, length, TEXT));
}

/* The replacement of a value; NULL: none. */
static json_t *changed(const json_t *value, unsigned *seed) {
    unsigned how = fuzz_draw(seed, 4);
    if (how == 0) return NULL;
    if (how > 1 && json_is_string(value)) return changed_text(json_string_value(value));
    if (how > 1 && json_is_integer(value))
        return json_integer((json_int_t)((uint64_t)json_integer_value(value) + fuzz_draw(seed, 9) - 4));
    return odd_value(seed);
}

static void change_array(json_t *array, unsigned *seed);

static void change_object(json_t *object, unsigned *seed) {
    unsigned at = fuzz_draw(seed, (unsigned)json_object_size(object));
    void *member = json_object_iter(object);
    while (at-- > 0) member = json_object_iter_next(object, member);
    char *key = memory_text(json_object_iter_key(member));
    json_t *value = json_object_iter_value(member), *name = changed_text(key), *new;
    unsigned how = fuzz_draw(seed, 8);
    if (how > 2 && json_object_size(value))
        change_object(value, seed);
    else if (how > 2 && json_array_size(value))
        change_array(value, seed);
    else if (how == 0 && name)
        json_object_set_new(object, json_string_value(name), json_deep_copy(value));
    else if ((new = changed(value, seed)))
        json_object_set_new(object, key, new);
    else
        json_object_del(object, key);
    json_decref(name);
    memory_free(key);
}

static void change_array(json_t *array, unsigned *seed) {
    size_t at = fuzz_draw(seed, (unsigned)json_array_size(array));
    json_t *value = json_array_get(array, at), *new;
    unsigned how = fuzz_draw(seed, 8);
    if (how > 2 && json_object_size(value))
        change_object(value, seed);
    else if (how > 2 && json_array_size(value))
        change_array(value, seed);
    else if (how == 0)
        json_array_insert_new(array, at, json_deep_copy(value));
    else if ((new = changed(value, seed)))
        json_array_set_new(array, at, new);
    else
        json_array_remove(array, at);
}

size_t mutate_json(uint8_t *data, size_t size, size_t most, unsigned seed) {
    json_t *root = fuzz_draw(&seed, 2) ? json_loadb((const char *)data, size, 0, NULL) : NULL;
    size_t length = 0;
    for (unsigned times = 1 + fuzz_draw(&seed, 3); times > 0; times--) {
        if (json_object_size(root)) change_object(root, &seed);
        if (json_array_size(root)) change_array(root, &seed);
    }
    if (root) length = json_dumpb(root, (char *)data, most, JSON_COMPACT);
    json_decref(root);
    return length && length <= most ? length : LLVMFuzzerMutate(data, size, most);
}
