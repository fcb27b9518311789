/* Methods of strings, dicts and lists. */
#include "tasks/chat/jinja/run.h"
#include "tasks/chat/jinja/text.h"

#include <string.h>

/* In the tables of methods, a row with parameters but without a function is a method that modifies its
 * object, which templates may not call. */

/* Requires a string; with `none` also accepts none. */
static Status want(JinjaRun *run, JinjaValue value, bool none) {
    if (value.kind == VALUE_STRING || (none && value.kind <= VALUE_NONE && value.kind != VALUE_UNDEFINED))
        return OK;
    return jinja_error(run, "a %s is used where a str is required", jinja_kind_name(value.kind));
}

/* ---- strings ---- */

static Status strip(JinjaRun *run, const JinjaArguments *a, JinjaSides sides, JinjaValue *result) {
    TRY(want(run, a->values[1], true));
    *result = jinja_strip(a->values[0], a->values[1], sides);
    return jinja_step(run, a->values[1].kind == VALUE_STRING ? a->values[1].length : 0);
}

static Status call_strip(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return strip(run, a, STRIP_BOTH, result);
}
static Status call_lstrip(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return strip(run, a, STRIP_LEFT, result);
}
static Status call_rstrip(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return strip(run, a, STRIP_RIGHT, result);
}

typedef JinjaValue Splitter(JinjaPool *pool, JinjaValue string, JinjaValue separator, int64_t most);

static Status split(JinjaRun *run, const JinjaArguments *a, Splitter *splitter, JinjaValue *result) {
    int64_t most = -1;
    TRY(want(run, a->values[1], true));
    if (a->values[1].kind == VALUE_STRING && !a->values[1].length)
        return jinja_error(run, "the separator of a split is empty");
    if (a->values[2].kind != VALUE_MISSING && !jinja_whole(a->values[2], &most))
        return jinja_error(run, "the number of splits is a %s", jinja_kind_name(a->values[2].kind));
    if (splitter == jinja_split_last && a->values[1].kind != VALUE_STRING)
        return jinja_error(run, "rsplit at spaces is not supported");
    *result = splitter(&run->pool, a->values[0], a->values[1], most);
    return OK;
}

static Status call_split(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return split(run, a, jinja_split, result);
}
static Status call_rsplit(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return split(run, a, jinja_split_last, result);
}

static Status call_splitlines(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    *result = jinja_split_lines(&run->pool, a->values[0]);
    return OK;
}

static bool stands(JinjaValue string, JinjaValue part, bool end) {
    return part.length <= string.length && memcmp(string.bytes + (end ? string.length - part.length : 0),
                                                  part.bytes, (size_t)part.length) == 0;
}

/* `parts` may be a tuple of strings. */
static Status stands_any(JinjaRun *run, const JinjaArguments *a, bool end, JinjaValue *result) {
    const JinjaValue *parts = &a->values[1];
    int64_t count = 1;
    bool found = false;
    if (parts->kind == VALUE_TUPLE) {
        count = parts->list->count;
        parts = parts->list->items;
    }
    for (int64_t i = 0; i < count; i++) {
        TRY(want(run, parts[i], false));
        found |= stands(a->values[0], parts[i], end);
    }
    *result = jinja_bool(found);
    return OK;
}

static Status call_startswith(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return stands_any(run, a, false, result);
}
static Status call_endswith(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return stands_any(run, a, true, result);
}

static Status call_removeprefix(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    TRY(want(run, a->values[1], false));
    int64_t gone = stands(a->values[0], a->values[1], false) ? a->values[1].length : 0;
    *result = jinja_string(a->values[0].bytes + gone, a->values[0].length - gone);
    return OK;
}
static Status call_removesuffix(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    TRY(want(run, a->values[1], false));
    int64_t gone = stands(a->values[0], a->values[1], true) ? a->values[1].length : 0;
    *result = jinja_string(a->values[0].bytes, a->values[0].length - gone);
    return OK;
}

static Status call_replace(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    int64_t most = -1;
    TRY(want(run, a->values[1], false));
    TRY(want(run, a->values[2], false));
    if (a->values[3].kind != VALUE_MISSING && !jinja_whole(a->values[3], &most))
        return jinja_error(run, "the number of replacements is a %s", jinja_kind_name(a->values[3].kind));
    *result = jinja_replace(&run->pool, a->values[0], a->values[1], a->values[2], most);
    return OK;
}

/* The position of the part, in characters, or -1. */
static Status find(JinjaRun *run, const JinjaArguments *a, bool last, JinjaValue *result) {
    TRY(want(run, a->values[1], false));
    int64_t at = last ? jinja_search_last(&run->pool, a->values[0], a->values[1])
                      : jinja_search(&run->pool, a->values[0], a->values[1], 0);
    *result = jinja_int(at < 0 ? -1 : jinja_characters(jinja_string(a->values[0].bytes, at)));
    return jinja_step(run, 1);
}

static Status call_find(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return find(run, a, false, result);
}
static Status call_rfind(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return find(run, a, true, result);
}

static Status call_count(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    int64_t count = 0;
    TRY(want(run, a->values[1], false));
    if (!a->values[1].length) count = jinja_characters(a->values[0]) + 1;
    for (int64_t at = 0; a->values[1].length; at += a->values[1].length, count++) {
        at = jinja_search(&run->pool, a->values[0], a->values[1], at);
        if (at < 0) break;
        TRY(jinja_step(run, 1));
    }
    *result = jinja_int(count);
    return OK;
}

static Status change_case(JinjaRun *run, const JinjaArguments *a, JinjaCase to, JinjaValue *result) {
    JinjaText text = {.pool = &run->pool};
    if (!jinja_change_case(&text, a->values[0], to))
        return jinja_error(run, "the case of one of these letters is not supported");
    *result = jinja_written(&text);
    return OK;
}

static Status call_upper(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return change_case(run, a, CASE_UPPER, result);
}
static Status call_lower(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return change_case(run, a, CASE_LOWER, result);
}
static Status call_title(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return change_case(run, a, CASE_WORDS, result);
}
static Status call_capitalize(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return change_case(run, a, CASE_FIRST, result);
}

static Status call_join(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaText text = {.pool = &run->pool};
    JinjaList items;
    TRY(jinja_iterate(run, a->values[1], &items));
    for (int64_t i = 0; i < items.count; i++) {
        TRY(want(run, items.items[i], false));
        TRY(jinja_step(run, 1));
        if (i) jinja_write(&text, a->values[0].bytes, a->values[0].length);
        jinja_write(&text, items.items[i].bytes, items.items[i].length);
    }
    *result = jinja_written(&text);
    return OK;
}

/* str.isdigit(), isspace() and the like, for ASCII. */
static Status all_between(JinjaRun *run, const JinjaArguments *a, const char *among, JinjaValue *result) {
    JinjaValue string = a->values[0];
    bool all = string.length > 0;
    for (int64_t i = 0; i < string.length; i++) {
        if ((uint8_t)string.bytes[i] >= 0x80)
            return jinja_error(run, "the kind of letters beyond ASCII is not supported here");
        all = all && string.bytes[i] && strchr(among, string.bytes[i]);
    }
    *result = jinja_bool(all);
    return OK;
}

static Status call_isdigit(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return all_between(run, a, "0123456789", result);
}

static Status call_isspace(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return all_between(run, a, "\t\n\v\f\r \x1c\x1d\x1e\x1f", result);
}

const JinjaBuiltin jinja_string_methods[] = {
    {"strip", "/self,/chars?", call_strip},
    {"lstrip", "/self,/chars?", call_lstrip},
    {"rstrip", "/self,/chars?", call_rstrip},
    {"split", "/self,sep?,maxsplit?", call_split},
    {"rsplit", "/self,sep?,maxsplit?", call_rsplit},
    {"splitlines", "/self", call_splitlines},
    {"startswith", "/self,/prefix", call_startswith},
    {"endswith", "/self,/suffix", call_endswith},
    {"removeprefix", "/self,/prefix", call_removeprefix},
    {"removesuffix", "/self,/suffix", call_removesuffix},
    {"replace", "/self,/old,/new,/count?", call_replace},
    {"find", "/self,/sub", call_find},
    {"rfind", "/self,/sub", call_rfind},
    {"count", "/self,/sub", call_count},
    {"upper", "/self", call_upper},
    {"lower", "/self", call_lower},
    {"title", "/self", call_title},
    {"capitalize", "/self", call_capitalize},
    {"join", "/self,/iterable", call_join},
    {"isdigit", "/self", call_isdigit},
    {"isspace", "/self", call_isspace},
    {"casefold", NULL, NULL},
    {"center", NULL, NULL},
    {"encode", NULL, NULL},
    {"expandtabs", NULL, NULL},
    {"format", NULL, NULL},
    {"format_map", NULL, NULL},
    {"index", NULL, NULL},
    {"isalnum", NULL, NULL},
    {"isalpha", NULL, NULL},
    {"isascii", NULL, NULL},
    {"isdecimal", NULL, NULL},
    {"isidentifier", NULL, NULL},
    {"islower", NULL, NULL},
    {"isnumeric", NULL, NULL},
    {"isprintable", NULL, NULL},
    {"istitle", NULL, NULL},
    {"isupper", NULL, NULL},
    {"ljust", NULL, NULL},
    {"maketrans", NULL, NULL},
    {"partition", NULL, NULL},
    {"rindex", NULL, NULL},
    {"rjust", NULL, NULL},
    {"rpartition", NULL, NULL},
    {"swapcase", NULL, NULL},
    {"translate", NULL, NULL},
    {"zfill", NULL, NULL},
    {NULL, NULL, NULL},
};

/* ---- dicts ---- */

static Status call_get(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaValue *item = jinja_find(&run->pool, a->values[0].dict, a->values[1]);
    if (!jinja_hashable(a->values[1]))
        return jinja_error(run, "a %s is no key", jinja_kind_name(a->values[1].kind));
    *result = item ? *item : a->values[2].kind == VALUE_MISSING ? jinja_none : a->values[2];
    return OK;
}

static Status call_items(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaDict *dict = a->values[0].dict;
    *result = jinja_list(&run->pool, VALUE_VIEW);
    for (int64_t i = 0; i < dict->count && !run->pool.over; i++) {
        JinjaValue pair = jinja_list(&run->pool, VALUE_TUPLE);
        jinja_add(&run->pool, pair, dict->keys[i]);
        jinja_add(&run->pool, pair, dict->values[i]);
        jinja_add(&run->pool, *result, pair);
    }
    return OK;
}

static Status call_keys(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaDict *dict = a->values[0].dict;
    *result = jinja_list(&run->pool, VALUE_VIEW);
    for (int64_t i = 0; i < dict->count; i++) jinja_add(&run->pool, *result, dict->keys[i]);
    return OK;
}

static Status call_values(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaDict *dict = a->values[0].dict;
    *result = jinja_list(&run->pool, VALUE_VIEW);
    for (int64_t i = 0; i < dict->count; i++) jinja_add(&run->pool, *result, dict->values[i]);
    return OK;
}

const JinjaBuiltin jinja_dict_methods[] = {
    {"get", "/self,/key,/default?", call_get},
    {"items", "/self", call_items},
    {"keys", "/self", call_keys},
    {"values", "/self", call_values},
    {"copy", NULL, NULL},
    {"fromkeys", NULL, NULL},
    {"clear", "", NULL},
    {"pop", "", NULL},
    {"popitem", "", NULL},
    {"setdefault", "", NULL},
    {"update", "", NULL},
    {NULL, NULL, NULL},
};

const JinjaBuiltin jinja_list_methods[] = {
    {"count", NULL, NULL}, {"index", NULL, NULL}, {"copy", NULL, NULL}, {"append", "", NULL},
    {"clear", "", NULL},   {"extend", "", NULL},  {"insert", "", NULL}, {"pop", "", NULL},
    {"remove", "", NULL},  {"reverse", "", NULL}, {"sort", "", NULL},   {NULL, NULL, NULL},
};
