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

static Status call_strip(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    TRY(want(run, a->values[1], true));
    *result = jinja_strip(a->values[0], a->values[1], (JinjaSides)a->variant);
    return jinja_step(run, a->values[1].kind == VALUE_STRING ? a->values[1].length : 0);
}

static Status call_split(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const bool last = a->variant;
    int64_t most = -1;
    TRY(want(run, a->values[1], true));
    if (a->values[1].kind == VALUE_STRING && !a->values[1].length)
        return jinja_error(run, "the separator of a split is empty");
    if (a->values[2].kind != VALUE_MISSING && !jinja_whole(a->values[2], &most))
        return jinja_error(run, "the number of splits is a %s", jinja_kind_name(a->values[2].kind));
    if (last && a->values[1].kind != VALUE_STRING)
        return jinja_error(run, "rsplit at spaces is not supported");
    *result = (last ? jinja_split_last : jinja_split)(&run->pool, a->values[0], a->values[1], most);
    return OK;
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
static Status call_stands(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaValue *parts = &a->values[1];
    int64_t count = 1;
    bool found = false;
    if (parts->kind == VALUE_TUPLE) {
        count = parts->list->count;
        parts = parts->list->items;
    }
    for (int64_t i = 0; i < count; i++) {
        TRY(want(run, parts[i], false));
        found |= stands(a->values[0], parts[i], a->variant);
    }
    *result = jinja_bool(found);
    return OK;
}

static Status call_remove(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const bool end = a->variant;
    TRY(want(run, a->values[1], false));
    int64_t gone = stands(a->values[0], a->values[1], end) ? a->values[1].length : 0;
    *result = jinja_string(a->values[0].bytes + (end ? 0 : gone), a->values[0].length - gone);
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
static Status call_find(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    TRY(want(run, a->values[1], false));
    int64_t at = a->variant ? jinja_search_last(&run->pool, a->values[0], a->values[1])
                            : jinja_search(&run->pool, a->values[0], a->values[1], 0);
    *result = jinja_int(at < 0 ? -1 : jinja_characters(jinja_string(a->values[0].bytes, at)));
    return jinja_step(run, 1);
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

Status jinja_write_case(JinjaRun *run, JinjaText *text, JinjaValue string, JinjaCase to) {
    if (jinja_change_case(text, string, to)) return OK;
    return jinja_error(run, "the case of one of these letters is not supported");
}

static Status call_case(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaText text = {.pool = &run->pool};
    TRY(jinja_write_case(run, &text, a->values[0], (JinjaCase)a->variant));
    *result = jinja_written(&text);
    return OK;
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
    {"strip", "/self,/chars?", call_strip, STRIP_BOTH},
    {"lstrip", "/self,/chars?", call_strip, STRIP_LEFT},
    {"rstrip", "/self,/chars?", call_strip, STRIP_RIGHT},
    {"split", "/self,sep?,maxsplit?", call_split, false},
    {"rsplit", "/self,sep?,maxsplit?", call_split, true},
    {"splitlines", "/self", call_splitlines, 0},
    {"startswith", "/self,/prefix", call_stands, false},
    {"endswith", "/self,/suffix", call_stands, true},
    {"removeprefix", "/self,/prefix", call_remove, false},
    {"removesuffix", "/self,/suffix", call_remove, true},
    {"replace", "/self,/old,/new,/count?", call_replace, 0},
    {"find", "/self,/sub", call_find, false},
    {"rfind", "/self,/sub", call_find, true},
    {"count", "/self,/sub", call_count, 0},
    {"upper", "/self", call_case, CASE_UPPER},
    {"lower", "/self", call_case, CASE_LOWER},
    {"title", "/self", call_case, CASE_WORDS},
    {"capitalize", "/self", call_case, CASE_FIRST},
    {"join", "/self,/iterable", call_join, 0},
    {"isdigit", "/self", call_isdigit, 0},
    {"isspace", "/self", call_isspace, 0},
    {.name = "casefold"},
    {.name = "center"},
    {.name = "encode"},
    {.name = "expandtabs"},
    {.name = "format"},
    {.name = "format_map"},
    {.name = "index"},
    {.name = "isalnum"},
    {.name = "isalpha"},
    {.name = "isascii"},
    {.name = "isdecimal"},
    {.name = "isidentifier"},
    {.name = "islower"},
    {.name = "isnumeric"},
    {.name = "isprintable"},
    {.name = "istitle"},
    {.name = "isupper"},
    {.name = "ljust"},
    {.name = "maketrans"},
    {.name = "partition"},
    {.name = "rindex"},
    {.name = "rjust"},
    {.name = "rpartition"},
    {.name = "swapcase"},
    {.name = "translate"},
    {.name = "zfill"},
    {.name = NULL},
};

/* ---- dicts ---- */

static Status call_get(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaValue *item = jinja_find(&run->pool, a->values[0].dict, a->values[1]);
    if (!jinja_hashable(a->values[1]))
        return jinja_error(run, "a %s is no key", jinja_kind_name(a->values[1].kind));
    *result = item ? *item : a->values[2].kind == VALUE_MISSING ? jinja_none : a->values[2];
    return OK;
}

JinjaValue jinja_items(JinjaRun *run, const JinjaDict *dict) {
    JinjaValue items = jinja_list(&run->pool, VALUE_VIEW);
    for (int64_t i = 0; i < dict->count && !run->pool.over; i++) {
        JinjaValue pair = jinja_list(&run->pool, VALUE_TUPLE);
        jinja_add(&run->pool, pair, dict->keys[i]);
        jinja_add(&run->pool, pair, dict->values[i]);
        jinja_add(&run->pool, items, pair);
    }
    return items;
}

static Status call_items(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    *result = jinja_items(run, a->values[0].dict);
    return OK;
}

static Status call_column(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaDict *dict = a->values[0].dict;
    const JinjaValue *column = a->variant ? dict->values : dict->keys;
    *result = jinja_list(&run->pool, VALUE_VIEW);
    for (int64_t i = 0; i < dict->count; i++) jinja_add(&run->pool, *result, column[i]);
    return OK;
}

const JinjaBuiltin jinja_dict_methods[] = {
    {"get", "/self,/key,/default?", call_get, 0},
    {"items", "/self", call_items, 0},
    {"keys", "/self", call_column, false},
    {"values", "/self", call_column, true},
    {.name = "copy"},
    {.name = "fromkeys"},
    {"clear", "", NULL, 0},
    {"pop", "", NULL, 0},
    {"popitem", "", NULL, 0},
    {"setdefault", "", NULL, 0},
    {"update", "", NULL, 0},
    {.name = NULL},
};

const JinjaBuiltin jinja_list_methods[] = {
    {.name = "count"},       {.name = "index"},        {.name = "copy"},        {"append", "", NULL, 0},
    {"clear", "", NULL, 0},  {"extend", "", NULL, 0},  {"insert", "", NULL, 0}, {"pop", "", NULL, 0},
    {"remove", "", NULL, 0}, {"reverse", "", NULL, 0}, {"sort", "", NULL, 0},   {.name = NULL},
};
