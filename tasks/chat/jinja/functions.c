/* Functions and tests. */
#include "tasks/chat/jinja/run.h"

#include <string.h>

/* ---- functions ---- */

static Status call_raise(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    JinjaValue message;
    (void)result;
    TRY(jinja_text_of(run, a->values[0], &message));
    return jinja_error(run, "the template says: %.*s", (int)(message.length < 200 ? message.length : 200),
                       message.bytes);
}

/* Fills a dict from entries and named arguments. */
static Status fill(JinjaRun *run, const JinjaArguments *a, JinjaKind kind, JinjaValue *result) {
    *result = jinja_dict(&run->pool, kind);
    for (int64_t i = 0; i < a->count; i++) {
        const JinjaValue value = a->values[i];
        if (a->names[i]) {
            if (kind == VALUE_NAMESPACE && a->names[i][0] == '_')
                return jinja_error(run, "a namespace has no %.40s", a->names[i]);
            jinja_put(&run->pool, result->dict, jinja_word(a->names[i]), value);
        } else if (i > 0 || value.kind != VALUE_DICT) {
            return jinja_error(run, "a namespace or dict from a %s is not supported",
                               jinja_kind_name(value.kind));
        } else {
            for (int64_t k = 0; k < value.dict->count; k++)
                jinja_put(&run->pool, result->dict, value.dict->keys[k], value.dict->values[k]);
        }
    }
    return OK;
}

static Status call_namespace(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return fill(run, a, VALUE_NAMESPACE, result);
}

static Status call_dict(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return fill(run, a, VALUE_DICT, result);
}

enum { RANGE_MOST = 100000 };

static Status call_range(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    int64_t bounds[3] = {0, 0, 1}, count = 0;
    for (int64_t i = 0; i < a->count; i++)
        if (a->names[i] || i > 2 || !jinja_whole(a->values[i], &bounds[i]))
            return jinja_error(run, "range takes one to three whole numbers");
    if (a->count == 0) return jinja_error(run, "range takes one to three whole numbers");
    if (a->count == 1) bounds[1] = bounds[0], bounds[0] = 0;
    if (bounds[2] == 0) return jinja_error(run, "a range's step is zero");
    *result = jinja_list(&run->pool, VALUE_RANGE);
    for (int64_t at = bounds[0]; bounds[2] > 0 ? at < bounds[1] : at > bounds[1];) {
        if (++count > RANGE_MOST) return jinja_error(run, "a range is longer than %d", RANGE_MOST);
        jinja_add(&run->pool, *result, jinja_int(at));
        if (__builtin_add_overflow(at, bounds[2], &at)) break;
    }
    return OK;
}

static Status call_strftime(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    char format[128], text[512];
    JinjaValue given = a->values[0];
    if (given.kind != VALUE_STRING || given.length >= (int64_t)sizeof format - 1)
        return jinja_error(run, "this format of a date is not supported");
    memcpy(format, given.bytes, (size_t)given.length);
    strcpy(format + given.length, "|"); // a marker, because strftime returns 0 for an empty result
    for (const char *c = format; *c; c++) {
        if (*c != '%') continue;
        c += 1 + (c[1] == '-'); // "%-d" has no leading zero
        if (!strchr("aAbBcdDeFHIjlkmMpSTuUwWxXyY%GVhnRtr", *c))
            return jinja_error(run, "this format of a date is not supported");
    }
    size_t length = strftime(text, sizeof text, format, run->now);
    if (!length) return jinja_error(run, "this format of a date is not supported");
    JinjaText copy = {.pool = &run->pool};
    jinja_write(&copy, text, (int64_t)length - 1);
    *result = jinja_written(&copy);
    return OK;
}

const JinjaBuiltin jinja_functions[] = {
    {"raise_exception", "message", call_raise, 0},
    {"namespace", NULL, call_namespace, 0},
    {"dict", NULL, call_dict, 0},
    {"range", NULL, call_range, 0},
    {"strftime_now", "format", call_strftime, 0},
    {.name = "lipsum"},
    {.name = "cycler"},
    {.name = "joiner"},
    {.name = NULL},
};

/* ---- tests ---- */

#define TEST(NAME, TRUTH)                                                                                    \
    static Status NAME(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {                         \
        const JinjaValue value = a->values[0];                                                               \
        (void)run;                                                                                           \
        *result = jinja_bool(TRUTH);                                                                         \
        return OK;                                                                                           \
    }

static bool is_iterable(JinjaValue value) {
    return value.kind == VALUE_UNDEFINED || value.kind == VALUE_STRING || value.kind == VALUE_DICT ||
           value.kind == VALUE_LOOP || jinja_is_list(value);
}

static bool is_sequence(JinjaValue value) {
    return is_iterable(value) && value.kind != VALUE_VIEW && value.kind != VALUE_GENERATOR &&
           value.kind != VALUE_LOOP;
}

static bool is_number(JinjaValue value) {
    double real;
    return jinja_number(value, &real);
}

static bool is_callable(JinjaValue value) {
    return value.kind == VALUE_UNDEFINED || value.kind >= VALUE_LOOP; // an Undefined has __call__
}

TEST(test_kind, value.kind == (JinjaKind)a->variant)
TEST(test_defined, value.kind != VALUE_UNDEFINED)
TEST(test_true, value.kind == VALUE_BOOL && value.truth)
TEST(test_false, value.kind == VALUE_BOOL && !value.truth)
TEST(test_number, is_number(value))
TEST(test_iterable, is_iterable(value))
TEST(test_sequence, is_sequence(value))
TEST(test_callable, is_callable(value))

static Status remainder_is(JinjaRun *run, JinjaValue value, JinjaValue divisor, int64_t wanted,
                           JinjaValue *result) {
    TRY(jinja_binary(run, '%', value, divisor, result));
    *result = jinja_bool(jinja_equal(&run->pool, *result, jinja_int(wanted)));
    return OK;
}

static Status test_parity(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return remainder_is(run, a->values[0], jinja_int(2), a->variant, result);
}

static Status test_divisible(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    return remainder_is(run, a->values[0], a->values[1], 0, result);
}

/* str(value).islower() and isupper(), for ASCII. */
static Status test_case(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const char least = (char)a->variant, most = (char)(least + 25);
    JinjaValue value;
    bool cased = false, other = false;
    TRY(jinja_text_of(run, a->values[0], &value));
    for (int64_t i = 0; i < value.length; i++) {
        char c = value.bytes[i], folded = (char)(c | 0x20);
        if ((uint8_t)c >= 0x80)
            return jinja_error(run, "the case of letters beyond ASCII is not supported here");
        cased |= c >= least && c <= most;
        other |= folded >= 'a' && folded <= 'z' && (c < least || c > most);
    }
    *result = jinja_bool(cased && !other);
    return OK;
}

static Status test_compared(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    bool truth;
    TRY(jinja_compared(run, (JinjaSign)a->variant, a->values[0], a->values[1], &truth));
    *result = jinja_bool(truth);
    return OK;
}

static Status test_filter(JinjaRun *run, const JinjaArguments *a, JinjaValue *result) {
    const JinjaBuiltin *const table = jinja_filters;
    bool known = false;
    (void)run;
    for (int i = 0; table[i].name; i++) known |= jinja_is(a->values[0], table[i].name);
    *result = jinja_bool(known);
    return OK;
}

const JinjaBuiltin jinja_tests[] = {
    {"defined", "value", test_defined, 0},
    {"undefined", "value", test_kind, VALUE_UNDEFINED},
    {"none", "value", test_kind, VALUE_NONE},
    {"boolean", "value", test_kind, VALUE_BOOL},
    {"true", "value", test_true, 0},
    {"false", "value", test_false, 0},
    {"integer", "value", test_kind, VALUE_INT},
    {"float", "value", test_kind, VALUE_FLOAT},
    {"number", "value", test_number, 0},
    {"string", "value", test_kind, VALUE_STRING},
    {"mapping", "value", test_kind, VALUE_DICT},
    {"iterable", "value", test_iterable, 0},
    {"sequence", "value", test_sequence, 0},
    {"callable", "value", test_callable, 0},
    {"odd", "value", test_parity, 1},
    {"even", "value", test_parity, 0},
    {"divisibleby", "value,num", test_divisible, 0},
    {"lower", "value", test_case, 'a'},
    {"upper", "value", test_case, 'A'},
    {"equalto", "/a,/b", test_compared, SIGN2('=', '=')},
    {"eq", "/a,/b", test_compared, SIGN2('=', '=')},
    {"==", "/a,/b", test_compared, SIGN2('=', '=')},
    {"ne", "/a,/b", test_compared, SIGN2('!', '=')},
    {"!=", "/a,/b", test_compared, SIGN2('!', '=')},
    {"lt", "/a,/b", test_compared, '<'},
    {"lessthan", "/a,/b", test_compared, '<'},
    {"<", "/a,/b", test_compared, '<'},
    {"le", "/a,/b", test_compared, SIGN2('<', '=')},
    {"<=", "/a,/b", test_compared, SIGN2('<', '=')},
    {"gt", "/a,/b", test_compared, '>'},
    {"greaterthan", "/a,/b", test_compared, '>'},
    {">", "/a,/b", test_compared, '>'},
    {"ge", "/a,/b", test_compared, SIGN2('>', '=')},
    {">=", "/a,/b", test_compared, SIGN2('>', '=')},
    {"in", "value,seq", test_compared, SIGN_IN},
    {"filter", "value", test_filter, 0},
    {.name = "test"},
    {.name = "sameas"},
    {.name = "escaped"},
    {.name = NULL},
};
