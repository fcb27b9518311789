/* Access to parts of values: attributes, items, slices, iteration. */
#include "tasks/chat/jinja/run.h"
#include "tasks/chat/jinja/text.h"

#include <string.h>

/* ---- attributes ---- */

/* Python's attributes of numbers and of None, which no template uses. */
static const JinjaBuiltin number_attributes[] = {{.name = "real"},       {.name = "imag"},
                                                 {.name = "numerator"},  {.name = "denominator"},
                                                 {.name = "bit_length"}, {.name = "bit_count"},
                                                 {.name = "conjugate"},  {.name = "to_bytes"},
                                                 {.name = "from_bytes"}, {.name = "as_integer_ratio"},
                                                 {.name = "is_integer"}, {.name = "hex"},
                                                 {.name = "fromhex"},    {.name = NULL}};

static const JinjaBuiltin *methods_of(JinjaValue value) {
    if (value.kind == VALUE_STRING) return jinja_string_methods;
    if (value.kind == VALUE_DICT) return jinja_dict_methods;
    if (value.kind == VALUE_LIST || value.kind == VALUE_TUPLE) return jinja_list_methods;
    return number_attributes;
}

/* Whether the Python object has the attribute. Methods that would modify their object may not be called, and
 * are undefined. */
static Status find_method(JinjaRun *run, JinjaValue value, const char *name, bool *found,
                          JinjaValue *result) {
    const JinjaBuiltin *method = jinja_look_up(methods_of(value), name);
    *found = method != NULL;
    if (!method) return OK;
    if (!method->call && method->parameters) {
        *result = jinja_undefined(name);
        return OK;
    }
    if (!method->call || (value.safe && method->call))
        return jinja_error(run, "%s of a %s is not supported", name, jinja_kind_name(value.kind));
    *result = (JinjaValue){.kind = VALUE_METHOD, .method = jinja_take(&run->pool, sizeof(JinjaMethod))};
    *result->method = (JinjaMethod){method, value};
    return OK;
}

static Status no_attributes(const JinjaRun *run, JinjaValue value, const char *name) {
    if (value.kind == VALUE_UNDEFINED) return jinja_error(run, "%.60s is undefined", value.bytes);
    return jinja_error(run, "%.40s of a %s is not supported", name, jinja_kind_name(value.kind));
}

/* Implements getattr(). */
static Status get_attribute(JinjaRun *run, JinjaValue value, const char *name, bool *found,
                            JinjaValue *result) {
    *found = true;
    if (value.kind == VALUE_LOOP) return jinja_loop_attribute(run, value.loop, name, result);
    if (value.kind == VALUE_NAMESPACE) {
        const JinjaValue *item = jinja_find(&run->pool, value.dict, jinja_word(name));
        *found = item != NULL;
        if (item) *result = *item;
        return OK;
    }
    if (name[0] == '_' || value.kind > VALUE_NAMESPACE || value.kind == VALUE_RANGE ||
        value.kind == VALUE_VIEW || value.kind == VALUE_GENERATOR)
        return no_attributes(run, value, name);
    return find_method(run, value, name, found, result);
}

Status jinja_attribute(JinjaRun *run, JinjaValue value, const char *name, JinjaValue *result) {
    bool found;
    if (value.kind == VALUE_UNDEFINED) return no_attributes(run, value, name);
    if (value.kind == VALUE_DICT && name[0] == '_' && name[1] != '_') {
        found = false; // Python's dicts have no other attributes
    } else {
        TRY(get_attribute(run, value, name, &found, result));
    }
    if (found) return OK;
    const JinjaValue *item =
        value.kind == VALUE_DICT ? jinja_find(&run->pool, value.dict, jinja_word(name)) : NULL;
    *result = item ? *item : jinja_undefined(name);
    return OK;
}

/* ---- items ---- */

static const char *name_of(JinjaRun *run, JinjaValue key) {
    char *name = jinja_take(&run->pool, (size_t)key.length + 1);
    memcpy(name, key.bytes, (size_t)key.length);
    return name;
}

static bool has_indices(JinjaValue value) {
    return value.kind == VALUE_STRING || value.kind == VALUE_LIST || value.kind == VALUE_TUPLE ||
           value.kind == VALUE_RANGE;
}

static bool find_index(JinjaValue value, int64_t index, JinjaValue *result) {
    int64_t size, count = value.kind == VALUE_STRING ? jinja_characters(value) : value.list->count;
    if (index < 0) index += count;
    if (index < 0 || index >= count) return false;
    if (value.kind != VALUE_STRING) {
        *result = value.list->items[index];
        return true;
    }
    int64_t at = jinja_offset(value, index);
    jinja_decode(value.bytes + at, value.length - at, &size);
    *result = jinja_string(value.bytes + at, size);
    result->safe = value.safe;
    return true;
}

Status jinja_item(JinjaRun *run, JinjaValue value, JinjaValue key, JinjaValue *result) {
    int64_t index;
    bool found = false;
    if (value.kind == VALUE_UNDEFINED) return no_attributes(run, value, "an item");
    TRY(jinja_step(run, value.kind == VALUE_STRING ? value.length >> 6 : 0));
    if (value.kind == VALUE_DICT) {
        const JinjaValue *item = jinja_find(&run->pool, value.dict, key);
        if (item) *result = *item;
        found = item != NULL;
    } else if (has_indices(value) && jinja_whole(key, &index)) {
        found = find_index(value, index, result);
    }
    if (!found && key.kind == VALUE_STRING) TRY(get_attribute(run, value, name_of(run, key), &found, result));
    if (!found) *result = jinja_undefined(key.kind == VALUE_STRING ? name_of(run, key) : "an item");
    return OK;
}

/* ---- slices ---- */

/* slice.indices(): a bound in [least, most], counted from the end if negative. */
static int64_t clip(JinjaValue bound, int64_t none, int64_t count, int64_t least, int64_t most) {
    int64_t at;
    if (!jinja_whole(bound, &at)) return none;
    if (at < 0) at = at < -count ? -1 : at + count;
    return at < least ? least : at > most ? most : at;
}

static JinjaValue cut_string(JinjaRun *run, JinjaValue string, int64_t from, int64_t to, int64_t step) {
    JinjaText text = {.pool = &run->pool};
    int64_t size;
    if (step == 1) {
        int64_t begin = jinja_offset(string, from), end = from < to ? jinja_offset(string, to) : begin;
        string.bytes += begin;
        string.length = end - begin;
        return string;
    }
    for (; step > 0 ? from < to : from > to; from += step) {
        int64_t at = jinja_offset(string, from);
        if (!jinja_spend(&run->pool, 1 + (at >> 6))) break;
        jinja_decode(string.bytes + at, string.length - at, &size);
        jinja_write(&text, string.bytes + at, size);
        if (step > to - from && step > 0) break;
    }
    JinjaValue whole = jinja_written(&text);
    whole.safe = string.safe;
    return whole;
}

Status jinja_slice(JinjaRun *run, JinjaValue value, const JinjaValue bounds[3], JinjaValue *result) {
    int64_t step = 1, whole;
    bool fits = has_indices(value);
    if (value.kind == VALUE_UNDEFINED) return no_attributes(run, value, "a slice");
    for (int i = 0; i < 3; i++)
        fits = fits && (bounds[i].kind == VALUE_NONE || jinja_whole(bounds[i], &whole));
    if (!fits) return jinja_error(run, "a %s has no slice with these bounds", jinja_kind_name(value.kind));
    jinja_whole(bounds[2], bounds[2].kind == VALUE_NONE ? &whole : &step);
    if (step == 0) return jinja_error(run, "a slice's step is zero");
    int64_t count = value.kind == VALUE_STRING ? jinja_characters(value) : value.list->count;
    if (step > count) step = count + 1; // only the first item
    if (step < -count) step = -count - 1;
    bool back = step < 0;
    int64_t from = clip(bounds[0], back ? count - 1 : 0, count, back ? -1 : 0, back ? count - 1 : count);
    int64_t to = clip(bounds[1], back ? -1 : count, count, back ? -1 : 0, back ? count - 1 : count);
    if (value.kind == VALUE_STRING) {
        TRY(jinja_step(run, value.length >> 6));
        *result = cut_string(run, value, from, to, step);
        return OK;
    }
    *result = jinja_list(&run->pool, value.kind);
    for (; (back ? from > to : from < to) && !run->pool.over; from += step)
        jinja_add(&run->pool, *result, value.list->items[from]);
    return OK;
}

/* ---- all of it ---- */

Status jinja_iterate(JinjaRun *run, JinjaValue value, JinjaList *items) {
    *items = (JinjaList){0};
    if (value.kind == VALUE_UNDEFINED) return OK;
    if (value.kind == VALUE_DICT) {
        *items = (JinjaList){.items = value.dict->keys, .count = value.dict->count};
    } else if (value.kind == VALUE_STRING) {
        JinjaValue list = jinja_list(&run->pool, VALUE_LIST);
        for (int64_t at = 0, size; at < value.length && !run->pool.over; at += size) {
            jinja_decode(value.bytes + at, value.length - at, &size);
            JinjaValue character = jinja_string(value.bytes + at, size);
            character.safe = value.safe;
            jinja_add(&run->pool, list, character);
        }
        *items = *list.list;
    } else if (jinja_is_list(value)) {
        if (value.kind == VALUE_GENERATOR) TRY(jinja_resolve(run, value.list));
        *items = *value.list;
        if (value.kind == VALUE_GENERATOR) value.list->count = 0;
    } else {
        return jinja_error(run, "a %s cannot be iterated", jinja_kind_name(value.kind));
    }
    return OK;
}

Status jinja_length(JinjaRun *run, JinjaValue value, int64_t *length) {
    *length = 0;
    if (value.kind == VALUE_STRING)
        *length = jinja_characters(value);
    else if (value.kind == VALUE_DICT)
        *length = value.dict->count;
    else if (jinja_is_list(value) && value.kind != VALUE_GENERATOR)
        *length = value.list->count;
    else if (value.kind == VALUE_LOOP)
        return jinja_error(run, "the length of a loop is not supported");
    else if (value.kind != VALUE_UNDEFINED)
        return jinja_error(run, "a %s has no length", jinja_kind_name(value.kind));
    return OK;
}

Status jinja_text_of(JinjaRun *run, JinjaValue value, JinjaValue *text) {
    JinjaText written = {.pool = &run->pool};
    *text = value;
    if (value.kind == VALUE_STRING) return OK;
    if (!jinja_write_value(&written, value))
        return jinja_error(run, "the text of a %s is not supported", jinja_kind_name(value.kind));
    *text = jinja_written(&written);
    return OK;
}
