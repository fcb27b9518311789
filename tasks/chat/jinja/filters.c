/* Filters. */
#include "tasks/chat/jinja/run.h"
#include "tasks/chat/jinja/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

/* str(value), which stays marked as safe. The filter `string` is this, too. */
static Status text_of(JinjaRun *run, const JinjaArguments *a, JinjaValue *text) {
    return jinja_text_of(run, a->values[0], text);
}

static Status filter_trim(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    if (a->values[1].kind != VALUE_MISSING && a->values[1].kind != VALUE_NONE &&
        a->values[1].kind != VALUE_STRING)
        return jinja_error(run, "trim takes characters, not a %s", jinja_kind_name(a->values[1].kind));
    TRY(text_of(run, a, result));
    *result = jinja_strip(*result, a->values[1], STRIP_BOTH);
    return jinja_step(run, a->values[1].kind == VALUE_STRING ? a->values[1].length : 0);
}

static Status filter_case(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaText text = {.pool = &run->pool};
    TRY(text_of(run, a, result));
    bool safe = result->safe;
    TRY(jinja_write_case(run, &text, *result, (JinjaCase)a->variant));
    *result = jinja_written(&text);
    result->safe = safe;
    return OK;
}

static Status filter_safe(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    TRY(text_of(run, a, result));
    result->safe = true;
    return OK;
}

/* Words end at spaces, "-", "(", "{", "[" and "<", unlike str.title()'s. */
static Status filter_title(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaText text = {.pool = &run->pool};
    JinjaValue whole;
    TRY(text_of(run, a, &whole));
    for (int64_t at = 0, end, size; at < whole.length; at = end) {
        for (end = at; end < whole.length; end += size) {
            int32_t code = jinja_decode(whole.bytes + end, whole.length - end, &size);
            if (jinja_is_space(code) || (code < 0x80 && strchr("-({[<", code))) break;
        }
        TRY(jinja_write_case(run, &text, jinja_string(whole.bytes + at, end - at), CASE_FIRST));
        if (end == whole.length) break;
        jinja_decode(whole.bytes + end, whole.length - end, &size);
        jinja_write(&text, whole.bytes + end, size);
        end += size;
    }
    *result = jinja_written(&text);
    return jinja_step(run, 1);
}

static Status filter_replace(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaValue old, new;
    int64_t most = -1;
    TRY(text_of(run, a, result));
    TRY(jinja_text_of(run, a->values[1], &old));
    TRY(jinja_text_of(run, a->values[2], &new));
    if (a->values[3].kind > VALUE_NONE && !jinja_whole(a->values[3], &most))
        return jinja_error(run, "the number of replacements is a %s", jinja_kind_name(a->values[3].kind));
    *result = jinja_replace(&run->pool, *result, old, new, most);
    return OK;
}

static Status filter_indent(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaText text = {.pool = &run->pool}, spaces = {.pool = &run->pool};
    JinjaValue width = a->values[1], indent, lines;
    int64_t count = 4;
    bool first = jinja_true(a->values[2]), blank = jinja_true(a->values[3]);
    if (a->values[0].kind != VALUE_STRING || a->values[0].safe)
        return jinja_error(run, "indent of this is not supported");
    if (width.kind != VALUE_MISSING && width.kind != VALUE_STRING && !jinja_whole(width, &count))
        return jinja_error(run, "the width of an indent is a %s", jinja_kind_name(width.kind));
    for (; count > 0 && jinja_spend(&run->pool, 1); count--) jinja_write_word(&spaces, " ");
    indent = width.kind == VALUE_STRING ? width : jinja_written(&spaces);
    jinja_write(&text, a->values[0].bytes, a->values[0].length);
    jinja_write_word(&text, "\n"); // so that a final newline begins a line
    lines = jinja_split_lines(&run->pool, jinja_written(&text));
    text.count = 0;
    text = (JinjaText){.pool = &run->pool};
    for (int64_t i = 0; i < lines.list->count; i++) {
        JinjaValue line = lines.list->items[i];
        if (i) jinja_write_word(&text, "\n");
        if (i ? blank || line.length : first) jinja_write(&text, indent.bytes, indent.length);
        jinja_write(&text, line.bytes, line.length);
    }
    *result = jinja_written(&text);
    return jinja_step(run, 1);
}

/* ---- numbers ---- */

static Status filter_length(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    int64_t length;
    TRY(jinja_length(run, a->values[0], &length));
    *result = jinja_int(length);
    return jinja_step(run, a->values[0].kind == VALUE_STRING ? length >> 6 : 0);
}

static Status no_number(const JinjaRun *run, JinjaValue value) {
    if (value.kind == VALUE_UNDEFINED) return jinja_error(run, "%.60s is undefined", value.bytes);
    return jinja_error(run, "a number from a %s is not supported", jinja_kind_name(value.kind));
}

/* Parses a decimal number in a string; false if it is not one. *odd: C and Python read it differently, such
 * as "0x1". */
static bool read_real(JinjaRun *run, JinjaValue string, double *real, bool *odd) {
    char *digits = jinja_take(&run->pool, (size_t)string.length + 1), *end;
    string = jinja_strip(string, jinja_none, STRIP_BOTH);
    memcpy(digits, string.bytes, (size_t)string.length);
    *real = strtod(digits, &end);
    bool whole = string.length && end == digits + string.length;
    *odd = strchr(digits, '_') || (whole && strpbrk(digits, "xXnN"));
    for (int64_t i = 0; i < string.length; i++) *odd |= (uint8_t)digits[i] >= 0x80;
    return whole;
}

/* int or float, of a number or a string. */
static Status filter_number(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const bool to_int = a->variant == VALUE_INT;
    JinjaValue value = a->values[0];
    int64_t whole;
    double real;
    bool odd = false, read;
    if (to_int && a->values[2].kind != VALUE_MISSING)
        return jinja_error(run, "a base of int is not supported");
    *result = a->values[1].kind != VALUE_MISSING ? a->values[1] : to_int ? jinja_int(0) : jinja_float(0);
    if (value.kind == VALUE_STRING)
        read = read_real(run, value, &real, &odd);
    else
        read = jinja_number(value, &real);
    if (value.kind == VALUE_UNDEFINED || odd) return no_number(run, value);
    if (!read) return OK;
    if (to_int && fabs(real) >= 9007199254740992.0) return no_number(run, value);
    *result = !to_int ? jinja_float(real) : jinja_int(jinja_whole(value, &whole) ? whole : (int64_t)real);
    return OK;
}

static Status filter_abs(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaValue zero = jinja_int(0);
    bool negative;
    TRY(jinja_binary(run, '+', a->values[0], zero, result));
    TRY(jinja_compared(run, '<', *result, zero, &negative));
    return negative ? jinja_binary(run, '-', zero, *result, result) : OK;
}

/* Rounds to nearest, ties to even, like printf. */
static Status filter_round(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    int64_t places = 0, whole;
    char digits[400];
    double real;
    bool common = a->values[2].kind == VALUE_MISSING || jinja_is(a->values[2], "common");
    if (a->values[1].kind != VALUE_MISSING && !jinja_whole(a->values[1], &places)) places = -1;
    if (!jinja_number(a->values[0], &real)) return no_number(run, a->values[0]);
    if (!common || places < 0 || places > 15)
        return jinja_error(run, "this rounding method is not supported");
    *result = a->values[0];
    if (jinja_whole(a->values[0], &whole)) {
        *result = jinja_int(whole);
    } else {
        snprintf(digits, sizeof digits, "%.*f", (int)places, real);
        *result = jinja_float(strtod(digits, NULL));
    }
    return OK;
}

/* ---- lists ---- */

static Status filter_default(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    bool gone =
        a->values[0].kind == VALUE_UNDEFINED || (jinja_true(a->values[2]) && !jinja_true(a->values[0]));
    (void)run;
    *result = !gone ? a->values[0] : a->values[1].kind == VALUE_MISSING ? jinja_word("") : a->values[1];
    return OK;
}

static Status filter_list(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaList items;
    TRY(jinja_iterate(run, a->values[0], &items));
    *result = jinja_list(&run->pool, VALUE_LIST);
    for (int64_t i = 0; i < items.count; i++) jinja_add(&run->pool, *result, items.items[i]);
    return OK;
}

static Status filter_first(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaList items;
    TRY(jinja_iterate(run, a->values[0], &items));
    if (a->values[0].kind == VALUE_GENERATOR) a->values[0].list->broken = items.count > 1;
    *result = items.count ? items.items[0] : jinja_undefined("the first item");
    return OK;
}

/* Requires an argument that reversed() accepts. */
static Status want_reversible(JinjaRun *run, JinjaValue value) {
    if (value.kind != VALUE_GENERATOR) return OK;
    return jinja_error(run, "a generator cannot be reversed");
}

static Status filter_last(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaList items;
    TRY(want_reversible(run, a->values[0]));
    TRY(jinja_iterate(run, a->values[0], &items));
    *result = items.count ? items.items[items.count - 1] : jinja_undefined("the last item");
    return OK;
}

static Status filter_join(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaText text = {.pool = &run->pool};
    JinjaValue between = jinja_word(""), part;
    JinjaList items;
    if (a->values[2].kind > VALUE_NONE) return jinja_error(run, "join by an attribute is not supported");
    if (a->values[1].kind != VALUE_MISSING) TRY(jinja_text_of(run, a->values[1], &between));
    TRY(jinja_iterate(run, a->values[0], &items));
    for (int64_t i = 0; i < items.count; i++) {
        TRY(jinja_step(run, 1));
        TRY(jinja_text_of(run, items.items[i], &part));
        if (i) jinja_write(&text, between.bytes, between.length);
        jinja_write(&text, part.bytes, part.length);
    }
    *result = jinja_written(&text);
    return OK;
}

/* ---- generators ---- */

static JinjaValue generator(JinjaRun *run, JinjaPending pending) {
    JinjaValue made = jinja_list(&run->pool, VALUE_GENERATOR);
    made.list->pending = jinja_take(&run->pool, sizeof *made.list->pending);
    *made.list->pending = pending;
    return made;
}

Status jinja_resolve(JinjaRun *run, JinjaList *list) {
    JinjaPending *pending = list->pending;
    JinjaList items;
    if (list->broken) return jinja_error(run, "continuing a generator is not supported");
    if (!pending) return OK;
    list->pending = NULL;
    if (!jinja_true(pending->source)) return OK; // none counts as an empty list
    TRY(jinja_iterate(run, pending->source, &items));
    if (!jinja_enter(&run->pool)) return jinja_step(run, 0);
    Status status =
        pending->call(run, items, &pending->arguments, (JinjaValue){.kind = VALUE_LIST, .list = list});
    jinja_leave(&run->pool);
    return status;
}

/* Looks up "a.b.0" in an item. */
static Status attribute_of(JinjaRun *run, JinjaValue item, JinjaValue path, JinjaValue *result) {
    *result = item;
    if (path.kind == VALUE_INT) return jinja_item(run, item, path, result);
    if (path.kind != VALUE_STRING)
        return jinja_error(run, "an attribute is a %s", jinja_kind_name(path.kind));
    JinjaValue parts = jinja_split(&run->pool, path, jinja_word("."), -1);
    for (int64_t i = 0; i < parts.list->count; i++) {
        JinjaValue part = parts.list->items[i];
        bool number = part.length > 0 && part.length < 10;
        for (int64_t k = 0; k < part.length; k++)
            number = number && part.bytes[k] >= '0' && part.bytes[k] <= '9';
        if (number) part = jinja_int(atoll(part.bytes));
        TRY(jinja_item(run, *result, part, result));
    }
    return OK;
}

/* Calls the filter or test named by the arguments from `first` on. */
static Status apply(JinjaRun *run, const JinjaBuiltin *table, JinjaValue item, const JinjaArguments *a,
                    int64_t first, JinjaValue *result) {
    JinjaValue name = a->values[first];
    const JinjaBuiltin *builtin = NULL;
    for (const JinjaBuiltin *row = table; row->name; row++)
        if (jinja_is(name, row->name)) builtin = row;
    if (!builtin) return jinja_error(run, "there is no such filter or test");
    JinjaArguments call = {.count = a->count - first};
    call.values = jinja_take(&run->pool, (size_t)call.count * sizeof *call.values);
    call.names = jinja_take(&run->pool, (size_t)call.count * sizeof *call.names);
    for (int64_t i = 1; i < call.count; i++) {
        call.values[i] = a->values[first + i];
        call.names[i] = a->names[first + i];
    }
    call.values[0] = item;
    return jinja_call(run, builtin, &call, result);
}

/* select, reject, selectattr and rejectattr; the last two test an attribute. */
enum { SELECT, REJECT, BY_ATTRIBUTE };

static Status run_select(JinjaRun *run, JinjaList items, const JinjaArguments *a, JinjaValue list) {
    const bool attribute = a->variant & BY_ATTRIBUTE, wanted = !(a->variant & REJECT);
    if (attribute && (!a->count || a->names[0])) return jinja_error(run, "a filter lacks its attribute");
    for (int64_t i = 0; i < items.count; i++) {
        JinjaValue subject = items.items[i], passes;
        TRY(jinja_step(run, 1));
        if (attribute) TRY(attribute_of(run, subject, a->values[0], &subject));
        passes = subject;
        if (a->count > attribute) TRY(apply(run, jinja_tests, subject, a, attribute, &passes));
        if (jinja_true(passes) == wanted) jinja_add(&run->pool, list, items.items[i]);
    }
    return OK;
}

/* An attribute of each item, or the result of a filter on each. */
static Status run_map(JinjaRun *run, JinjaList items, const JinjaArguments *a, JinjaValue list) {
    bool attribute = a->count && a->names[0] && strcmp(a->names[0], "attribute") == 0;
    bool given = attribute && a->count == 2 && a->names[1] && strcmp(a->names[1], "default") == 0;
    if (!a->count || (a->names[0] && !attribute) || (attribute && a->count > 1 + given))
        return jinja_error(run, "map with these arguments is not supported");
    for (int64_t i = 0; i < items.count; i++) {
        JinjaValue result;
        TRY(jinja_step(run, 1));
        if (attribute)
            TRY(attribute_of(run, items.items[i], a->values[0], &result));
        else
            TRY(apply(run, jinja_filters, items.items[i], a, 0, &result));
        if (given && result.kind == VALUE_UNDEFINED) result = a->values[1];
        jinja_add(&run->pool, list, result);
    }
    return OK;
}

/* The pairs of a dict; none for an undefined value. */
static Status run_items(JinjaRun *run, JinjaList items, const JinjaArguments *a, JinjaValue list) {
    (void)a;
    for (int64_t i = 0; i < items.count && !run->pool.over; i++) jinja_add(&run->pool, list, items.items[i]);
    return OK;
}

/* `pending.call` over the first argument, with the others. */
static Status over_first(JinjaRun *run, const JinjaArguments *a, JinjaPending pending, JinjaValue *result) {
    if (!a->count) return jinja_error(run, "a filter lacks its value");
    pending.source = a->values[0];
    pending.arguments = (JinjaArguments){a->values + 1, a->names + 1, a->count - 1, a->variant};
    *result = generator(run, pending);
    return OK;
}

static Status filter_select(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return over_first(run, a, (JinjaPending){.call = run_select}, result);
}

static Status filter_map(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return over_first(run, a, (JinjaPending){.call = run_map}, result);
}

static Status filter_items(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaValue value = a->values[0];
    if (value.kind != VALUE_DICT && value.kind != VALUE_UNDEFINED)
        return jinja_error(run, "a %s has no items", jinja_kind_name(value.kind));
    *result = generator(
        run, (JinjaPending){.call = run_items,
                            .source = value.kind == VALUE_DICT ? jinja_items(run, value.dict) : value});
    return OK;
}

static Status run_reverse(JinjaRun *run, JinjaList items, const JinjaArguments *a, JinjaValue list) {
    (void)a;
    for (int64_t i = items.count; i-- && !run->pool.over;) jinja_add(&run->pool, list, items.items[i]);
    return OK;
}

static Status filter_reverse(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    if (a->values[0].kind == VALUE_STRING)
        return jinja_slice(run, a->values[0], (JinjaValue[]){jinja_none, jinja_none, jinja_int(-1)}, result);
    TRY(want_reversible(run, a->values[0]));
    *result = generator(run, (JinjaPending){.call = run_reverse, .source = a->values[0]});
    return OK;
}

/* ---- sorting ---- */

/* The sort key: strings in lower case, unless the case matters. */
static Status sort_key(JinjaRun *run, JinjaValue value, bool cased, JinjaValue *key) {
    JinjaText text = {.pool = &run->pool};
    *key = value;
    if (cased || value.kind != VALUE_STRING) return OK;
    TRY(jinja_write_case(run, &text, value, CASE_LOWER));
    *key = jinja_written(&text);
    return OK;
}

/* A dict's pairs, sorted by key or by value. */
static Status filter_dictsort(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    bool cased = jinja_true(a->values[1]), reverse = jinja_true(a->values[3]), less;
    bool by_value = jinja_is(a->values[2], "value");
    JinjaValue keys = jinja_list(&run->pool, VALUE_LIST), key;
    if (a->values[0].kind != VALUE_DICT ||
        (a->values[2].kind != VALUE_MISSING && !by_value && !jinja_is(a->values[2], "key")))
        return jinja_error(run, "dictsort takes a dict, and \"key\" or \"value\"");
    JinjaValue pairs = jinja_items(run, a->values[0].dict);
    pairs.kind = VALUE_LIST;
    JinjaValue *items = pairs.list->items, *by;
    for (int64_t i = 0; i < pairs.list->count; i++) {
        TRY(sort_key(run, items[i].list->items[by_value], cased, &key));
        jinja_add(&run->pool, keys, key);
    }
    by = keys.list->items;
    for (int64_t i = 1; i < keys.list->count; i++) // a stable sort
        for (int64_t k = i; k > 0; k--) {
            TRY(jinja_step(run, 1));
            TRY(jinja_compared(run, '<', reverse ? by[k - 1] : by[k], reverse ? by[k] : by[k - 1], &less));
            if (!less) break;
            JinjaValue item = items[k], other = by[k];
            items[k] = items[k - 1], items[k - 1] = item;
            by[k] = by[k - 1], by[k - 1] = other;
        }
    *result = pairs;
    return OK;
}

/* ---- JSON ---- */

static Status filter_tojson(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaText text = {.pool = &run->pool};
    JinjaJson form = {.indent = -1, .item = ", ", .key = ": ", .ascii = jinja_true(a->values[1])};
    int64_t indent;
    bool none = a->values[2].kind == VALUE_MISSING || a->values[2].kind == VALUE_NONE;
    if (a->values[3].kind > VALUE_NONE || jinja_true(a->values[4]) || a->values[2].kind == VALUE_STRING)
        return jinja_error(run,
                           "tojson with separators or sort_keys, or an indent of text, is not supported");
    if (!none && (!jinja_whole(a->values[2], &indent) || indent > 64))
        return jinja_error(run, "tojson with this indent is not supported");
    if (!none) form.indent = indent < 0 ? 0 : (int)indent;
    if (!none) form.item = ",";
    if (!jinja_write_json(&text, a->values[0], &form, 0))
        return jinja_error(run, "this %s cannot be written as JSON", jinja_kind_name(a->values[0].kind));
    *result = jinja_written(&text);
    return OK;
}

const JinjaBuiltin jinja_filters[] = {
    {"string", "object", text_of, 0},
    {"safe", "value", filter_safe, 0},
    {"trim", "value,chars?", filter_trim, 0},
    {"upper", "s", filter_case, CASE_UPPER},
    {"lower", "s", filter_case, CASE_LOWER},
    {"capitalize", "s", filter_case, CASE_FIRST},
    {"title", "s", filter_title, 0},
    {"replace", "s,old,new,count?", filter_replace, 0},
    {"indent", "s,width?,first?,blank?", filter_indent, 0},
    {"length", "/obj", filter_length, 0},
    {"count", "/obj", filter_length, 0},
    {"int", "value,default?,base?", filter_number, VALUE_INT},
    {"float", "value,default?", filter_number, VALUE_FLOAT},
    {"abs", "/x", filter_abs, 0},
    {"round", "value,precision?,method?", filter_round, 0},
    {"default", "value,default_value?,boolean?", filter_default, 0},
    {"d", "value,default_value?,boolean?", filter_default, 0},
    {"list", "value", filter_list, 0},
    {"first", "seq", filter_first, 0},
    {"last", "seq", filter_last, 0},
    {"join", "value,d?,attribute?", filter_join, 0},
    {"items", "value", filter_items, 0},
    {"reverse", "value", filter_reverse, 0},
    {"select", NULL, filter_select, SELECT},
    {"reject", NULL, filter_select, REJECT},
    {"selectattr", NULL, filter_select, SELECT | BY_ATTRIBUTE},
    {"rejectattr", NULL, filter_select, REJECT | BY_ATTRIBUTE},
    {"map", NULL, filter_map, 0},
    {"dictsort", "value,case_sensitive?,by?,reverse?", filter_dictsort, 0},
    {"tojson", "x,ensure_ascii?,indent?,separators?,sort_keys?", filter_tojson, 0},
    {.name = "attr"},
    {.name = "batch"},
    {.name = "center"},
    {.name = "e"},
    {.name = "escape"},
    {.name = "filesizeformat"},
    {.name = "forceescape"},
    {.name = "format"},
    {.name = "groupby"},
    {.name = "max"},
    {.name = "min"},
    {.name = "pprint"},
    {.name = "random"},
    {.name = "slice"},
    {.name = "sort"},
    {.name = "striptags"},
    {.name = "sum"},
    {.name = "truncate"},
    {.name = "unique"},
    {.name = "urlencode"},
    {.name = "urlize"},
    {.name = "wordcount"},
    {.name = "wordwrap"},
    {.name = "xmlattr"},
    {.name = NULL},
};
