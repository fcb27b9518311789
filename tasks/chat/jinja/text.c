#define _GNU_SOURCE
#include "tasks/chat/jinja/text.h"

#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* ---- characters ---- */

int32_t jinja_decode(const char *at, int64_t left, int64_t *size) {
    const uint8_t *bytes = (const uint8_t *)at;
    int length = *bytes < 0x80 ? 1 : utf8_character(bytes, left);
    *size = length ? length : 1;
    if (length <= 1) return *bytes;
    int32_t code = *bytes & (0x7f >> length);
    for (int i = 1; i < length; i++) code = code << 6 | (bytes[i] & 0x3f);
    return code;
}

void jinja_write_character(JinjaText *text, int32_t code) {
    utf8proc_uint8_t bytes[4];
    jinja_write(text, bytes, utf8proc_encode_char(code, bytes));
}

int64_t jinja_offset(JinjaValue string, int64_t character) {
    int64_t at = 0, size;
    for (; character > 0 && at < string.length; character--, at += size)
        jinja_decode(string.bytes + at, string.length - at, &size);
    return at;
}

int64_t jinja_characters(JinjaValue string) {
    int64_t count = 0;
    for (int64_t at = 0, size; at < string.length; at += size, count++)
        jinja_decode(string.bytes + at, string.length - at, &size);
    return count;
}

bool jinja_is_space(int32_t code) {
    return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
           code == 0x202f || code == 0x205f || code == 0x3000;
}

/* The start of the character that ends at `end`. */
static int64_t last_begins(const char *bytes, int64_t end) {
    for (int64_t size, at = end - 1; at >= 0 && at >= end - 4; at--) {
        jinja_decode(bytes + at, end - at, &size);
        if (at + size == end && size > 1) return at;
    }
    return end - 1;
}

static bool is_stripped(int32_t code, JinjaValue characters) {
    if (characters.kind != VALUE_STRING) return jinja_is_space(code);
    for (int64_t at = 0, size; at < characters.length; at += size)
        if (jinja_decode(characters.bytes + at, characters.length - at, &size) == code) return true;
    return false;
}

JinjaValue jinja_strip(JinjaValue string, JinjaValue characters, JinjaSides sides) {
    int64_t begin = 0, end = string.length, size;
    while (sides & STRIP_LEFT && begin < end &&
           is_stripped(jinja_decode(string.bytes + begin, end - begin, &size), characters))
        begin += size;
    while (sides & STRIP_RIGHT && begin < end) {
        int64_t last = last_begins(string.bytes, end);
        if (!is_stripped(jinja_decode(string.bytes + last, end - last, &size), characters)) break;
        end = last;
    }
    string.bytes += begin;
    string.length = end - begin;
    return string;
}

/* ---- parts ---- */

int64_t jinja_search(JinjaPool *pool, JinjaValue string, JinjaValue part, int64_t from) {
    jinja_spend(pool, (string.length - from) >> 8);
    const char *found =
        memmem(string.bytes + from, (size_t)(string.length - from), part.bytes, (size_t)part.length);
    return found ? found - string.bytes : -1;
}

int64_t jinja_search_last(JinjaPool *pool, JinjaValue string, JinjaValue part) {
    int64_t at = string.length - part.length;
    for (; at >= 0 && jinja_spend(pool, part.length >> 8); at--)
        if (memcmp(string.bytes + at, part.bytes, (size_t)part.length) == 0) return at;
    return -1;
}

static JinjaValue slice(JinjaValue string, int64_t begin, int64_t end) {
    return jinja_string(string.bytes + begin, end - begin);
}

/* An empty `old` matches before each character and at the end. */
JinjaValue jinja_replace(JinjaPool *pool, JinjaValue string, JinjaValue old, JinjaValue new, int64_t most) {
    JinjaText text = {.pool = pool};
    int64_t at = 0, found, size;
    if (!old.length) {
        for (; most && at < string.length && jinja_spend(pool, 1); at += size, most--) {
            jinja_decode(string.bytes + at, string.length - at, &size);
            jinja_write(&text, new.bytes, new.length);
            jinja_write(&text, string.bytes + at, size);
        }
        if (most) jinja_write(&text, new.bytes, new.length);
    } else {
        for (; most && (found = jinja_search(pool, string, old, at)) >= 0 && jinja_spend(pool, 1); most--) {
            jinja_write(&text, string.bytes + at, found - at);
            jinja_write(&text, new.bytes, new.length);
            at = found + old.length;
        }
    }
    jinja_write(&text, string.bytes + at, string.length - at);
    return jinja_written(&text);
}

static JinjaValue split_words(JinjaPool *pool, JinjaValue string, int64_t most) {
    JinjaValue list = jinja_list(pool, VALUE_LIST);
    for (JinjaValue rest = jinja_strip(string, jinja_none, STRIP_LEFT); rest.length && !pool->over; most--) {
        int64_t end = 0, size;
        while (end < rest.length && !jinja_is_space(jinja_decode(rest.bytes + end, rest.length - end, &size)))
            end += size;
        if (!most) end = rest.length;
        jinja_add(pool, list, slice(rest, 0, end));
        rest = jinja_strip(slice(rest, end, rest.length), jinja_none, STRIP_LEFT);
        if (!most) break;
    }
    return list;
}

JinjaValue jinja_split(JinjaPool *pool, JinjaValue string, JinjaValue separator, int64_t most) {
    if (separator.kind != VALUE_STRING) return split_words(pool, string, most);
    JinjaValue list = jinja_list(pool, VALUE_LIST);
    int64_t at = 0, found;
    for (; most && !pool->over && (found = jinja_search(pool, string, separator, at)) >= 0; most--) {
        jinja_add(pool, list, slice(string, at, found));
        at = found + separator.length;
    }
    jinja_add(pool, list, slice(string, at, string.length));
    return list;
}

JinjaValue jinja_split_last(JinjaPool *pool, JinjaValue string, JinjaValue separator, int64_t most) {
    JinjaValue reversed = jinja_list(pool, VALUE_LIST), list = jinja_list(pool, VALUE_LIST);
    int64_t found;
    for (; most && !pool->over && (found = jinja_search_last(pool, string, separator)) >= 0; most--) {
        jinja_add(pool, reversed, slice(string, found + separator.length, string.length));
        string.length = found;
    }
    jinja_add(pool, list, string);
    for (int64_t i = reversed.list->count; i--;) jinja_add(pool, list, reversed.list->items[i]);
    return list;
}

JinjaValue jinja_split_lines(JinjaPool *pool, JinjaValue string) {
    JinjaValue list = jinja_list(pool, VALUE_LIST);
    int64_t begin = 0, at = 0, size;
    while (at < string.length && !pool->over) {
        int32_t code = jinja_decode(string.bytes + at, string.length - at, &size);
        bool both = code == '\r' && at + 1 < string.length && string.bytes[at + 1] == '\n';
        bool ends = (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
                    code == 0x2028 || code == 0x2029;
        if (ends) jinja_add(pool, list, slice(string, begin, at));
        at += size + both;
        if (ends) begin = at;
    }
    if (begin < string.length) jinja_add(pool, list, slice(string, begin, string.length));
    return list;
}

/* ---- case ---- */

/* Letters whose upper or lower case is several letters or depends on context; and those with a separate title
 * case. */
static bool is_special(int32_t code) {
    return code == 0xdf || (code >= 0x130 && code <= 0x131) || code == 0x149 ||
           (code >= 0x1c4 && code <= 0x1cc) || (code >= 0x1f0 && code <= 0x1f3) || code == 0x345 ||
           code == 0x390 || code == 0x3a3 || code == 0x3b0 || code == 0x3c2 || code == 0x587 ||
           (code >= 0x10d0 && code <= 0x10ff) || (code >= 0x1c80 && code <= 0x1cbf) ||
           (code >= 0x1e96 && code <= 0x1e9e) || (code >= 0x1f50 && code <= 0x1fff) ||
           (code >= 0xfb00 && code <= 0xfb17);
}

bool jinja_change_case(JinjaText *text, JinjaValue string, JinjaCase to) {
    bool inside = false; // whether a word's first letter has been seen
    jinja_spend(text->pool, string.length >> 4);
    for (int64_t at = 0, size; at < string.length; at += size) {
        const int32_t code = jinja_decode(string.bytes + at, string.length - at, &size);
        if (code >= 0x80 && (size == 1 || is_special(code))) return false;
        bool upper = to == CASE_UPPER || (to != CASE_LOWER && !inside);
        jinja_write_character(text, upper ? utf8proc_toupper(code) : utf8proc_tolower(code));
        inside = to == CASE_FIRST || utf8proc_toupper(code) != code || utf8proc_tolower(code) != code;
    }
    return true;
}
