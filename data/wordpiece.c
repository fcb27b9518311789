#include "data/wordpiece.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "base/hash.h"
#include "data/decompose.h"
#include "data/piece_cache.h"
#include "base/tables.h"

#include <string.h>
#include <utf8proc.h>

/* A token's text to its id. */
typedef struct {
    char *key;
    int32_t value;
} Name;

struct WordPiece {
    WordPieceRule rule;
    Name *names;         // an stb_ds string table
    Bytes run;           // the text between two cuts, cleaned
    Bytes word;          // the word being split, as the vocabulary spells it
    Bytes normal;        // a normalized text
    bool normalizing;    // characters go to `normal`
    int64_t characters;  // characters of the word
    int32_t *decomposed; // (room) the run's code points
    int64_t room;
};

/* ---- characters ---- */

static bool is_space(int32_t point) {
    utf8proc_category_t category = utf8proc_category(point);
    return (point >= '\t' && point <= '\r') || point == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

/* Characters that cleaning removes: control and format characters, private use, and the replacement
 * character. */
static bool is_dropped(int32_t point) {
    if (point == '\t' || point == '\n' || point == '\r') return false;
    utf8proc_category_t category = utf8proc_category(point);
    return point == 0 || point == 0xFFFD || category == UTF8PROC_CATEGORY_CC ||
           category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

/* Unicode's punctuation, and ASCII's characters that are neither letters, digits nor spaces ("$" is a
 * currency symbol in Unicode). */
static bool is_punctuation(int32_t point) {
    if ((point >= 33 && point <= 47) || (point >= 58 && point <= 64) || (point >= 91 && point <= 96) ||
        (point >= 123 && point <= 126))
        return true;
    utf8proc_category_t category = utf8proc_category(point);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/* The blocks of Chinese characters, each of which is a word. */
static bool is_chinese(int32_t point) {
    static const int32_t blocks[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                        {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                        {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (point >= blocks[i][0] && point <= blocks[i][1]) return true;
    return false;
}

/* ---- words to ids ---- */

/* The longest token that begins the text at `from`, after overwriting the `prefix` bytes before it with the
 * prefix; -1 if there is none. `end` is set to its end. */
static int32_t longest(WordPiece *w, int64_t from, int64_t prefix, int64_t *end) {
    uint8_t *bytes = w->word.bytes;
    for (int64_t to = w->word.count; to > from; to--) {
        if (to < w->word.count && (bytes[to] & 0xC0) == 0x80) continue; /* inside a character */
        uint8_t after = bytes[to];
        bytes[to] = 0;
        ptrdiff_t found = shgeti(w->names, (char *)bytes + from - prefix);
        bytes[to] = after;
        *end = to;
        if (found >= 0) return w->names[found].value;
    }
    return -1;
}

/* Ends the word: appends its ids, or the unknown token. The word's bytes begin with space for a prefix. */
static void end_word(Tokenizer *tokenizer, TokenList *list) {
    WordPiece *w = tokenizer->wordpiece;
    enum { ROOM = sizeof WORDPIECE_PREFIX - 1 };
    if (w->characters == 0) return;
    int64_t before = list->count;
    bool known = w->characters <= WORD_CHARACTERS;
    for (int64_t from = ROOM, end; known && from < w->word.count; from = end) {
        int64_t prefix = from > ROOM ? ROOM : 0;
        uint8_t kept[ROOM];
        memcpy(kept, w->word.bytes + from - ROOM, ROOM);
        memcpy(w->word.bytes + from - ROOM, WORDPIECE_PREFIX, ROOM);
        int32_t id = longest(w, from, prefix, &end);
        memcpy(w->word.bytes + from - ROOM, kept, ROOM);
        known = id >= 0;
        if (known) token_list_add(list, id);
    }
    w->word.count = w->characters = 0;
    if (known) return;
    list->count = before;
    token_list_add(list, tokenizer->special[TOKEN_UNKNOWN]);
}

static void add_character(WordPiece *w, int32_t point) {
    uint8_t bytes[4];
    if (w->characters++ == 0) bytes_put(&w->word, WORDPIECE_PREFIX, 2);
    bytes_put(&w->word, bytes, utf8proc_encode_char(point, bytes));
}

static void put_normal(WordPiece *w, int32_t point) {
    uint8_t bytes[4];
    bytes_put(&w->normal, bytes, utf8proc_encode_char(point, bytes));
}

/* Lower-cases a character and splits the words around it. Only U+0130 becomes two characters
 * (SpecialCasing.txt). */
static void take_character(Tokenizer *tokenizer, int32_t point, TokenList *list) {
    WordPieceRule rule = tokenizer->wordpiece->rule;
    bool dotted = rule.lower && point == 0x130;
    if (rule.lower) point = dotted ? 'i' : utf8proc_tolower(point);
    if (tokenizer->wordpiece->normalizing) {
        put_normal(tokenizer->wordpiece, point);
        if (dotted) put_normal(tokenizer->wordpiece, 0x307);
        return;
    }
    bool alone = is_punctuation(point);
    if (alone || is_space(point)) end_word(tokenizer, list);
    if (is_space(point)) return;
    add_character(tokenizer->wordpiece, point);
    if (dotted) add_character(tokenizer->wordpiece, 0x307);
    if (alone) end_word(tokenizer, list);
}

/* The run's code points as they are. */
static int64_t code_points(WordPiece *w) {
    int64_t count = 0;
    w->decomposed = memory_grow(w->decomposed, &w->room, w->run.count, sizeof *w->decomposed);
    for (int64_t at = 0; at < w->run.count; count++)
        at += utf8proc_iterate(w->run.bytes + at, w->run.count - at, &w->decomposed[count]);
    return count;
}

/* Ends the run, which contains neither spaces nor Chinese characters. */
static void end_run(Tokenizer *tokenizer, TokenList *list) {
    WordPiece *w = tokenizer->wordpiece;
    bool strip = w->rule.strip_accents;
    int64_t count =
        strip ? unicode_decompose(w->run.bytes, w->run.count, &w->decomposed, &w->room) : code_points(w);
    w->run.count = 0;
    for (int64_t i = 0; i < count; i++) {
        bool accent = strip && utf8proc_category(w->decomposed[i]) == UTF8PROC_CATEGORY_MN;
        if (!accent) take_character(tokenizer, w->decomposed[i], list);
    }
    end_word(tokenizer, list);
}

static void wordpiece_encode(Tokenizer *tokenizer, const uint8_t *piece, int64_t length, TokenList *list) {
    WordPiece *w = tokenizer->wordpiece;
    w->run.count = w->word.count = w->characters = 0;
    for (int64_t at = 0; at < length;) {
        int bytes = utf8_character(piece + at, length - at);
        if (!bytes) {
            at++;
            continue;
        }
        int32_t point;
        utf8proc_iterate(piece + at, bytes, &point);
        bool alone = w->rule.chinese && is_chinese(point), space = is_space(point);
        if (!is_dropped(point)) {
            if (alone || space) end_run(tokenizer, list);
            if (w->normalizing && (alone || space)) put_normal(w, ' ');
            if (!space) bytes_put(&w->run, piece + at, bytes);
            if (alone) end_run(tokenizer, list);
            if (w->normalizing && alone) put_normal(w, ' ');
        }
        at += bytes;
    }
    end_run(tokenizer, list);
}

static bool splits(uint8_t byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

Status wordpiece_encode_next(Tokenizer *tokenizer, EncodeCursor *cursor, TokenList *list) {
    const uint8_t *text = cursor->text;
    int64_t from = cursor->offset, end = from;
    while (end < cursor->section_end && splits(text[end])) end++;
    while (end < cursor->section_end && !splits(text[end])) end++;
    piece_cut(text, from, &end);
    piece_encode(tokenizer, text + from, end - from, wordpiece_encode, list);
    cursor->offset = end;
    return OK;
}

Status wordpiece_encode_stretch(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                                TokenList *list) {
    EncodeCursor cursor = {.text = text, .length = length, .section_end = length};
    (void)first;
    while (cursor.offset < length) TRY(wordpiece_encode_next(tokenizer, &cursor, list));
    return OK;
}

const uint8_t *wordpiece_normalize(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool whole,
                                   int64_t *count) {
    WordPiece *w = tokenizer->wordpiece;
    (void)whole;
    w->normal.count = 0;
    bytes_reserve(&w->normal, 1);
    w->normalizing = true;
    wordpiece_encode(tokenizer, text, length, NULL);
    w->normalizing = false;
    *count = w->normal.count;
    return w->normal.bytes;
}

/* ---- building ---- */

static Status add_token(Tokenizer *tokenizer, const char *text, int32_t id, const char *path) {
    WordPiece *w = tokenizer->wordpiece;
    if (strlen(text) > TOKEN_TEXT_LIMIT)
        return fail(ERROR_FORMAT, "%s: token %d has %zu bytes; at most %d are allowed", path, id,
                    strlen(text), TOKEN_TEXT_LIMIT);
    ptrdiff_t found = shgeti(w->names, text);
    if (found >= 0)
        return fail(ERROR_FORMAT, "%s: tokens %d and %d are both \"%.40s\"", path, w->names[found].value, id,
                    text);
    shput(w->names, text, id);
    special_take(tokenizer, text, id);
    return OK;
}

static Status fill_pool(Tokenizer *t, const char *const *texts, const char *path) {
    int64_t total = 0;
    for (int32_t id = 0; id < t->vocab; id++) {
        TRY(add_token(t, texts[id], id, path));
        total += (int64_t)strlen(texts[id]);
    }
    tokenizer_reserve(t, t->vocab, total);
    for (int32_t id = 0; id < t->vocab; id++) {
        size_t length = strlen(texts[id]);
        memcpy(t->pool + t->starts[id], texts[id], length);
        t->starts[id + 1] = t->starts[id] + (int64_t)length;
        t->spelled[id] = true;
    }
    return OK;
}

Status wordpiece_build(Tokenizer *t, const char *const *texts, int64_t count, WordPieceRule rule,
                       const char *path) {
    if (count > VOCAB_LIMIT)
        return fail(ERROR_FORMAT, "%s: %lld tokens are too many (at most %d)", path, (long long)count,
                    VOCAB_LIMIT);
    t->kind = TOKENIZER_WORDPIECE;
    t->vocab = (int32_t)count;
    t->wordpiece = memory_allocate(sizeof *t->wordpiece);
    t->wordpiece->rule = rule;
    sh_new_strdup(t->wordpiece->names);
    TRY(fill_pool(t, texts, path));
    if (t->special[TOKEN_UNKNOWN] < 0)
        return fail(ERROR_FORMAT, "%s has no [UNK], the token for unknown words", path);
    t->end_of_text = t->special[TOKEN_END];
    uint64_t hash = hash_bytes(3, t->pool, (size_t)t->starts[t->vocab]);
    hash = hash_bytes(hash, t->starts, (size_t)t->vocab * sizeof *t->starts);
    uint8_t flags[] = {rule.lower, rule.strip_accents, rule.chinese};
    t->hash = hash_bytes(hash, flags, sizeof flags);
    return OK;
}

void wordpiece_free(WordPiece *wordpiece) {
    if (!wordpiece) return;
    shfree(wordpiece->names);
    memory_free(wordpiece->run.bytes);
    memory_free(wordpiece->word.bytes);
    memory_free(wordpiece->normal.bytes);
    memory_free(wordpiece->decomposed);
    memory_free(wordpiece);
}

void wordpiece_hide(Tokenizer *tokenizer, const char *text) {
    (void)shdel(tokenizer->wordpiece->names, text);
}

WordPieceRule wordpiece_rule(const Tokenizer *tokenizer) {
    return tokenizer->wordpiece->rule;
}
