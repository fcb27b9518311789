/* Reads a byte-level BPE's vocabulary and merges from files, trusting nothing in them. */
#include "data/bpe.h"
#include "data/tables.h"
#include "data/tokenizer_json.h"

#include <stdio.h>
#include <string.h>

/* A token's text as the file spells it, to its id. The keys live in the JSON tree. */
typedef struct {
    char *key;
    int32_t value;
} Name;

typedef struct {
    Tokenizer *tokenizer;
    Name *names;        // an stb_ds string table
    const char **texts; // (vocab) the same by id
    int64_t total;      // bytes of all texts
    const char *path;   // of the file being read
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

/* Reads each token's bytes: by the alphabet, or as spelled if a letter is foreign to it. */
static void fill_pool(Vocabulary *v) {
    Tokenizer *t = v->tokenizer;
    tokenizer_reserve(t, t->vocab, v->total);
    int64_t used = 0;
    for (int32_t id = 0; id < t->vocab; id++) {
        int64_t bytes = alphabet_read(v->texts[id], t->pool + used);
        if (bytes < 0) {
            t->spelled[id] = true;
            bytes = (int64_t)strlen(v->texts[id]);
            memcpy(t->pool + used, v->texts[id], (size_t)bytes);
        }
        used += bytes;
        t->starts[id + 1] = used;
    }
}

static Status load_vocabulary(Vocabulary *v, json_t *vocab, json_t *added) {
    Tokenizer *t = v->tokenizer;
    int64_t extra;
    if (!json_is_object(vocab)) return fail(ERROR_FORMAT, "%s: the vocabulary is not a JSON object", v->path);
    TRY(count_added(v, vocab, added, &extra));
    int64_t count = (int64_t)json_object_size(vocab) + extra;
    if (count > VOCAB_LIMIT)
        return fail(ERROR_FORMAT, "%s: %lld tokens are too many (at most %d)", v->path, (long long)count,
                    VOCAB_LIMIT);
    v->texts = memory_array((size_t)count, sizeof *v->texts);
    const char *text;
    json_t *id;
    json_object_foreach(vocab, text, id) {
        if (!json_is_integer(id))
            return fail(ERROR_FORMAT, "%s: the id of token \"%.40s\" is not an integer", v->path, text);
        TRY(add_name(v, text, json_integer_value(id), count));
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i);
        text = json_string_value(json_object_get(entry, "content"));
        if (json_is_true(json_object_get(entry, "special")))
            special_take(t, text, (int32_t)json_integer_value(json_object_get(entry, "id")));
        if (json_object_get(vocab, text)) continue;
        if (shgeti(v->names, text) >= 0)
            return fail(ERROR_FORMAT, "%s: token \"%.40s\" is added twice", v->path, text);
        TRY(add_name(v, text, json_integer_value(json_object_get(entry, "id")), count));
    }
    t->vocab = (int32_t)count; /* count ids below count, each used once: so none is missing */
    ptrdiff_t end = shgeti(v->names, "<|endoftext|>");
    t->end_of_text = end < 0 ? t->special[TOKEN_END] : v->names[end].value;
    for (int byte = 0; byte < 256; byte++) {
        char letter[3] = {0};
        alphabet_write((uint8_t)byte, letter);
        ptrdiff_t found = shgeti(v->names, letter);
        if (found < 0)
            return fail(ERROR_FORMAT, "%s: no token for the byte 0x%02x (\"%s\"): not a byte-level BPE",
                        v->path, (unsigned)byte, letter);
        t->bpe->byte_ids[byte] = v->names[found].value;
    }
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
    if (v->tokenizer->spelled[ids[2]])
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

/* merges.txt: a "#version" line, then one merge a line. */
static Status load_merge_lines(Vocabulary *v, char *text, int64_t length) {
    int64_t lines = 1;
    for (int64_t i = 0; i < length; i++) lines += text[i] == '\n';
    TRY(reserve_merges(v, lines));
    bool first = true;
    for (char *line = text; line < text + length; first = false) {
        char *end = memchr(line, '\n', (size_t)(text + length - line));
        if (!end) end = text + length; /* where file_read has put a zero */
        *end = 0;
        bool version = first && strncmp(line, "#version", 8) == 0;
        if (end > line && !version) TRY(add_merge_line(v, line, (size_t)(end - line)));
        line = end + 1;
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
            char *line = memory_text(json_string_value(merge));
            Status status = add_merge_line(v, line, json_string_length(merge));
            memory_free(line);
            TRY(status);
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
}

Status bpe_load(Tokenizer *tokenizer, const char *vocab_path, const char *merges_path) {
    Vocabulary v = {.tokenizer = tokenizer, .path = vocab_path};
    json_t *vocab;
    TRY(tokenizer_json_read(vocab_path, &vocab));
    bpe_start(tokenizer);
    char *merges = NULL;
    int64_t length;
    Status status = load_vocabulary(&v, vocab, NULL);
    v.path = merges_path;
    if (!status) status = file_read(merges_path, TOKENIZER_FILE_LIMIT, &merges, &length);
    if (!status) status = load_merge_lines(&v, merges, length);
    if (!status) status = fail_at(bpe_finish(tokenizer), "%s", v.path);
    memory_free(merges);
    vocabulary_free(&v);
    json_decref(vocab);
    return status;
}

/* Absent, null, false or "": a feature that is off. */
static bool is_off(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return !value || json_is_null(value) || json_is_false(value) || json_is_text(value, "");
}

/* Refuses what would give other ids than GPT-2's way does. */
static Status check_kind(const json_t *root, const char *path) {
    const json_t *model = json_object_get(root, "model");
    const json_t *cutter = json_object_get(root, "pre_tokenizer");
    const json_t *pattern = json_object_get(cutter, "use_regex"); /* absent in old files, where it is meant */
    const char *wrong = NULL;
    if (!json_is_text(json_object_get(model, "type"), "BPE"))
        wrong = "model.type is not BPE";
    else if (!json_is_text(json_object_get(cutter, "type"), "ByteLevel"))
        wrong = "pre_tokenizer.type is not ByteLevel";
    else if (pattern && !json_is_true(pattern))
        wrong = "pre_tokenizer.use_regex is off";
    else if (!is_off(cutter, "add_prefix_space"))
        wrong = "pre_tokenizer.add_prefix_space is on";
    else if (!is_off(root, "normalizer"))
        wrong = "it has a normalizer";
    else if (!is_off(model, "continuing_subword_prefix"))
        wrong = "model.continuing_subword_prefix is set";
    else if (!is_off(model, "end_of_word_suffix"))
        wrong = "model.end_of_word_suffix is set";
    else if (!is_off(model, "byte_fallback"))
        wrong = "model.byte_fallback is on";
    else if (!is_off(model, "ignore_merges"))
        wrong = "model.ignore_merges is on";
    if (!wrong) return OK;
    return fail(ERROR_FORMAT, "%s: only GPT-2's byte-level BPE is supported, but %s", path, wrong);
}

Status bpe_load_json(Tokenizer *tokenizer, const json_t *root, const char *path) {
    Vocabulary v = {.tokenizer = tokenizer, .path = path};
    const json_t *model = json_object_get(root, "model");
    bpe_start(tokenizer);
    Status status = check_kind(root, path);
    if (!status)
        status = load_vocabulary(&v, json_object_get(model, "vocab"), json_object_get(root, "added_tokens"));
    if (!status) status = load_merge_array(&v, json_object_get(model, "merges"));
    if (!status) status = fail_at(bpe_finish(tokenizer), "%s", path);
    vocabulary_free(&v);
    return status;
}
