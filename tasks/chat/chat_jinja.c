/* What a Jinja template prints, without running it. */
#include "base/memory.h"
#include "tasks/chat/chat_template.h"
#include "data/token.h"

#include <string.h>

static void put(Bytes *out, char byte) {
    bytes_put(out, &byte, 1);
}

static bool ends_with(const Bytes *out, const char *text) {
    int64_t length = (int64_t)strlen(text);
    return out->count >= length && memcmp(out->bytes + out->count - length, text, (size_t)length) == 0;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Begins a text; one that ends there goes on. */
static void open_text(Bytes *out) {
    if (ends_with(out, "'+"))
        out->count -= 2;
    else
        put(out, '\'');
}

/* The text at `at`, whose quote is the first letter; returns where it ends. */
static const char *copy_quoted(const char *at, Bytes *out) {
    char quote = *at++;
    open_text(out);
    for (; *at && *at != quote; at++) {
        char c = *at;
        if (c == '\\' && at[1]) {
            c = *++at;
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        put(out, c == '\'' ? '\1' : c);
    }
    put(out, '\'');
    return *at ? at + 1 : at;
}

/* ".content" is "['content']", as both are written. */
static const char *copy_member(const char *at, Bytes *out) {
    static const char *const members[] = {"content", "role"};
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(members[i]);
        if (strncmp(at + 1, members[i], length) != 0) continue;
        bytes_put(out, "['", 2);
        bytes_put(out, members[i], (int64_t)length);
        bytes_put(out, "']", 2);
        return at + 1 + length;
    }
    put(out, *at);
    return at + 1;
}

/* What stands inside a tag, up to its `close`, "%}" or "}}"; returns what is behind that. *strips: the tag
 * ends in a minus, and takes the spaces behind it. */
static const char *copy_code(const char *at, const char *close, Bytes *out, bool *strips) {
    *strips = false;
    while (*at && strncmp(at, close, 2) != 0) {
        *strips = *at == '-' && strncmp(at + 1, close, 2) == 0;
        if (*at == '\'' || *at == '"')
            at = copy_quoted(at, out);
        else if (*at == '.')
            at = copy_member(at, out);
        else if (is_space(*at) || *strips)
            at++;
        else
            put(out, *at++);
    }
    return *at ? at + 2 : at;
}

/* Where the text before a tag ends: a minus takes all spaces before it, a statement those of its own line
 * ("lstrip_blocks"). */
static const char *text_end(const char *source, const char *from, const char *tag) {
    const char *end = tag;
    if (!*tag) return end;
    while (tag[2] == '-' && end > from && is_space(end[-1])) end--;
    if (tag[2] == '-' || tag[1] == '{') return end;
    while (end > from && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return end == source || end[-1] == '\n' ? end : tag;
}

static const char *find_tag(const char *at) {
    while (*at && !(*at == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#'))) at++;
    return at;
}

static const char *copy_comment(const char *at, bool *strips) {
    const char *end = strstr(at, "#}");
    *strips = end && end[-1] == '-';
    return end ? end + 2 : at + strlen(at);
}

/* What is printed goes on from what was printed before, unless a statement stands between. */
static void join(Bytes *out, bool *joins) {
    if (*joins) put(out, '+');
    *joins = true;
}

char *chat_template_compact(const char *source) {
    Bytes out = {0};
    const char *at = source;
    bool joins = false, strips;
    for (;;) {
        const char *tag = find_tag(at), *end = text_end(source, at, tag);
        if (end > at) {
            join(&out, &joins);
            open_text(&out);
            for (; at < end; at++) put(&out, *at == '\'' ? '\1' : *at);
            put(&out, '\'');
        }
        if (!*tag) break;
        at = tag + 2 + (tag[2] == '-');
        if (tag[1] == '{') {
            join(&out, &joins);
            at = copy_code(at, "}}", &out, &strips);
        } else if (tag[1] == '%') {
            put(&out, '{');
            at = copy_code(at, "%}", &out, &strips);
            put(&out, '}');
            joins = false;
        } else {
            at = copy_comment(at, &strips);
        }
        if (!strips && tag[1] != '{' && *at == '\n') at++; // "trim_blocks"
        while (strips && is_space(*at)) at++;
    }
    put(&out, 0);
    return (char *)out.bytes;
}
