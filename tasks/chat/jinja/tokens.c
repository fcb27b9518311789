/* Splits a template's source into tokens: jinja2's lexer. */
#include "base/utf8.h"
#include "tasks/chat/jinja/node.h"
#include "tasks/chat/jinja/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    JinjaTokens *tokens;
    JinjaValue source; // newlines are "\n", and the last one is removed
    int64_t at;
    int line;
    bool fresh; // the text before `at` ended in a newline
    char open[256];
    int opened; // number of open parentheses
} Lexer;

static JinjaToken *add(Lexer *l, JinjaTokenKind kind) {
    JinjaTokens *t = l->tokens;
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        JinjaToken *grown = jinja_take(t->pool, (size_t)t->room * sizeof *grown);
        if (t->count) memcpy(grown, t->tokens, (size_t)t->count * sizeof *grown);
        t->tokens = grown;
    }
    t->tokens[t->count] = (JinjaToken){.kind = kind, .line = l->line};
    return &t->tokens[t->count++];
}

static char here(const Lexer *l, int64_t ahead) {
    return l->at + ahead < l->source.length ? l->source.bytes[l->at + ahead] : 0;
}

static bool stands(const Lexer *l, const char *text) {
    size_t length = strlen(text);
    return l->source.length - l->at >= (int64_t)length && memcmp(l->source.bytes + l->at, text, length) == 0;
}

static void advance_to(Lexer *l, int64_t end) {
    for (; l->at < end; l->at++) l->line += l->source.bytes[l->at] == '\n';
}

static void skip_spaces(Lexer *l) {
    int64_t size;
    while (l->at < l->source.length &&
           jinja_is_space(jinja_decode(l->source.bytes + l->at, l->source.length - l->at, &size)))
        advance_to(l, l->at + size);
}

/* ---- inside of a tag ---- */

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static Status read_number(Lexer *l) {
    char digits[64], *end;
    int count = 0;
    bool real = false, attribute = l->at && l->source.bytes[l->at - 1] == '.';
    if (here(l, 0) == '0' && (is_letter(here(l, 1)) || is_digit(here(l, 1))))
        return fail(ERROR_FORMAT, "line %d: a number of this form is not supported", l->line);
    for (; count < 60; l->at++) {
        char c = here(l, 0), next = here(l, 1);
        bool sign = (next == '+' || next == '-') && is_digit(here(l, 2));
        if (c == '_' && is_digit(next)) continue;
        if (!attribute && !real && c == '.' && is_digit(next)) {
            real = true;
        } else if (!attribute && (c == 'e' || c == 'E') && (is_digit(next) || sign)) {
            real = true;
            digits[count++] = c;
            digits[count++] = next;
            l->at++;
            while (is_digit(here(l, 1)) && count < 60) digits[count++] = here(l, 1), l->at++;
            l->at++;
            break;
        } else if (!is_digit(c)) {
            break;
        }
        digits[count++] = c;
    }
    digits[count] = 0;
    errno = 0;
    JinjaValue value = real ? jinja_float(strtod(digits, &end)) : jinja_int(strtoll(digits, &end, 10));
    if (errno || count >= 60) return fail(ERROR_FORMAT, "line %d: a number is too large", l->line);
    add(l, TOKEN_LITERAL)->value = value;
    return OK;
}

/* "\x41" and the like: `at` is after the letter. */
static bool read_code(JinjaText *text, const char **at, const char *end, int digits) {
    int32_t code = 0;
    for (int i = 0; i < digits; i++, ++*at) {
        const char *all = "0123456789abcdef", *digit = *at < end ? strchr(all, **at | 0x20) : NULL;
        if (!digit || !**at || code >= 1 << 20) return false;
        code = code * 16 + (int32_t)(digit - all);
    }
    if ((code >= 0xd800 && code < 0xe000) || code > 0x10ffff) return false;
    jinja_write_character(text, code);
    return true;
}

/* Reads one escape sequence of a string, after the backslash. */
static bool read_escape(JinjaText *text, const char **at, const char *end) {
    static const char plain[] = "n\nt\tr\r\\\\''\"\"a\ab\bf\fv\v";
    char c = *(*at)++;
    for (const char *p = plain; *p; p += 2)
        if (*p == c) {
            jinja_write(text, p + 1, 1);
            return true;
        }
    if (c == '\n') return true;
    if (c == 'x') return read_code(text, at, end, 2);
    if (c == 'u') return read_code(text, at, end, 4);
    if (c == 'U') return read_code(text, at, end, 8);
    if (is_digit(c) || c == 'N' || (uint8_t)c >= 0x80) return false;
    jinja_write(text, (char[]){'\\', c}, 2);
    return true;
}

static Status read_string(Lexer *l) {
    const char *bytes = l->source.bytes, quote = here(l, 0);
    JinjaText text = {.pool = l->tokens->pool};
    int64_t end = l->at + 1;
    while (end < l->source.length && bytes[end] != quote) end += 1 + (bytes[end] == '\\');
    if (end >= l->source.length) return fail(ERROR_FORMAT, "line %d: a string has no end", l->line);
    for (const char *at = bytes + l->at + 1; at < bytes + end;) {
        bool escape = *at++ == '\\';
        if (!escape)
            jinja_write(&text, at - 1, 1);
        else if (!read_escape(&text, &at, bytes + end))
            return fail(ERROR_FORMAT, "line %d: an escape in a string is not supported", l->line);
    }
    add(l, TOKEN_LITERAL)->value = jinja_written(&text);
    advance_to(l, end + 1);
    return OK;
}

static void read_name(Lexer *l) {
    int64_t length = 0;
    while (is_letter(here(l, length)) || is_digit(here(l, length))) length++;
    char *name = jinja_take(l->tokens->pool, (size_t)length + 1);
    memcpy(name, l->source.bytes + l->at, (size_t)length);
    add(l, TOKEN_NAME)->name = name;
    l->at += length;
}

static Status read_sign(Lexer *l) {
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = here(l, 0);
    for (int i = 0; i < 6; i++)
        if (stands(l, pairs[i])) {
            add(l, TOKEN_SIGN)->sign = SIGN2(pairs[i][0], pairs[i][1]);
            l->at += 2;
            return OK;
        }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        return fail(ERROR_FORMAT, "line %d: unexpected character", l->line);
    static const char opening[] = "([{", closing[] = ")]}";
    const char *opens = strchr(opening, c), *closes = strchr(closing, c);
    if (opens && l->opened == (int)sizeof l->open)
        return fail(ERROR_FORMAT, "line %d: parentheses are too deep", l->line);
    if (opens) l->open[l->opened++] = closing[opens - opening];
    if (closes && (!l->opened || l->open[--l->opened] != c))
        return fail(ERROR_FORMAT, "line %d: \"%c\" closes nothing", l->line, c);
    add(l, TOKEN_SIGN)->sign = SIGN1(c);
    l->at++;
    return OK;
}

/* The end of a tag: `close`, which may be preceded by a minus or, in a block, by a plus. */
static bool read_end(Lexer *l, const char *close, JinjaTokenKind kind) {
    bool block = kind == TOKEN_BLOCK_END, sign = here(l, 0) == '-' || (block && here(l, 0) == '+');
    bool minus = here(l, 0) == '-';
    l->at += sign;
    if (l->opened || !stands(l, close)) {
        l->at -= sign;
        return false;
    }
    add(l, kind);
    l->at += 2;
    if (minus)
        skip_spaces(l);
    else if (block && !sign && here(l, 0) == '\n')
        advance_to(l, l->at + 1);
    l->fresh = l->source.bytes[l->at - 1] == '\n';
    return true;
}

static Status read_tag(Lexer *l, const char *close, JinjaTokenKind kind) {
    int line = l->line;
    for (;;) {
        if (read_end(l, close, kind)) return OK;
        int64_t before = l->at;
        skip_spaces(l);
        if (l->at > before) continue;
        if (l->at >= l->source.length) return fail(ERROR_FORMAT, "line %d: a tag has no end", line);
        if (is_digit(here(l, 0)))
            TRY(read_number(l));
        else if (here(l, 0) == '\'' || here(l, 0) == '"')
            TRY(read_string(l));
        else if (is_letter(here(l, 0)))
            read_name(l);
        else
            TRY(read_sign(l));
    }
}

/* ---- text ---- */

/* The position of the next "{{", "{%" or "{#", or the end. */
static int64_t find_tag(const Lexer *l) {
    for (int64_t at = l->at; at + 1 < l->source.length; at++)
        if (l->source.bytes[at] == '{' && strchr("{%#", l->source.bytes[at + 1]) && l->source.bytes[at + 1])
            return at;
    return l->source.length;
}

/* The text before a tag, whose sign, "-", "+" or another character, follows its two characters. */
static void add_text(Lexer *l, int64_t end, char sign, bool block) {
    JinjaValue text = jinja_string(l->source.bytes + l->at, end - l->at);
    if (sign == '-') {
        text = jinja_strip(text, jinja_none, STRIP_RIGHT);
    } else if (block && sign != '+') {
        int64_t line = text.length;
        while (line > 0 && text.bytes[line - 1] != '\n') line--;
        JinjaValue last = jinja_string(text.bytes + line, text.length - line);
        if ((line > 0 || l->fresh) && !jinja_strip(last, jinja_none, STRIP_RIGHT).length) text.length = line;
    }
    if (text.length) add(l, TOKEN_TEXT)->value = text;
    advance_to(l, end);
}

/* Skips the newline after the end of a comment or of raw text. */
static void skip_newline(Lexer *l, char sign) {
    if (sign == '-')
        skip_spaces(l);
    else if (sign != '+' && here(l, 0) == '\n')
        advance_to(l, l->at + 1);
    l->fresh = l->source.bytes[l->at - 1] == '\n';
}

static Status read_comment(Lexer *l) {
    int64_t end = l->at;
    while (end + 1 < l->source.length && (l->source.bytes[end] != '#' || l->source.bytes[end + 1] != '}'))
        end++;
    if (end + 1 >= l->source.length) return fail(ERROR_FORMAT, "line %d: a comment has no end", l->line);
    char sign = end > l->at ? l->source.bytes[end - 1] : 0;
    advance_to(l, end + 2);
    skip_newline(l, sign);
    return OK;
}

/* Whether this is the block "{% word %}"; `at` is after its sign. *end is set to its end, *sign to the sign
 * there. */
static bool is_block(const Lexer *l, int64_t at, const char *word, int64_t *end, char *sign) {
    Lexer ahead = *l;
    ahead.at = at;
    skip_spaces(&ahead);
    if (!stands(&ahead, word)) return false;
    ahead.at += (int64_t)strlen(word);
    skip_spaces(&ahead);
    *sign = here(&ahead, 0);
    if (*sign == '-' || (*sign == '+' && strcmp(word, "raw") != 0)) ahead.at++;
    *end = ahead.at + 2;
    return stands(&ahead, "%}");
}

/* Raw text, up to "{% endraw %}". */
static Status read_raw(Lexer *l, int64_t begin, char sign) {
    int64_t end;
    char close;
    advance_to(l, begin);
    if (sign == '-') skip_spaces(l);
    l->fresh = l->source.bytes[l->at - 1] == '\n';
    for (int64_t at = l->at; at + 1 < l->source.length; at++) {
        if (l->source.bytes[at] != '{' || l->source.bytes[at + 1] != '%') continue;
        char before = at + 2 < l->source.length ? l->source.bytes[at + 2] : 0;
        if (!is_block(l, at + 2 + (before == '-' || before == '+'), "endraw", &end, &close)) continue;
        add_text(l, at, before, true);
        advance_to(l, end);
        skip_newline(l, close);
        return OK;
    }
    return fail(ERROR_FORMAT, "line %d: raw text has no end", l->line);
}

static Status read_next(Lexer *l) {
    int64_t tag = find_tag(l), end;
    bool print = tag < l->source.length && l->source.bytes[tag + 1] == '{';
    bool comment = tag < l->source.length && l->source.bytes[tag + 1] == '#';
    char sign = tag + 2 < l->source.length ? l->source.bytes[tag + 2] : 0, close;
    if (tag == l->source.length) {
        add_text(l, tag, '+', false);
        return OK;
    }
    add_text(l, tag, sign, !print);
    int64_t inside = tag + 2 + (sign == '-' || sign == '+');
    if (!print && !comment && is_block(l, inside, "raw", &end, &close)) return read_raw(l, end, close);
    if (!comment) add(l, print ? TOKEN_PRINT : TOKEN_BLOCK);
    l->at = inside;
    if (comment) return read_comment(l);
    return print ? read_tag(l, "}}", TOKEN_PRINT_END) : read_tag(l, "%}", TOKEN_BLOCK_END);
}

Status jinja_tokenize(const char *source, int64_t length, JinjaTokens *tokens) {
    char *copy = jinja_take(tokens->pool, (size_t)length + 1);
    int64_t kept = 0;
    if (utf8_valid_end((const uint8_t *)source, 0, length) < length)
        return fail(ERROR_FORMAT, "the template is not UTF-8");
    for (int64_t i = 0; i < length; i++) {
        bool both = source[i] == '\r' && i + 1 < length && source[i + 1] == '\n';
        if (!both) copy[kept++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (kept && copy[kept - 1] == '\n') kept--;
    Lexer lexer = {.tokens = tokens, .source = jinja_string(copy, kept), .line = 1, .fresh = true};
    while (lexer.at < kept) {
        TRY(read_next(&lexer));
        if (tokens->pool->over) return fail(ERROR_FORMAT, "line %d: the template is too large", lexer.line);
    }
    add(&lexer, TOKEN_TEMPLATE_END);
    return OK;
}
