#include "data/tokenizer_state.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "base/hash.h"
#include "data/tokenizer_json.h"

#include <string.h>
#include <stdlib.h>
#include <utf8proc.h>

Tokenizer *tokenizer_new(void) {
    Tokenizer *tokenizer = memory_allocate(sizeof *tokenizer);
    tokenizer->end_of_text = -1;
    for (int i = 0; i < SPECIAL_COUNT; i++) tokenizer->special[i] = -1;
    return tokenizer;
}

void tokenizer_reserve(Tokenizer *tokenizer, int64_t vocab, int64_t bytes) {
    tokenizer->pool = memory_allocate((size_t)bytes);
    tokenizer->starts = memory_array((size_t)vocab + 1, sizeof *tokenizer->starts);
    tokenizer->spelled = memory_array((size_t)vocab, sizeof *tokenizer->spelled);
}

void special_take(Tokenizer *tokenizer, const char *name, int32_t id) {
    static const char *const names[SPECIAL_COUNT][2] = {
        {"[PAD]", "<pad>"}, {"[CLS]", "<s>"}, {"[SEP]", "</s>"}, {"[UNK]", "<unk>"}, {"[MASK]", "<mask>"}};
    for (int i = 0; i < SPECIAL_COUNT; i++)
        if (strcmp(name, names[i][0]) == 0 || strcmp(name, names[i][1]) == 0) tokenizer->special[i] = id;
}

void piece_cut(const uint8_t *text, int64_t from, int64_t *end) {
    if (*end - from <= PIECE_LIMIT) return;
    *end = from + PIECE_LIMIT;
    for (int i = 0; i < 3 && (text[*end] & 0xC0) == 0x80; i++) --*end;
}

/* ---- added tokens ---- */

Status added_check(int64_t length, const char *path) {
    if (length <= ADDED_MOST) return OK;
    return fail(ERROR_FORMAT, "%s: an added token of %lld bytes; at most %d are supported", path,
                (long long)length, ADDED_MOST);
}

Status added_read(const json_t *entry, int32_t id, const char *path, AddedToken *token) {
    static const char *const keys[] = {"id",         "content", "single_word", "lstrip", "rstrip",
                                       "normalized", "special", "__type",      NULL};
    const char *text = json_string_value(json_object_get(entry, "content"));
    TRY(json_check_keys(entry, keys, path, "an added token"));
    TRY(added_check((int64_t)strlen(text), path));
    *token = (AddedToken){.id = id};
    TRY(json_read_flag(entry, "special", false, path, &token->special));
    TRY(json_read_flag(entry, "single_word", false, path, &token->single_word));
    TRY(json_read_flag(entry, "lstrip", false, path, &token->lstrip));
    TRY(json_read_flag(entry, "rstrip", false, path, &token->rstrip));
    TRY(json_read_flag(entry, "normalized", !token->special, path, &token->normalized));
    token->text = memory_text(text);
    token->length = (int64_t)strlen(text);
    return OK;
}

uint64_t added_hash(const AddedToken *token, uint64_t hash) {
    uint8_t flags[] = {token->single_word, token->lstrip, token->rstrip, token->normalized};
    hash = hash_bytes(hash + (uint64_t)token->id, flags, sizeof flags);
    return hash_bytes(hash, token->text, (size_t)token->length);
}

void added_put(AddedTokens *added, AddedToken token) {
    added->tokens = memory_grow(added->tokens, &added->room, added->count + 1, sizeof *added->tokens);
    added->tokens[added->count++] = token;
}

static int compare(const void *a, const void *b) {
    const AddedToken *one = a, *other = b;
    int64_t length = one->length < other->length ? one->length : other->length;
    int order = memcmp(one->text, other->text, (size_t)length);
    return order ? order : (one->length > other->length) - (one->length < other->length);
}

void added_sort(AddedTokens *added) {
    if (added->count) qsort(added->tokens, (size_t)added->count, sizeof *added->tokens, compare);
    memset(added->first, 0, sizeof added->first);
    for (int64_t i = 0; i < added->count; i++) added->first[(uint8_t)added->tokens[i].text[0] + 1]++;
    added->lead = -1;
    for (int byte = 0; byte < 256; byte++) {
        if (added->first[byte + 1] == added->count) added->lead = byte;
        added->first[byte + 1] += added->first[byte];
    }
}

void added_free(AddedTokens *added) {
    for (int64_t i = 0; i < added->count; i++) memory_free(added->tokens[i].text);
    memory_free(added->tokens);
    *added = (AddedTokens){0};
}

/* ---- finding ---- */

/* Among tokens[low, high), which share `depth` bytes, the first whose next byte is at least `byte`. */
static int64_t lower_bound(const AddedToken *tokens, int64_t low, int64_t high, int64_t depth, int byte) {
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int next = tokens[middle].length > depth ? (uint8_t)tokens[middle].text[depth] : -1;
        if (next < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that begins text[0, left), or NULL. */
static const AddedToken *longest(const AddedTokens *added, const uint8_t *text, int64_t left) {
    int64_t low = added->first[text[0]], high = added->first[text[0] + 1];
    const AddedToken *best = NULL;
    for (int64_t depth = 1; low < high; depth++) {
        if (added->tokens[low].length == depth) best = &added->tokens[low];
        if (depth == left) break;
        low = lower_bound(added->tokens, low, high, depth, text[depth]);
        high = lower_bound(added->tokens, low, high, depth, text[depth] + 1);
    }
    return best;
}

/* The character at `at`, or -1; `bytes` is set to its length. */
static int32_t character_at(const uint8_t *text, int64_t at, int64_t length, int *bytes) {
    int32_t point = -1;
    *bytes = utf8_character(text + at, length - at);
    if (*bytes) utf8proc_iterate(text + at, *bytes, &point);
    return point;
}

static int32_t character_before(const uint8_t *text, int64_t at, int *bytes) {
    int64_t from = at - 1;
    while (from > 0 && at - from < 4 && (text[from] & 0xC0) == 0x80) from--;
    int32_t point = character_at(text, from, at, bytes);
    return *bytes == at - from ? point : -1;
}

/* Unicode's \w: letters, marks, digits and connectors (Technical Standard 18, annex C). */
static bool is_word(int32_t point) {
    bool lettered = (point >= 0x24B6 && point <= 0x24E9) || (point >= 0x1F130 && point <= 0x1F149) ||
                    (point >= 0x1F150 && point <= 0x1F169) || (point >= 0x1F170 && point <= 0x1F189);
    if (point < 0) return false;
    utf8proc_category_t c = utf8proc_category(point);
    return lettered || point == 0x200C || point == 0x200D ||
           (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC;
}

/* Unicode's White_Space. */
static bool is_space(int32_t point) {
    if (point < 0) return false;
    utf8proc_category_t category = utf8proc_category(point);
    return (point >= '\t' && point <= '\r') || point == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

static bool stands_alone(const uint8_t *text, int64_t length, int64_t begin, int64_t end) {
    int bytes;
    bool before = begin > 0 && is_word(character_before(text, begin, &bytes));
    bool behind = end < length && is_word(character_at(text, end, length, &bytes));
    return !before && !behind;
}

static AddedMatch take_spaces(AddedMatch match, const uint8_t *text, int64_t length, int64_t taken) {
    int bytes;
    if (match.token->lstrip)
        while (match.begin > taken && is_space(character_before(text, match.begin, &bytes)))
            match.begin -= bytes;
    if (match.token->rstrip)
        while (match.end < length && is_space(character_at(text, match.end, length, &bytes)))
            match.end += bytes;
    return match;
}

AddedMatch added_find(const AddedTokens *added, const uint8_t *text, int64_t length, int64_t from,
                      int64_t taken, bool special, const AddedToken **passed) {
    for (int64_t at = from; added->count && at < length; at++) {
        const uint8_t *next =
            added->lead < 0 ? text + at : memchr(text + at, added->lead, (size_t)(length - at));
        if (!next) break;
        at = next - text;
        if (added->first[text[at]] == added->first[text[at] + 1]) continue;
        const AddedToken *token = longest(added, text + at, length - at);
        if (!token) continue;
        AddedMatch match = {token, at, at + token->length, at + token->length};
        bool left_alone = token->special && !special;
        if (left_alone && passed && !*passed) *passed = token;
        if (!left_alone && (!token->single_word || stands_alone(text, length, match.begin, match.end)))
            return take_spaces(match, text, length, taken);
        at = match.next - 1;
    }
    return (AddedMatch){NULL, length, length, length};
}
