/* Parses the header's JSON directly into entries and notes. */
#include "base/checked.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "data/safetensors_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A hostile header costs only a small multiple of its size in memory and time. The parser is as strict as the
 * reference reader, which uses Rust's serde_json. jansson is not used, because it builds a value for
 * everything in a header before any of it can be refused: up to 45 bytes per byte, 4.5 GB for the 100 MB that
 * a header may have. It also accepts numbers, such as 1e0 for a size, that serde_json refuses. */

/* ---- types ---- */

static const struct {
    const char *name;
    int64_t size;
} types[SAFE_TYPE_COUNT] = {
    [SAFE_BOOL] = {"BOOL", 1},       [SAFE_U8] = {"U8", 1},           [SAFE_I8] = {"I8", 1},
    [SAFE_F8_E4M3] = {"F8_E4M3", 1}, [SAFE_F8_E5M2] = {"F8_E5M2", 1}, [SAFE_F8_E8M0] = {"F8_E8M0", 1},
    [SAFE_I16] = {"I16", 2},         [SAFE_U16] = {"U16", 2},         [SAFE_F16] = {"F16", 2},
    [SAFE_BF16] = {"BF16", 2},       [SAFE_I32] = {"I32", 4},         [SAFE_U32] = {"U32", 4},
    [SAFE_F32] = {"F32", 4},         [SAFE_I64] = {"I64", 8},         [SAFE_U64] = {"U64", 8},
    [SAFE_F64] = {"F64", 8},         [SAFE_C64] = {"C64", 8},
};

const char *safetensors_type_name(SafetensorsType type) {
    return types[type].name;
}

int64_t safetensors_type_size(SafetensorsType type) {
    return types[type].size;
}

enum { DEPTH_LIMIT = 100, NUMBER_LIMIT = 64 /* characters */ };

/* The position of the parser, and memory for strings: none is longer than its source with the quotes. */
typedef struct {
    const uint8_t *text, *at, *end;
    char *strings;
    const char *path;
} Cursor;

static Status malformed(const Cursor *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static Status malformed(const Cursor *c, const char *format, ...) {
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fail(ERROR_FORMAT, "%s: header, byte %lld: %s", c->path, (long long)(c->at - c->text), what);
}

/* The next character that is not blank; 0 at the end. */
static int peek(Cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
    return c->at < c->end ? *c->at : 0;
}

static bool accept(Cursor *c, char wanted) {
    bool found = peek(c) == wanted;
    c->at += found;
    return found;
}

static Status expect(Cursor *c, char wanted) {
    return accept(c, wanted) ? OK : malformed(c, "'%c' expected", wanted);
}

/* ---- strings ---- */

static Status parse_hex(Cursor *c, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, c->at++) {
        int digit = c->at < c->end ? *c->at : 0, lower = digit | 0x20;
        if (digit >= '0' && digit <= '9')
            *code = 16 * *code + (uint32_t)(digit - '0');
        else if (lower >= 'a' && lower <= 'f')
            *code = 16 * *code + (uint32_t)(lower - 'a' + 10);
        else
            return malformed(c, "\\u needs four hexadecimal digits");
    }
    return OK;
}

static void put_utf8(Cursor *c, uint32_t code) {
    int bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    *c->strings++ = (char)(first[bytes] | code >> 6 * (bytes - 1));
    for (int i = bytes - 2; i >= 0; i--) *c->strings++ = (char)(0x80 | (code >> 6 * i & 0x3F));
}

static Status parse_unicode(Cursor *c) {
    uint32_t code, low;
    TRY(parse_hex(c, &code));
    if (code >= 0xD800 && code < 0xDC00) {
        if (c->end - c->at < 2 || c->at[0] != '\\' || c->at[1] != 'u')
            return malformed(c, "half of a surrogate pair");
        c->at += 2;
        TRY(parse_hex(c, &low));
        if (low < 0xDC00 || low > 0xDFFF) return malformed(c, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
        return malformed(c, "half of a surrogate pair");
    }
    if (code == 0) return malformed(c, "a string with a zero in it");
    put_utf8(c, code);
    return OK;
}

static Status parse_escape(Cursor *c) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int escape = c->at < c->end ? *c->at++ : 0;
    if (escape == 'u') return parse_unicode(c);
    const char *known = escape ? strchr(from, escape) : NULL;
    if (!known) return malformed(c, "an unknown escape");
    *c->strings++ = to[known - from];
    return OK;
}

static Status parse_string(Cursor *c, const char **text) {
    TRY(expect(c, '"'));
    *text = c->strings;
    while (c->at < c->end && *c->at != '"') {
        if (*c->at < ' ') return malformed(c, "a control character in a string");
        if (*c->at == '\\') {
            c->at++;
            TRY(parse_escape(c));
            continue;
        }
        int bytes = utf8_character(c->at, c->end - c->at);
        if (!bytes) return malformed(c, "a string is not UTF-8");
        memcpy(c->strings, c->at, (size_t)bytes);
        c->strings += bytes;
        c->at += bytes;
    }
    *c->strings++ = 0;
    return expect(c, '"');
}

/* ---- values ---- */

/* The length of a number by JSON's grammar, or 0; *whole: digits only. */
static int64_t number_length(const Cursor *c, bool *whole) {
    const uint8_t *at = c->at, *end = c->end, *digits;
    *whole = at < end && *at != '-';
    if (at < end && *at == '-') at++;
    digits = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    if (at == digits || (*digits == '0' && at - digits > 1)) return 0;
    if (at < end && *at == '.') {
        *whole = false;
        for (digits = ++at; at < end && *at >= '0' && *at <= '9';) at++;
        if (at == digits) return 0;
    }
    if (at < end && (*at | 0x20) == 'e') {
        *whole = false;
        if (++at < end && (*at == '+' || *at == '-')) at++;
        for (digits = at; at < end && *at >= '0' && *at <= '9';) at++;
        if (at == digits) return 0;
    }
    return at - c->at;
}

/* Parses an integer of at least 0; returns false, without advancing, for anything else. */
static bool parse_count(Cursor *c, int64_t *value) {
    bool whole;
    peek(c);
    int64_t length = number_length(c, &whole);
    if (!length || !whole) return false;
    *value = 0;
    for (int64_t i = 0; i < length; i++)
        if (checked_multiply(*value, 10, value) || checked_add(*value, c->at[i] - '0', value)) return false;
    c->at += length;
    return true;
}

static Status skip_number(Cursor *c) {
    bool whole;
    char text[NUMBER_LIMIT + 1] = "";
    int64_t length = number_length(c, &whole);
    if (!length || length > NUMBER_LIMIT) return malformed(c, "no value, or a number that is too long");
    memcpy(text, c->at, (size_t)length);
    if (!isfinite(strtod(text, NULL))) return malformed(c, "a number that is too large");
    c->at += length;
    return OK;
}

static bool accept_word(Cursor *c, const char *word) {
    size_t length = strlen(word);
    bool found = (size_t)(c->end - c->at) >= length && memcmp(c->at, word, length) == 0;
    c->at += found ? length : 0;
    return found;
}

/* After an element: whether another follows, or the object or array ends. */
static Status after_element(Cursor *c, char last, bool *more) {
    *more = accept(c, ',');
    return *more ? OK : expect(c, last);
}

/* Skips an unknown value and discards its strings. */
static Status skip_value(Cursor *c, int depth) {
    const char *text;
    char *strings = c->strings;
    int first = peek(c);
    if (depth > DEPTH_LIMIT) return malformed(c, "nested to a depth of more than %d", DEPTH_LIMIT);
    if (first == '"') {
        TRY(parse_string(c, &text));
    } else if (first == '{' || first == '[') {
        char last = first == '{' ? '}' : ']';
        c->at++;
        bool more = !accept(c, last);
        while (more) {
            if (first == '{') {
                TRY(parse_string(c, &text));
                TRY(expect(c, ':'));
            }
            c->strings = strings;
            TRY(skip_value(c, depth + 1));
            TRY(after_element(c, last, &more));
        }
    } else if (!accept_word(c, "true") && !accept_word(c, "false") && !accept_word(c, "null")) {
        return skip_number(c);
    }
    c->strings = strings;
    return OK;
}

/* ---- one tensor ---- */

typedef struct {
    bool dtype, shape, offsets;
    int64_t begin, end;
} Seen;

static Status parse_type(Cursor *c, SafetensorsEntry *entry) {
    const char *text;
    char *strings = c->strings;
    if (peek(c) != '"') return fail(ERROR_FORMAT, "%s: tensor '%.80s' has no dtype", c->path, entry->name);
    TRY(parse_string(c, &text));
    c->strings = strings;
    for (int i = 0; i < SAFE_TYPE_COUNT; i++) {
        if (strcmp(text, safetensors_type_name((SafetensorsType)i)) != 0) continue;
        entry->type = (SafetensorsType)i;
        return OK;
    }
    return fail(ERROR_FORMAT, "%s: tensor '%.80s' has the unknown dtype '%.20s'", c->path, entry->name, text);
}

static Status parse_shape(Cursor *c, SafetensorsEntry *entry) {
    bool begun = accept(c, '['), more = begun && !accept(c, ']');
    entry->rank = 0;
    if (!begun) return fail(ERROR_FORMAT, "%s: tensor '%.80s' has no shape", c->path, entry->name);
    while (more) {
        if (entry->rank == SAFETENSORS_RANK_LIMIT)
            return fail(ERROR_FORMAT, "%s: tensor '%.80s' has more than %d axes", c->path, entry->name,
                        SAFETENSORS_RANK_LIMIT);
        if (!parse_count(c, &entry->d[entry->rank]))
            return fail(ERROR_FORMAT, "%s: axis %d of tensor '%.80s' is not a whole number of at least 0",
                        c->path, entry->rank, entry->name);
        entry->rank++;
        TRY(after_element(c, ']', &more));
    }
    return OK;
}

static Status parse_offsets(Cursor *c, const SafetensorsEntry *entry, Seen *seen) {
    if (accept(c, '[') && parse_count(c, &seen->begin) && accept(c, ',') && parse_count(c, &seen->end) &&
        accept(c, ']'))
        return OK;
    return fail(ERROR_FORMAT, "%s: tensor '%.80s' needs data_offsets of two integers of at least 0", c->path,
                entry->name);
}

static Status parse_field(Cursor *c, SafetensorsEntry *entry, Seen *seen) {
    const char *key;
    char *strings = c->strings;
    TRY(parse_string(c, &key));
    c->strings = strings;
    bool *flag = strcmp(key, "dtype") == 0          ? &seen->dtype
                 : strcmp(key, "shape") == 0        ? &seen->shape
                 : strcmp(key, "data_offsets") == 0 ? &seen->offsets
                                                    : NULL;
    TRY(expect(c, ':'));
    if (!flag) return skip_value(c, 0);
    if (*flag) return malformed(c, "a duplicate of '%s'", key);
    *flag = true;
    return flag == &seen->dtype   ? parse_type(c, entry)
           : flag == &seen->shape ? parse_shape(c, entry)
                                  : parse_offsets(c, entry, seen);
}

/* Checks that dtype, shape, offsets and available bytes agree. */
static Status check_entry(const SafetensorsPart *part, const Seen *seen, SafetensorsEntry *entry) {
    const char *lacking = !seen->dtype     ? "dtype"
                          : !seen->shape   ? "shape"
                          : !seen->offsets ? "data_offsets"
                                           : NULL;
    if (lacking) return fail(ERROR_FORMAT, "%s: tensor '%.80s' has no %s", part->path, entry->name, lacking);
    bool overflow = false;
    entry->count = 1;
    for (int i = 0; i < entry->rank; i++)
        overflow |= checked_multiply(entry->count, entry->d[i], &entry->count);
    if (overflow || checked_multiply(entry->count, safetensors_type_size(entry->type), &entry->bytes))
        return fail(ERROR_FORMAT, "%s: the shape of tensor '%.80s' is too large", part->path, entry->name);
    if (seen->end < seen->begin || seen->end > part->data_size)
        return fail(
            ERROR_FORMAT,
            "%s: tensor '%.80s' claims bytes %lld to %lld, but the file holds 0 to %lld; is it truncated?",
            part->path, entry->name, (long long)seen->begin, (long long)seen->end,
            (long long)part->data_size);
    if (seen->end - seen->begin != entry->bytes)
        return fail(ERROR_FORMAT, "%s: tensor '%.80s' has %lld bytes, but its dtype and shape need %lld",
                    part->path, entry->name, (long long)(seen->end - seen->begin), (long long)entry->bytes);
    entry->data = part->data + seen->begin;
    return OK;
}

static Status parse_entry(Cursor *c, const SafetensorsPart *part, SafetensorsEntry *entry) {
    Seen seen = {0};
    bool begun = accept(c, '{'), more = begun && !accept(c, '}');
    if (!begun)
        return fail(ERROR_FORMAT, "%s: the header's entry '%.80s' is not an object", c->path, entry->name);
    while (more) {
        TRY(parse_field(c, entry, &seen));
        TRY(after_element(c, '}', &more));
    }
    return check_entry(part, &seen, entry);
}

/* ---- all of it ---- */

static Status parse_notes(Cursor *c, Safetensors *file, SafetensorsPart *part) {
    bool begun = accept(c, '{'), more = begun && !accept(c, '}');
    if (!begun) return fail(ERROR_FORMAT, "%s: __metadata__ is not an object", c->path);
    while (more) {
        SafetensorsNote note;
        TRY(parse_string(c, &note.key));
        TRY(expect(c, ':'));
        if (peek(c) != '"')
            return fail(ERROR_FORMAT, "%s: __metadata__ '%.80s' is not a string", c->path, note.key);
        const uint8_t *digits = c->at + 1;
        TRY(parse_string(c, &note.value));
        /* Only a digest without escapes, which has the expected length. */
        if (strcmp(note.key, SAFETENSORS_DIGEST) == 0 && c->at - digits == SAFETENSORS_DIGITS + 1)
            part->header_digest = digits;
        file->notes = memory_grow(file->notes, &file->note_room, file->note_count + 1, sizeof *file->notes);
        file->notes[file->note_count++] = note;
        TRY(after_element(c, '}', &more));
    }
    return OK;
}

static Status parse_all(Cursor *c, Safetensors *file, SafetensorsPart *part) {
    bool more = accept(c, '{') && !accept(c, '}'), metadata = false;
    while (more) {
        SafetensorsEntry entry = {0};
        TRY(parse_string(c, &entry.name));
        TRY(expect(c, ':'));
        if (strcmp(entry.name, "__metadata__") != 0) {
            TRY(parse_entry(c, part, &entry));
            file->entries = memory_grow(file->entries, &file->room, file->count + 1, sizeof *file->entries);
            file->entries[file->count++] = entry;
        } else if (!metadata) {
            metadata = true;
            TRY(parse_notes(c, file, part));
        } else {
            return malformed(c, "a duplicate of '__metadata__'");
        }
        TRY(after_element(c, '}', &more));
    }
    peek(c);
    return c->at == c->end ? OK : malformed(c, "something follows the last '}'");
}

Status safetensors_parse_header(Safetensors *file, SafetensorsPart *part, const uint8_t *text,
                                int64_t length) {
    part->strings = memory_allocate((size_t)length);
    /* Even without entries the array must exist, because it is pointed to. */
    file->entries = memory_grow(file->entries, &file->room, file->count + 1, sizeof *file->entries);
    Cursor cursor = {text, text, text + length, part->strings, part->path};
    return parse_all(&cursor, file, part);
}
