/* Translates regular expressions from Oniguruma's dialect (Ruby's syntax, Unicode) to PCRE2's. */
#include "base/memory.h"
#include "data/bpe.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Constructs with the same meaning are copied; \s becomes Unicode's White_Space, as in Oniguruma; constructs
 * with a different meaning are refused. */

/* Unicode's White_Space. PCRE2's own \s also has U+180E, which Unicode removed in 2013. */
static const char spaces[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"
                             "\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

enum { REPEATED_MOST = 256 };

typedef struct {
    const char *at;
    char *out;
    int64_t count, room;
    bool in_class;
} Translation;

static void put(Translation *t, const char *text, size_t length) {
    t->out = memory_grow(t->out, &t->room, t->count + (int64_t)length + 1, 1);
    memcpy(t->out + t->count, text, length);
    t->count += (int64_t)length;
    t->out[t->count] = 0;
}

static void put_text(Translation *t, const char *text) {
    put(t, text, strlen(text));
}

/* The rest of an escape. Letters with the same meaning in both are copied: properties, digits, controls, code
 * points. */
static Status take_escape(Translation *t) {
    const char *at = t->at;
    char letter = at[1];
    t->at += letter ? 2 : 1;
    if (letter == 's' || letter == 'S') {
        if (letter == 'S' && t->in_class) return fail(ERROR_FORMAT, "\\S in a class is not supported");
        if (!t->in_class) put_text(t, letter == 's' ? "[" : "[^");
        put_text(t, spaces);
        if (!t->in_class) put_text(t, "]");
        return OK;
    }
    if (letter == 'u' && isxdigit((uint8_t)at[2]) && isxdigit((uint8_t)at[3]) && isxdigit((uint8_t)at[4]) &&
        isxdigit((uint8_t)at[5])) {
        put_text(t, "\\x{");
        put(t, at + 2, 4);
        put_text(t, "}");
        t->at = at + 6;
        return OK;
    }
    bool braced = letter && strchr("pPx", letter) && at[2] == '{' && strchr(at, '}');
    bool alike = braced || ispunct((uint8_t)letter) || (letter && strchr("dDrntfae", letter));
    if (!alike) return fail(ERROR_FORMAT, "\\%c is not supported", letter ? letter : '?');
    if (braced) t->at = strchr(at, '}') + 1;
    put(t, at, (size_t)(t->at - at));
    return OK;
}

static Status take_class(Translation *t) {
    put(t, t->at++, 1);
    if (*t->at == '^') put(t, t->at++, 1);
    t->in_class = true;
    for (bool first = true; *t->at && (*t->at != ']' || first); first = false) {
        if (*t->at == ']') return fail(ERROR_FORMAT, "an empty class is not supported");
        if (*t->at == '[') return fail(ERROR_FORMAT, "a class in a class is not supported");
        if (strncmp(t->at, "&&", 2) == 0) return fail(ERROR_FORMAT, "&& in a class is not supported");
        if (*t->at == '\\')
            TRY(take_escape(t));
        else
            put(t, t->at++, 1);
    }
    t->in_class = false;
    if (*t->at) put(t, t->at++, 1);
    return OK;
}

/* Groups that both dialects have: (?: (?= (?! (?<= (?<! (?> (?i) (?i: */
static Status take_group(Translation *t) {
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i)", "(?i:", NULL};
    if (t->at[1] != '?') {
        put(t, t->at++, 1);
        return OK;
    }
    for (int i = 0; known[i]; i++) {
        size_t length = strlen(known[i]);
        if (strncmp(t->at, known[i], length) != 0) continue;
        put(t, t->at, length);
        t->at += length;
        return OK;
    }
    return fail(ERROR_FORMAT, "the group \"%.4s\" is not supported", t->at);
}

/* Whether a number in braces is over the limit: a failing repetition has tried that many times. */
static bool too_often(const char *at) {
    for (; isdigit((uint8_t)*at) || *at == ','; at += strcspn(at, ",}"), at += *at == ',')
        if (strtol(at, NULL, 10) > REPEATED_MOST) return true;
    return false;
}

static Status translate(Translation *t) {
    while (*t->at) {
        if (*t->at == '\\') {
            TRY(take_escape(t));
        } else if (*t->at == '[') {
            TRY(take_class(t));
        } else if (*t->at == '(') {
            TRY(take_group(t));
        } else if (strchr("^$", *t->at)) {
            return fail(ERROR_FORMAT, "%c is not supported", *t->at);
        } else if (*t->at == '{' && too_often(t->at + 1)) {
            return fail(ERROR_FORMAT, "over %d repetitions are not supported", REPEATED_MOST);
        } else if (strncmp(t->at, "}+", 2) == 0) { /* in Oniguruma this repeats the repetition */
            return fail(ERROR_FORMAT, "}+ is not supported");
        } else {
            put(t, t->at++, 1);
        }
    }
    return OK;
}

Status pattern_translate(const char *pattern, char **out) {
    Translation t = {.at = pattern};
    put(&t, "", 0);
    Status status = fail_at(translate(&t), "the pattern \"%.200s\"", pattern);
    if (status) memory_free(t.out);
    *out = status ? NULL : t.out;
    return status;
}
