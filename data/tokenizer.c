#include "data/tokenizer.h"

#include "base/memory.h"
#include "data/bpe.h"
#include "base/hash.h"
#include "data/wordpiece.h"

#include <jansson.h>
#include <string.h>

/* The functions of each kind. The byte tokenizer has no pieces. */
static const struct {
    const char *name;
    /* Appends the ids of the piece at the cursor, which moves past it. */
    Status (*next)(Tokenizer *tokenizer, EncodeCursor *cursor, TokenList *list);
    /* The same for a whole stretch of normalized text; and the function that normalizes a text. */
    Status (*stretch)(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool first, TokenList *list);
    const uint8_t *(*normalize)(Tokenizer *tokenizer, const uint8_t *text, int64_t length, bool whole,
                                int64_t *count);
    Status (*save)(const Tokenizer *tokenizer, const char *folder);
} kinds[] = {
    [TOKENIZER_BYTES] = {"bytes", NULL, NULL, NULL, tokenizer_save_bytes},
    [TOKENIZER_BPE] = {"bpe", bpe_encode_next, bpe_encode_stretch, bpe_normalize, tokenizer_save_bpe},
    [TOKENIZER_WORDPIECE] = {"wordpiece", wordpiece_encode_next, wordpiece_encode_stretch,
                             wordpiece_normalize, tokenizer_save_wordpiece},
};

/* ---- opening ---- */

/* Prepares the added tokens for the search: those that are searched in the normalized text must be
 * normalized, too. Tokens that plain text may contain are part of the hash. */
static Status settle_added(Tokenizer *t) {
    AddedTokens *normalized = &t->added[1];
    int64_t kept = 0;
    for (int64_t i = 0; i < normalized->count; i++) {
        AddedToken *token = &normalized->tokens[i];
        OWNED char *text = token->text;
        const uint8_t *bytes =
            kinds[t->kind].normalize(t, (const uint8_t *)text, token->length, true, &token->length);
        token->text = memory_text_slice((const char *)bytes, (size_t)token->length);
        TRY(added_check(token->length, "a normalized text"));
    }
    for (int64_t i = 0; i < normalized->count; i++) {
        if (normalized->tokens[i].length)
            normalized->tokens[kept++] = normalized->tokens[i];
        else
            memory_free(normalized->tokens[i].text);
    }
    normalized->count = kept;
    for (int set = 0; set < 2; set++) {
        added_sort(&t->added[set]);
        for (int64_t i = 0; i < t->added[set].count; i++)
            if (!t->added[set].tokens[i].special) t->hash = added_hash(&t->added[set].tokens[i], t->hash);
    }
    t->hash = hash_bytes(t->hash, &t->end_of_text, sizeof t->end_of_text);
    t->by_stretches = kept || (t->kind == TOKENIZER_BPE && bpe_by_stretches(t));
    return OK;
}

/* Returns the tokenizer, or frees it on an error. */
static Status finish(Status status, Tokenizer *filled, Tokenizer **tokenizer) {
    if (!status) status = settle_added(filled);
    *tokenizer = status ? NULL : filled;
    if (status) tokenizer_free(filled);
    return status;
}

Status tokenizer_open(const char *path, Tokenizer **tokenizer) {
    Tokenizer *t = tokenizer_new();
    if (path && strcmp(path, "bytes") != 0) return finish(tokenizer_load_folder(t, path), t, tokenizer);
    tokenizer_load_bytes(t);
    return finish(OK, t, tokenizer);
}

Status tokenizer_train(const PathList *texts, int64_t vocab, Tokenizer **tokenizer) {
    *tokenizer = NULL;
    if (vocab < TRAINED_LEAST || vocab > VOCAB_LIMIT)
        return fail(ERROR_USAGE, "a tokenizer of %lld tokens cannot be trained; %d to %d are supported",
                    (long long)vocab, TRAINED_LEAST, VOCAB_LIMIT);
    Tokenizer *t = tokenizer_new();
    return finish(bpe_train(t, texts, vocab), t, tokenizer);
}

void tokenizer_free(Tokenizer *tokenizer) {
    if (!tokenizer) return;
    bpe_free(tokenizer->bpe);
    wordpiece_free(tokenizer->wordpiece);
    memory_free(tokenizer->pool);
    memory_free(tokenizer->starts);
    memory_free(tokenizer->spelled);
    memory_free(tokenizer->cache);
    for (int set = 0; set < 2; set++) added_free(&tokenizer->added[set]);
    for (int i = 0; i < tokenizer->kept_count; i++) memory_free(tokenizer->kept[i].contents);
    memory_free(tokenizer->chat_template);
    json_decref(tokenizer->names);
    token_list_free(&tokenizer->before);
    token_list_free(&tokenizer->after);
    memory_free(tokenizer);
}

Status tokenizer_present(const char *folder, bool *present) {
    return tokenizer_load_present(folder, present);
}

Status tokenizer_save(const Tokenizer *tokenizer, const char *folder) {
    TRY(kinds[tokenizer->kind].save(tokenizer, folder));
    if (!tokenizer->chose_template) return OK;
    OWNED char *path = path_join(folder, "chat_template.jinja");
    return file_write(path, tokenizer->chat_template, (int64_t)strlen(tokenizer->chat_template));
}

int32_t tokenizer_vocab(const Tokenizer *tokenizer) {
    return tokenizer->vocab;
}
int32_t tokenizer_end_of_text(const Tokenizer *tokenizer) {
    return tokenizer->end_of_text;
}
int32_t tokenizer_special(const Tokenizer *tokenizer, SpecialToken token) {
    return tokenizer->special[token];
}
const TokenList *tokenizer_before(const Tokenizer *tokenizer) {
    return &tokenizer->before;
}
const TokenList *tokenizer_after(const Tokenizer *tokenizer) {
    return &tokenizer->after;
}
const char *tokenizer_chat_template(const Tokenizer *tokenizer) {
    return tokenizer->chat_template;
}
void tokenizer_choose_template(Tokenizer *tokenizer, const char *source) {
    memory_free(tokenizer->chat_template);
    tokenizer->chat_template = memory_text(source);
    tokenizer->chose_template = true;
}
const json_t *tokenizer_names(const Tokenizer *tokenizer) {
    return tokenizer->names;
}

bool tokenizer_adds(const Tokenizer *t, int32_t id) {
    bool added = false;
    for (int set = 0; set < 2; set++)
        for (int64_t i = 0; i < t->added[set].count; i++) added |= t->added[set].tokens[i].id == id;
    return added;
}
const char *tokenizer_passed(const Tokenizer *tokenizer) {
    return tokenizer->passed ? tokenizer->passed->text : NULL;
}
uint64_t tokenizer_hash(const Tokenizer *tokenizer) {
    return tokenizer->hash;
}
const char *tokenizer_name(const Tokenizer *tokenizer) {
    return kinds[tokenizer->kind].name;
}

/* ---- encoding ---- */

static void append_bytes(const uint8_t *text, int64_t length, TokenList *list) {
    token_list_reserve(list, length);
    for (int64_t i = 0; i < length; i++) list->ids[list->count++] = text[i];
}

/* Appends the ids of added tokens at the cursor, if there are any, and finds the next one. */
static void next_section(Tokenizer *tokenizer, EncodeCursor *cursor, TokenList *list) {
    do {
        if (cursor->added) {
            token_list_add(list, cursor->added - 1);
            cursor->offset = cursor->added_end;
        }
        AddedMatch match = added_find(&tokenizer->added[0], cursor->text, cursor->length, cursor->searched,
                                      cursor->offset, cursor->special, &tokenizer->passed);
        cursor->section_begin = cursor->offset;
        cursor->section_end = match.begin;
        cursor->added = match.token ? match.token->id + 1 : 0;
        cursor->added_end = match.end;
        cursor->searched = match.next;
    } while (cursor->added && cursor->section_end <= cursor->offset);
}

/* The end of the stretch at the cursor: the end of the section or, if that is more than 4 MiB away, a place
 * where a space follows a letter, where all patterns in use split. */
static int64_t stretch_end(const EncodeCursor *cursor) {
    const uint8_t *text = cursor->text;
    int64_t from = cursor->offset, end = cursor->section_end;
    if (end - from <= PIECE_LIMIT) return end;
    for (end = from + PIECE_LIMIT; end > from + 1; end--)
        if (text[end] == ' ' && text[end - 1] > ' ' && text[end - 1] < 0x7F) return end;
    end = cursor->section_end;
    piece_cut(text, from, &end);
    return end;
}

/* Encodes a stretch of text at once: normalizes it, then splits it at the added tokens of the normalized
 * text. */
static Status encode_stretch(Tokenizer *t, EncodeCursor *cursor, TokenList *list) {
    int64_t from = cursor->offset, end = stretch_end(cursor), count;
    bool whole = from == cursor->section_begin;
    const uint8_t *text =
        kinds[t->kind].normalize(t, (const uint8_t *)cursor->text + from, end - from, whole, &count);
    cursor->offset = end;
    AddedMatch match = {.token = NULL};
    for (int64_t at = 0; match.next < count || at < count; at = match.end) {
        match = added_find(&t->added[1], text, count, match.next, at, cursor->special, &t->passed);
        if (match.begin > at)
            TRY(kinds[t->kind].stretch(t, text + at, match.begin - at, from == 0 && at == 0, list));
        if (match.token) token_list_add(list, match.token->id);
    }
    return OK;
}

Status tokenizer_encode_step(Tokenizer *tokenizer, EncodeCursor *cursor, int64_t count, TokenList *list) {
    int64_t target = list->count + count;
    while (cursor->offset < cursor->length && list->count < target) {
        if (tokenizer->kind == TOKENIZER_BYTES) {
            int64_t left = cursor->length - cursor->offset, taken = left < count ? left : count;
            append_bytes((const uint8_t *)cursor->text + cursor->offset, taken, list);
            cursor->offset += taken;
        } else if (cursor->offset == cursor->section_end) {
            next_section(tokenizer, cursor, list);
        } else if (tokenizer->by_stretches) {
            TRY(encode_stretch(tokenizer, cursor, list));
        } else {
            TRY(kinds[tokenizer->kind].next(tokenizer, cursor, list));
        }
    }
    return OK;
}

Status tokenizer_encode(Tokenizer *tokenizer, const void *text, int64_t length, TokenList *list) {
    EncodeCursor cursor = {.text = text, .length = length};
    return tokenizer_encode_step(tokenizer, &cursor, INT64_MAX - list->count, list);
}

Status tokenizer_encode_special(Tokenizer *tokenizer, const void *text, int64_t length, TokenList *list) {
    EncodeCursor cursor = {.text = text, .length = length, .special = true};
    return tokenizer_encode_step(tokenizer, &cursor, INT64_MAX - list->count, list);
}

const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, int64_t *length) {
    *length = 0;
    if (id < 0 || id >= tokenizer->vocab) return NULL;
    *length = tokenizer->starts[id + 1] - tokenizer->starts[id];
    return tokenizer->pool + tokenizer->starts[id];
}
