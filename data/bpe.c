/* Byte-pair encoding: from a text to its pieces. */
#include "data/bpe.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "base/hash.h"
#include "data/piece_cache.h"
#include "base/tables.h"

#include <string.h>

void bpe_start(Tokenizer *tokenizer) {
    tokenizer->kind = TOKENIZER_BPE;
    tokenizer->bpe = memory_allocate(sizeof *tokenizer->bpe);
    tokenizer->bpe->unknown = -1;
    tokenizer->bpe->byte_level = true;
    memset(tokenizer->bpe->byte_ids, -1, sizeof tokenizer->bpe->byte_ids);
}

static uint64_t hash_chains(const Bpe *bpe, uint64_t hash) {
    uint8_t flags[] = {bpe->byte_level,    bpe->fuse_unknown, bpe->byte_fallback, bpe->whole != NULL,
                       bpe->spaces_marked, bpe->mark_always,  bpe->mark_first,    bpe->mark_splits};
    hash = hash_bytes(hash, flags, sizeof flags);
    hash = hash_bytes(hash, &bpe->unknown, sizeof bpe->unknown);
    for (int i = 0; i < bpe->normal_count; i++) {
        const NormalStep *step = &bpe->normal[i];
        hash = hash_bytes(hash + step->kind, step->from, step->from ? strlen(step->from) : 0);
        hash = hash_bytes(hash, step->to, step->to ? strlen(step->to) : 0);
    }
    for (int i = 0; i < bpe->step_count; i++) {
        hash = hash_bytes(hash, &bpe->steps[i].prefix, sizeof bpe->steps[i].prefix);
        if (bpe->steps[i].splitter) hash = splitter_hash(bpe->steps[i].splitter, hash);
    }
    return hash;
}

/* The hash covers everything that affects the ids of plain text. */
static uint64_t hash_all(const Tokenizer *t) {
    uint64_t hash = hash_bytes(0, t->pool, (size_t)t->starts[t->vocab]);
    hash = hash_bytes(hash, t->starts, (size_t)t->vocab * sizeof *t->starts);
    hash = hash_bytes(hash, &t->end_of_text, sizeof t->end_of_text);
    hash = hash_bytes(hash, t->bpe->merges, (size_t)t->bpe->merge_count * sizeof *t->bpe->merges);
    return hash_chains(t->bpe, hash);
}

Status bpe_finish(Tokenizer *t) {
    TRY(bpe_build_pairs(t->bpe, t->vocab));
    t->hash = hash_all(t);
    return OK;
}

void bpe_free(Bpe *bpe) {
    if (!bpe) return;
    for (int i = 0; i < bpe->step_count; i++) {
        splitter_free(bpe->steps[i].splitter);
        memory_free(bpe->steps[i].spaced.bytes);
    }
    for (int i = 0; i < bpe->normal_count; i++) {
        memory_free(bpe->normal[i].from);
        memory_free(bpe->normal[i].to);
    }
    for (int i = 0; i < 2; i++) memory_free(bpe->normalized[i].bytes);
    hmfree(bpe->characters);
    memory_free(bpe->marked.bytes);
    memory_free(bpe->points);
    memory_free(bpe->whole);
    memory_free(bpe->pairs.slots);
    memory_free(bpe->merges);
    memory_free(bpe->scratch);
    memory_free(bpe);
}

/* ---- pieces ---- */

/* Splits a piece by the steps of the chain from `step` on. */
static Status cut_further(Tokenizer *t, int step, const uint8_t *piece, int64_t length, TokenList *list) {
    Bpe *bpe = t->bpe;
    if (step >= bpe->step_count) {
        piece_encode(t, piece, length, bpe_merge, list);
        return OK;
    }
    SplitStep *s = &bpe->steps[step];
    if (s->prefix && piece[0] != ' ') {
        s->spaced.count = 0;
        bytes_put(&s->spaced, " ", 1);
        bytes_put(&s->spaced, piece, length);
        piece = s->spaced.bytes;
        length = s->spaced.count;
    }
    if (!s->splitter) return cut_further(t, step + 1, piece, length, list);
    for (int64_t from = 0, begin; from < length;) {
        TRY(splitter_next(s->splitter, piece, length, from, &begin, &from));
        if (begin < from) TRY(cut_further(t, step + 1, piece + begin, from - begin, list));
    }
    return OK;
}

/* The end of the invalid UTF-8 from `from` on. */
static int64_t invalid_end(const uint8_t *text, int64_t from, int64_t length) {
    int64_t end = from + 1;
    while (end < length && end - from < PIECE_LIMIT && !utf8_character(text + end, length - end)) end++;
    return end;
}

/* The end of a word of a text with marked spaces: a mark that follows another character. */
static int64_t word_end(const Bpe *bpe, const uint8_t *text, int64_t from, int64_t length) {
    enum { MARK = sizeof SPACE_MARK - 1 };
    bool splits = bpe->mark_splits, was_mark = true;
    for (int64_t at = from; at < length;) {
        bool mark = length - at >= MARK && memcmp(text + at, SPACE_MARK, MARK) == 0;
        if (mark && at > from && (splits || !was_mark)) return at;
        was_mark = mark;
        at += mark ? MARK : 1;
    }
    return length;
}

/* The next piece at the cursor, text[*begin, *end), by the first step of the chain. */
Status bpe_piece_next(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t *begin, int64_t *end) {
    Bpe *bpe = tokenizer->bpe;
    const uint8_t *text = cursor->text;
    int64_t from = *begin = cursor->offset;
    if (cursor->valid <= from) cursor->valid = utf8_valid_end(text, from, cursor->section_end);
    if (cursor->valid <= from) {
        *end = invalid_end(text, from, cursor->section_end);
        return OK;
    }
    int64_t seen = cursor->valid;
    if (seen - from > 2 * PIECE_LIMIT) { /* avoids validating all of a huge text for each piece */
        seen = from + 2 * PIECE_LIMIT;
        while ((text[seen] & 0xC0) == 0x80) seen--;
    }
    *end = seen;
    if (bpe->step_count == 0 && (bpe->separable || bpe->mark_splits))
        *end = word_end(bpe, text, from, seen);
    else if (bpe->step_count && bpe->steps[0].splitter)
        TRY(splitter_next(bpe->steps[0].splitter, text, seen, from, begin, end));
    piece_cut(text, *begin, end);
    return OK;
}

Status bpe_encode_next(Tokenizer *tokenizer, EncodeCursor *cursor, TokenList *list) {
    const uint8_t *text = cursor->text;
    int64_t begin, end;
    TRY(bpe_piece_next(tokenizer, cursor, &begin, &end));
    cursor->offset = end;
    if (begin == end) return OK;
    if (tokenizer->bpe->step_count > 1 && cursor->valid > begin) /* invalid UTF-8 is not split */
        return cut_further(tokenizer, 1, text + begin, end - begin, list);
    piece_encode(tokenizer, text + begin, end - begin, bpe_merge, list);
    return OK;
}

Status bpe_encode_stretch(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first,
                          TokenList *list) {
    EncodeCursor cursor = {.text = bpe_mark_spaces(tokenizer, text, length, first, &length)};
    cursor.length = cursor.section_end = length;
    while (cursor.offset < cursor.length) TRY(bpe_encode_next(tokenizer, &cursor, list));
    return OK;
}

bool bpe_by_stretches(const Tokenizer *tokenizer) {
    const Bpe *bpe = tokenizer->bpe;
    return bpe->normal_count || bpe->spaces_marked || (bpe->step_count && bpe->steps[0].prefix);
}
