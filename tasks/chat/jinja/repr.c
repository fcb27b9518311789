/* Converts values to text: Python's str() and repr(). */
#include "tasks/chat/jinja/text.h"
#include "tasks/chat/jinja/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void jinja_write(JinjaText *text, const void *bytes, int64_t count) {
    if (text->pool->over || !count) return;
    if (text->count + count > text->room) {
        int64_t room = 2 * (text->count + count) + 64;
        if (room > text->pool->bytes) {
            text->pool->over = true;
            return;
        }
        char *grown = jinja_take(text->pool, (size_t)room);
        if (text->count) memcpy(grown, text->bytes, (size_t)text->count);
        text->bytes = grown;
        text->room = room;
    }
    memcpy(text->bytes + text->count, bytes, (size_t)count);
    text->count += count;
}

void jinja_write_word(JinjaText *text, const char *word) {
    jinja_write(text, word, (int64_t)strlen(word));
}

JinjaValue jinja_written(const JinjaText *text) {
    return jinja_string(text->bytes ? text->bytes : "", text->count);
}

/* The shortest digits that read back as the same number; with an exponent below 1e-4 and from 1e16 on. */
static void write_float(JinjaText *text, double value) {
    char scientific[40], shown[64];
    int digits = 1;
    if (!isfinite(value)) {
        jinja_write_word(text, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    for (; digits <= 17; digits++) {
        snprintf(scientific, sizeof scientific, "%.*e", digits - 1, value);
        if (strtod(scientific, NULL) == value) break;
    }
    const char *mantissa = scientific + (*scientific == '-'), *mark = strchr(scientific, 'e');
    int exponent = atoi(mark + 1);
    if (signbit(value)) jinja_write_word(text, "-");
    if (exponent >= -4 && exponent < 16) {
        int places = digits - 1 - exponent;
        snprintf(shown, sizeof shown, "%.*f", places > 0 ? places : 1, fabs(value));
        jinja_write_word(text, shown);
        return;
    }
    jinja_write(text, mantissa, mark - mantissa);
    snprintf(shown, sizeof shown, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    jinja_write_word(text, shown);
}

static bool is_printable(int32_t code) {
    utf8proc_category_t category = utf8proc_category(code);
    return code == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

static void write_escaped(JinjaText *text, int32_t code) {
    char shown[16];
    const char *format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
    const char *word = code == '\n' ? "\\n" : code == '\r' ? "\\r" : code == '\t' ? "\\t" : shown;
    snprintf(shown, sizeof shown, format, (unsigned)code);
    jinja_write_word(text, word);
}

static void write_quoted(JinjaText *text, JinjaValue value) {
    bool single = memchr(value.bytes, '\'', (size_t)value.length);
    char quote = single && !memchr(value.bytes, '"', (size_t)value.length) ? '"' : '\'';
    jinja_write(text, &quote, 1);
    for (int64_t i = 0, size; i < value.length; i += size) {
        int32_t code = jinja_decode(value.bytes + i, value.length - i, &size);
        if (code == '\\' || code == quote) jinja_write_word(text, "\\");
        if (is_printable(code))
            jinja_write(text, value.bytes + i, size);
        else
            write_escaped(text, code);
    }
    jinja_write(text, &quote, 1);
}

static bool write_repr(JinjaText *text, JinjaValue value);

static bool write_list(JinjaText *text, JinjaValue value) {
    bool tuple = value.kind == VALUE_TUPLE, written = true;
    jinja_write_word(text, tuple ? "(" : "[");
    for (int64_t i = 0; written && i < value.list->count; i++) {
        if (i) jinja_write_word(text, ", ");
        written = write_repr(text, value.list->items[i]);
    }
    if (tuple && value.list->count == 1) jinja_write_word(text, ",");
    jinja_write_word(text, tuple ? ")" : "]");
    return written;
}

static bool write_dict(JinjaText *text, const JinjaDict *dict) {
    bool written = true;
    jinja_write_word(text, "{");
    for (int64_t i = 0; written && i < dict->count; i++) {
        if (i) jinja_write_word(text, ", ");
        written = write_repr(text, dict->keys[i]);
        jinja_write_word(text, ": ");
        written = written && write_repr(text, dict->values[i]);
    }
    jinja_write_word(text, "}");
    return written;
}

static bool write_repr(JinjaText *text, JinjaValue value) {
    if (value.kind == VALUE_STRING && !value.safe) {
        write_quoted(text, value);
        return true;
    }
    if (value.kind == VALUE_UNDEFINED) {
        jinja_write_word(text, "Undefined");
        return true;
    }
    if (value.kind != VALUE_LIST && value.kind != VALUE_TUPLE && value.kind != VALUE_DICT)
        return !value.safe && jinja_write_value(text, value);
    if (!jinja_enter(text->pool)) return true;
    bool written = value.kind == VALUE_DICT ? write_dict(text, value.dict) : write_list(text, value);
    jinja_leave(text->pool);
    return written;
}

bool jinja_write_value(JinjaText *text, JinjaValue value) {
    char digits[32];
    if (value.kind == VALUE_UNDEFINED) return true;
    if (value.kind == VALUE_STRING) {
        jinja_write(text, value.bytes, value.length);
    } else if (value.kind == VALUE_NONE) {
        jinja_write_word(text, "None");
    } else if (value.kind == VALUE_BOOL) {
        jinja_write_word(text, value.truth ? "True" : "False");
    } else if (value.kind == VALUE_INT) {
        snprintf(digits, sizeof digits, "%lld", (long long)value.integer);
        jinja_write_word(text, digits);
    } else if (value.kind == VALUE_FLOAT) {
        write_float(text, value.real);
    } else {
        return (value.kind == VALUE_LIST || value.kind == VALUE_TUPLE || value.kind == VALUE_DICT) &&
               write_repr(text, value);
    }
    return true;
}
