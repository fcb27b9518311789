/* Reads a BPE's vocabulary and merges from untrusted files. */
#include "base/utf8.h"
#include "data/bpe.h"
#include "base/tables.h"
#include "data/tokenizer_config.h"
#include "data/tokenizer_json.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* Maps a token's text, as spelled in the file, to its id. The keys are owned by the JSON tree. */
typedef struct {
    char *key;
    int32_t value;
} Name;

typedef struct {
    Tokenizer *tokenizer;
    Name *names;        // an stb_ds string table
    const char **texts; // (vocab) texts by id
    bool *literal;      // (vocab) an added token, whose text is spelled literally
    int64_t total;      // bytes of all texts
    const char *path;   // path of the file being read
} Vocabulary;

/* ---- vocabulary ---- */

static Status add_name(Vocabulary *v, const char *text, json_int_t id, int64_t room) {
    size_t length = strlen(text);
    if (length == 0 || length > TOKEN_TEXT_LIMIT)
        return fail(ERROR_FORMAT, "%s: token %lld has %zu bytes; 1 to %d are allowed", v->path, (long long)id,
                    length, TOKEN_TEXT_LIMIT);
    if (id < 0 || id >= room)
        return fail(ERROR_FORMAT, "%s: token \"%.40s\" has id %lld, but with %lld tokens ids are 0 to %lld",
                    v->path, text, (long long)id, (long long)room, (long long)room - 1);
    if (v->texts[id])
        return fail(ERROR_FORMAT, "%s: tokens \"%.40s\" and \"%.40s\" have the same id %lld", v->path,
                    v->texts[id], text, (long long)id);
    v->texts[id] = text;
    shput(v->names, (char *)(uintptr_t)text, (int32_t)id);
    v->total += (int64_t)length;
    return OK;
}

/* Tokens that tokenizer.json adds outside its model's vocabulary. */
static Status count_added(const Vocabulary *v, const json_t *vocab, const json_t *added, int64_t *count) {
    *count = 0;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i);
        const char *text = json_string_value(json_object_get(entry, "content"));
        const json_t *id = json_object_get(entry, "id");
        if (!text || !json_is_integer(id))
            return fail(ERROR_FORMAT, "%s: added token %zu lacks its content or id", v->path, i);
        const json_t *known = json_object_get(vocab, text);
        if (known && json_integer_value(known) != json_integer_value(id))
            return fail(ERROR_FORMAT, "%s: token \"%.40s\" has two ids", v->path, text);
        if (!known) ++*count;
    }
    return OK;
}

/* The byte of a token such as <0x0A>, or -1. */
static int spelled_byte(const char *text) {
    unsigned byte;
    char again[8];
    if (strlen(text) != 6 || sscanf(text, "<0x%2X>", &byte) != 1) return -1;
    snprintf(again, sizeof again, "<0x%02X>", byte);
    return strcmp(again, text) == 0 ? (int)byte : -1;
}

/* The text of a token in a BPE of characters, as its tokenizer decodes it. */
static int64_t read_characters(const Decoding *decoding, const char *text, uint8_t *bytes) {
    int64_t count = 0;
    int byte = decoding->bytes ? spelled_byte(text) : -1;
    if (byte >= 0) bytes[count++] = (uint8_t)byte;
    for (const char *at = byte < 0 ? text : ""; *at;) {
        bool mark = decoding->marks && strncmp(at, SPACE_MARK, sizeof SPACE_MARK - 1) == 0;
        bytes[count++] = mark ? ' ' : (uint8_t)*at;
        at += mark ? sizeof SPACE_MARK - 1 : 1;
    }
    return count;
}

/* Fills the tokens' bytes: decoded from the alphabet, or literal if the token is added or a letter is not in
 * the alphabet. */
static void fill_pool(Vocabulary *v) {
    Tokenizer *t = v->tokenizer;
    tokenizer_reserve(t, t->vocab, v->total);
    int64_t used = 0;
    for (int32_t id = 0; id < t->vocab; id++) {
        const Decoding none = {0}, *decoding = v->literal[id] ? &none : &t->decoding;
        bool letters = t->bpe->byte_level && !v->literal[id];
        int64_t bytes = letters ? alphabet_read(v->texts[id], t->pool + used) : -1;
        t->spelled[id] = bytes < 0;
        if (bytes < 0) bytes = read_characters(decoding, v->texts[id], t->pool + used);
        used += bytes;
        t->starts[id + 1] = used;
    }
}

/* Finds the tokens that pieces initially consist of: those of bytes or of characters. */
static Status find_symbols(Vocabulary *v, json_t *vocab) {
    Bpe *bpe = v->tokenizer->bpe;
    for (int byte = 0; byte < 256; byte++) {
        char letter[8] = {0};
        if (bpe->byte_level)
            alphabet_write((uint8_t)byte, letter);
        else
            snprintf(letter, sizeof letter, "<0x%02X>", (unsigned)byte);
        const json_t *id = json_object_get(vocab, letter);
        bpe->byte_ids[byte] = id ? (int32_t)json_integer_value(id) : -1;
        bool wanted = bpe->byte_level ? byte >= ' ' && byte < 0x7F : bpe->byte_fallback;
        if (!id && wanted)
            return fail(ERROR_FORMAT, "%s: no token for the byte 0x%02x (\"%s\")", v->path, (unsigned)byte,
                        letter);
    }
    const char *text;
    json_t *id;
    if (!bpe->byte_level) json_object_foreach(vocab, text, id) {
            int32_t point;
            int64_t length = (int64_t)strlen(text);
            if (utf8_character((const uint8_t *)text, length) != length) continue;
            utf8proc_iterate((const uint8_t *)text, length, &point);
            hmput(bpe->characters, point, (int32_t)json_integer_value(id));
        }
    bpe->separable = hmgeti(bpe->characters, 0x2581) >= 0;
    return OK;
}

static Status load_added(Vocabulary *v, const json_t *vocab, const json_t *added, int64_t count) {
    Tokenizer *t = v->tokenizer;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i);
        const char *text = json_string_value(json_object_get(entry, "content"));
        json_int_t id = json_integer_value(json_object_get(entry, "id"));
        AddedToken token;
        bool known = json_object_get(vocab, text) != NULL;
        if (!known && shgeti(v->names, text) >= 0)
            return fail(ERROR_FORMAT, "%s: token \"%.40s\" is added twice", v->path, text);
        if (!known) TRY(add_name(v, text, id, count));
        v->literal[id] = !known;
        TRY(added_read(entry, (int32_t)id, v->path, &token));
        added_put(&t->added[token.normalized], token);
        if (token.special) special_take(t, text, (int32_t)id);
    }
    return OK;
}

static Status load_vocabulary(Vocabulary *v, json_t *vocab, const json_t *added) {
    Tokenizer *t = v->tokenizer;
    int64_t extra;
    if (!json_is_object(vocab)) return fail(ERROR_FORMAT, "%s: the vocabulary is not a JSON object", v->path);
    TRY(count_added(v, vocab, added, &extra));
    int64_t count = (int64_t)json_object_size(vocab) + extra;
    if (count > VOCAB_LIMIT)
        return fail(ERROR_FORMAT, "%s: %lld tokens are too many (at most %d)", v->path, (long long)count,
                    VOCAB_LIMIT);
    v->texts = memory_array((size_t)count, sizeof *v->texts);
    v->literal = memory_array((size_t)count, sizeof *v->literal);
    const char *text;
    json_t *id;
    json_object_foreach(vocab, text, id) {
        if (!json_is_integer(id))
            return fail(ERROR_FORMAT, "%s: the id of token \"%.40s\" is not an integer", v->path, text);
        TRY(add_name(v, text, json_integer_value(id), count));
    }
    TRY(load_added(v, vocab, added, count));
    t->vocab = (int32_t)count; /* `count` ids below `count`, each used once: none is missing */
    ptrdiff_t end = shgeti(v->names, "<|endoftext|>");
    t->end_of_text = end < 0 ? t->special[TOKEN_END] : v->names[end].value;
    TRY(find_symbols(v, vocab));
    fill_pool(v);
    return OK;
}

/* ---- merges ---- */

static Status add_merge(Vocabulary *v, const char *left, const char *right) {
    Bpe *bpe = v->tokenizer->bpe;
    long long rank = bpe->merge_count;
    char product[2 * TOKEN_TEXT_LIMIT + 1];
    if (strlen(left) > TOKEN_TEXT_LIMIT || strlen(right) > TOKEN_TEXT_LIMIT)
        return fail(ERROR_FORMAT, "%s: merge %lld is longer than any token may be", v->path, rank);
    snprintf(product, sizeof product, "%s%s", left, right);
    const char *parts[3] = {left, right, product};
    int32_t ids[3];
    for (int i = 0; i < 3; i++) {
        ptrdiff_t found = shgeti(v->names, parts[i]);
        if (found < 0)
            return fail(ERROR_FORMAT, "%s: merge %lld (\"%.40s %.40s\"): \"%.80s\" is not in the vocabulary",
                        v->path, rank, left, right, parts[i]);
        ids[i] = v->names[found].value;
    }
    enum { MARK = sizeof SPACE_MARK - 1 };
    size_t size = strlen(left);
    bool ends_marked = size >= MARK && strcmp(left + size - MARK, SPACE_MARK) == 0;
    if (!ends_marked && strncmp(right, SPACE_MARK, MARK) == 0) bpe->separable = false;
    if (bpe->byte_level && v->tokenizer->spelled[ids[2]])
        return fail(ERROR_FORMAT,
                    "%s: merge %lld makes \"%.80s\", which is not spelled in GPT-2's byte alphabet", v->path,
                    rank, product);
    bpe->merges[bpe->merge_count++] = (Merge){ids[0], ids[1], ids[2]};
    return OK;
}

static Status reserve_merges(Vocabulary *v, int64_t count) {
    if (count >= INT32_MAX) return fail(ERROR_FORMAT, "%s: too many merges", v->path);
    v->tokenizer->bpe->merges = memory_array((size_t)count, sizeof(Merge));
    return OK;
}

/* Splits "left right" in place. */
static Status add_merge_line(Vocabulary *v, char *line, size_t length) {
    char *space = strchr(line, ' ');
    if (strlen(line) != length || !space || space == line || !space[1] || strchr(space + 1, ' '))
        return fail(ERROR_FORMAT, "%s: merge %lld is not two tokens separated by a space: \"%.80s\"", v->path,
                    (long long)v->tokenizer->bpe->merge_count, line);
    *space = 0;
    return add_merge(v, line, space + 1);
}

/* merges.txt: a "#version" line, then one merge per line. */
static Status load_merge_lines(Vocabulary *v, char *text, int64_t length) {
    int64_t lines = 1;
    for (int64_t i = 0; i < length; i++) lines += text[i] == '\n';
    TRY(reserve_merges(v, lines));
    bool first = true;
    for (char *line = text; line < text + length; first = false) {
        char *end = memchr(line, '\n', (size_t)(text + length - line));
        if (!end) end = text + length; /* file_read has appended a zero */
        char *next = end + 1;
        *end = 0;
        if (end > line && end[-1] == '\r') *--end = 0;
        bool version = first && strncmp(line, "#version", 8) == 0;
        if (end > line && !version) TRY(add_merge_line(v, line, (size_t)(end - line)));
        line = next;
    }
    return OK;
}

/* tokenizer.json: an array of "left right", or of [left, right]. */
static Status load_merge_array(Vocabulary *v, const json_t *merges) {
    if (!json_is_array(merges)) return fail(ERROR_FORMAT, "%s: model.merges is not an array", v->path);
    TRY(reserve_merges(v, (int64_t)json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i);
        const char *left = json_string_value(json_array_get(merge, 0));
        const char *right = json_string_value(json_array_get(merge, 1));
        if (json_is_string(merge)) {
            OWNED char *line = memory_text(json_string_value(merge));
            TRY(add_merge_line(v, line, json_string_length(merge)));
        } else if (json_array_size(merge) == 2 && left && right) {
            TRY(add_merge(v, left, right));
        } else {
            return fail(ERROR_FORMAT, "%s: merge %zu is neither \"a b\" nor [\"a\", \"b\"]", v->path, i);
        }
    }
    return OK;
}

/* ---- whole tokenizers ---- */

static void vocabulary_free(Vocabulary *v) {
    shfree(v->names);
    memory_free(v->texts);
    memory_free(v->literal);
}

/* GPT-2's chain, with a space inserted before the text if the config says so. */
static Status start_gpt2(Tokenizer *t, const json_t *config, const char *path) {
    bpe_start(t);
    t->bpe->step_count = 1;
    TRY(json_read_flag(config, "add_prefix_space", false, path, &t->bpe->steps[0].prefix));
    return splitter_open_gpt2(&t->bpe->steps[0].splitter);
}

Status bpe_load(Tokenizer *tokenizer, const char *vocab_path, const char *merges_path, const json_t *config) {
    static const char *const special[] = {"<|endoftext|>", NULL};
    json_auto_t *vocab = NULL, *added = NULL;
    CLOSED_BY(vocabulary_free) Vocabulary v = {.tokenizer = tokenizer, .path = vocab_path};
    OWNED char *merges = NULL;
    int64_t length;
    TRY(tokenizer_json_read(vocab_path, &vocab));
    TRY(start_gpt2(tokenizer, config, vocab_path));
    TRY(tokenizer_config_added(config, vocab, special, vocab_path, &added));
    TRY(load_vocabulary(&v, vocab, added));
    v.path = merges_path;
    TRY(file_read(merges_path, TOKENIZER_FILE_LIMIT, &merges, &length));
    TRY(load_merge_lines(&v, merges, length));
    return fail_at(bpe_finish(tokenizer), "%s", v.path);
}

/* Reads the unknown token, and whether pieces that are tokens skip merging. */
static Status read_unknown(Vocabulary *v, const json_t *model, const json_t *vocab) {
    Bpe *bpe = v->tokenizer->bpe;
    const json_t *id = NULL;
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    bool whole;
    if (unknown) id = json_object_get(vocab, unknown);
    if (unknown && !id) return fail(ERROR_FORMAT, "%s: model.unk_token is no token", v->path);
    if (id) bpe->unknown = (int32_t)json_integer_value(id);
    if (!bpe->byte_level && !bpe->byte_fallback && !id)
        return fail(ERROR_FORMAT, "%s: neither ByteLevel nor model.byte_fallback nor model.unk_token",
                    v->path);
    if (bpe->byte_level && bpe->byte_fallback)
        return fail(ERROR_FORMAT, "%s: model.byte_fallback is not supported with ByteLevel", v->path);
    TRY(json_read_flag(model, "ignore_merges", false, v->path, &whole));
    if (whole && !bpe->byte_level)
        return fail(ERROR_FORMAT, "%s: model.ignore_merges is supported only with ByteLevel", v->path);
    if (whole) bpe_take_whole(v->tokenizer, vocab);
    return OK;
}

static Status load_json(Vocabulary *v, const json_t *root) {
    Tokenizer *t = v->tokenizer;
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    TRY(bpe_read_chains(t->bpe, root, v->path, &t->decoding));
    TRY(load_vocabulary(v, vocab, json_object_get(root, "added_tokens")));
    TRY(load_merge_array(v, json_object_get(model, "merges")));
    TRY(read_unknown(v, model, vocab));
    TRY(fail_at(bpe_finish(t), "%s", v->path));
    return tokenizer_read_post(t, json_object_get(root, "post_processor"), v->path);
}

Status bpe_load_json(Tokenizer *tokenizer, const json_t *root, const char *path) {
    CLOSED_BY(vocabulary_free) Vocabulary v = {.tokenizer = tokenizer, .path = path};
    bpe_start(tokenizer);
    return load_json(&v, root);
}
