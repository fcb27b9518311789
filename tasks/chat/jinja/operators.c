/* Arithmetic and comparisons with Python's semantics. */
#include "tasks/chat/jinja/run.h"
#include "tasks/chat/jinja/text.h"

#include <math.h>
#include <string.h>

static Status no_operation(const JinjaRun *run, JinjaValue a, JinjaValue b) {
    const JinjaValue *undefined = a.kind == VALUE_UNDEFINED ? &a : b.kind == VALUE_UNDEFINED ? &b : NULL;
    if (undefined) return jinja_error(run, "%.60s is undefined", undefined->bytes);
    return jinja_error(run, "this operator does not take a %s and a %s", jinja_kind_name(a.kind),
                       jinja_kind_name(b.kind));
}

/* ---- arithmetic ---- */

static int64_t floor_divide(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* a ** b of integers, b >= 0; false if it overflows. */
static bool power(int64_t a, int64_t b, int64_t *result) {
    *result = 1;
    if (a == 0 || a == 1 || a == -1) {
        *result = b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a;
        return true;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(*result, a, result)) return false;
    return true;
}

static Status whole_numbers(const JinjaRun *run, JinjaSign sign, int64_t a, int64_t b, JinjaValue *value) {
    int64_t result = 0;
    bool fits = true, divides = sign == '%' || sign == SIGN2('/', '/');
    if (divides && b == 0) return jinja_error(run, "a division by zero");
    if (sign == '+') fits = !__builtin_add_overflow(a, b, &result);
    if (sign == '-') fits = !__builtin_sub_overflow(a, b, &result);
    if (sign == '*') fits = !__builtin_mul_overflow(a, b, &result);
    if (sign == SIGN2('*', '*')) fits = power(a, b, &result);
    if (divides && b == -1) fits = a > INT64_MIN;
    if (divides && fits) result = floor_divide(a, b);
    if (sign == '%' && fits) result = a - result * b;
    if (!fits) return jinja_error(run, "a number of this size is not supported");
    *value = jinja_int(result);
    return OK;
}

static Status real_numbers(const JinjaRun *run, JinjaSign sign, double a, double b, JinjaValue *value) {
    bool divides = sign == '%' || sign == '/' || sign == SIGN2('/', '/');
    if (divides && b == 0) return jinja_error(run, "a division by zero");
    double rest = sign == '%' || sign == SIGN2('/', '/') ? fmod(a, b) : 0;
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
    double result = sign == '+'               ? a + b
                    : sign == '-'             ? a - b
                    : sign == '*'             ? a * b
                    : sign == '/'             ? a / b
                    : sign == '%'             ? rest
                    : sign == SIGN2('/', '/') ? nearbyint((a - rest) / b)
                                              : pow(a, b);
    if (sign == SIGN2('*', '*') && !isfinite(result))
        return jinja_error(run, "a number of this size is not supported");
    *value = jinja_float(result);
    return OK;
}

static void write_escaped(JinjaText *text, JinjaValue string) {
    static const char *const escapes[] = {"&&amp;", "<&lt;", ">&gt;", "'&#39;", "\"&#34;"};
    for (int64_t i = 0; i < string.length; i++) {
        const char *as = NULL;
        for (int e = 0; e < 5; e++)
            if (escapes[e][0] == string.bytes[i]) as = escapes[e] + 1;
        if (as)
            jinja_write_word(text, as);
        else
            jinja_write(text, string.bytes + i, 1);
    }
}

/* If one string is marked by `safe`, HTML's characters of an unmarked string are escaped. */
static void join(JinjaText *text, JinjaValue a, JinjaValue b) {
    if (b.safe && !a.safe)
        write_escaped(text, a);
    else
        jinja_write(text, a.bytes, a.length);
    if (a.safe && !b.safe)
        write_escaped(text, b);
    else
        jinja_write(text, b.bytes, b.length);
}

/* Refuses at once if the result would not fit. */
static JinjaValue repeat(JinjaRun *run, JinjaValue a, int64_t times) {
    int64_t once = a.kind == VALUE_STRING ? a.length : a.list->count * (int64_t)sizeof *a.list->items;
    if (once && times > run->pool.bytes / once) run->pool.over = true;
    if (a.kind == VALUE_STRING) {
        JinjaText text = {.pool = &run->pool};
        for (; a.length && times > 0 && jinja_spend(&run->pool, 1); times--)
            jinja_write(&text, a.bytes, a.length);
        JinjaValue whole = jinja_written(&text);
        whole.safe = a.safe;
        return whole;
    }
    JinjaValue list = jinja_list(&run->pool, a.kind);
    for (; a.list->count && times > 0 && !run->pool.over; times--)
        for (int64_t i = 0; i < a.list->count; i++) jinja_add(&run->pool, list, a.list->items[i]);
    return list;
}

static Status add(JinjaRun *run, JinjaValue a, JinjaValue b, JinjaValue *value) {
    if (a.kind == VALUE_STRING) {
        JinjaText text = {.pool = &run->pool};
        join(&text, a, b);
        *value = jinja_written(&text);
        value->safe = a.safe || b.safe;
        return OK;
    }
    *value = jinja_list(&run->pool, a.kind);
    for (int64_t i = 0; i < a.list->count; i++) jinja_add(&run->pool, *value, a.list->items[i]);
    for (int64_t i = 0; i < b.list->count; i++) jinja_add(&run->pool, *value, b.list->items[i]);
    return OK;
}

static bool is_sequence(JinjaValue value) {
    return value.kind == VALUE_STRING || value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

Status jinja_binary(JinjaRun *run, JinjaSign sign, JinjaValue a, JinjaValue b, JinjaValue *value) {
    int64_t m, n;
    double x, y;
    bool whole = jinja_whole(a, &m) && jinja_whole(b, &n);
    if (whole && sign != '/' && (sign != SIGN2('*', '*') || n >= 0))
        return whole_numbers(run, sign, m, n, value);
    if (jinja_number(a, &x) && jinja_number(b, &y)) return real_numbers(run, sign, x, y, value);
    if (sign == '+' && a.kind == b.kind && is_sequence(a)) return add(run, a, b, value);
    bool left = is_sequence(a) && jinja_whole(b, &n), right = !left && is_sequence(b) && jinja_whole(a, &n);
    if (sign == '*' && (left || right)) {
        *value = repeat(run, left ? a : b, n);
        return OK;
    }
    if (sign == '%' && a.kind == VALUE_STRING) return jinja_error(run, "%% of a string is not supported");
    return no_operation(run, a, b);
}

/* ---- comparisons ---- */

static Status contains(JinjaRun *run, JinjaValue part, JinjaValue whole, bool *truth) {
    *truth = false;
    if (whole.kind == VALUE_STRING) {
        if (part.kind != VALUE_STRING) return no_operation(run, part, whole);
        *truth = jinja_search(&run->pool, whole, part, 0) >= 0;
        return OK;
    }
    if (whole.kind == VALUE_DICT) {
        *truth = jinja_find(&run->pool, whole.dict, part) != NULL;
        return jinja_hashable(part) ? OK : no_operation(run, part, whole);
    }
    JinjaList items;
    TRY(jinja_iterate(run, whole, &items));
    for (int64_t i = 0; !*truth && i < items.count; i++) {
        TRY(jinja_step(run, 1));
        *truth = jinja_equal(&run->pool, items.items[i], part);
    }
    return OK;
}

Status jinja_compared(JinjaRun *run, JinjaSign sign, JinjaValue a, JinjaValue b, bool *truth) {
    int order;
    bool same = sign == SIGN2('=', '='), inside = sign == SIGN_IN;
    if (same || sign == SIGN2('!', '=')) {
        *truth = jinja_equal(&run->pool, a, b) == same;
        return OK;
    }
    if (inside || sign == SIGN_NOT_IN) {
        TRY(contains(run, a, b, truth));
        *truth = *truth == inside;
        return OK;
    }
    if (!jinja_compare(&run->pool, a, b, &order)) return no_operation(run, a, b);
    *truth = sign == '<'               ? order < 0
             : sign == '>'             ? order > 0
             : sign == SIGN2('<', '=') ? order <= 0
                                       : order >= 0;
    return OK;
}
