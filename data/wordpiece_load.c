/* Reads WordPiece vocabularies from untrusted files. */
#include "base/files.h"
#include "base/memory.h"
#include "data/tokenizer_config.h"
#include "data/tokenizer_json.h"
#include "data/wordpiece.h"

#include <string.h>

/* ---- vocab.txt ---- */

static Status read_rule(const json_t *config, const char *path, WordPieceRule *rule) {
    TRY(json_read_flag(config, "do_lower_case", true, path, &rule->lower));
    TRY(json_read_flag(config, "strip_accents", rule->lower, path, &rule->strip_accents));
    return json_read_flag(config, "tokenize_chinese_chars", true, path, &rule->chinese);
}

/* Splits the text into lines in place. */
static Status cut_lines(char *text, int64_t length, const char *path, const char ***lines, int64_t *count) {
    int64_t most = 1;
    for (int64_t i = 0; i < length; i++) most += text[i] == '\n';
    *count = 0;
    *lines = memory_array((size_t)most, sizeof **lines);
    for (char *line = text; line < text + length;) {
        char *end = memchr(line, '\n', (size_t)(text + length - line));
        if (!end) end = text + length; /* file_read has appended a zero */
        char *next = end + 1;
        *end = 0;
        if (memchr(line, 0, (size_t)(end - line)))
            return fail(ERROR_FORMAT, "%s, line %lld contains a zero byte", path, (long long)*count + 1);
        while (end > line && end[-1] == '\r') *--end = 0;
        (*lines)[(*count)++] = line;
        line = next;
    }
    return OK;
}

/* ---- added tokens ---- */

static Status put_text(const char **texts, int64_t count, const char *text, const json_t *id,
                       const char *path) {
    if (!text || !json_is_integer(id))
        return fail(ERROR_FORMAT, "%s: a token lacks its text or its id", path);
    json_int_t index = json_integer_value(id);
    if (index < 0 || index >= count)
        return fail(ERROR_FORMAT, "%s: token \"%.40s\" has id %lld, but with %lld tokens ids are 0 to %lld",
                    path, text, (long long)index, (long long)count, (long long)count - 1);
    if (texts[index] && strcmp(texts[index], text) != 0)
        return fail(ERROR_FORMAT, "%s: tokens \"%.40s\" and \"%.40s\" have the same id %lld", path,
                    texts[index], text, (long long)index);
    texts[index] = text;
    return OK;
}

/* How many of the added tokens the vocabulary lacks. */
static int64_t count_added(const json_t *added, const json_t *vocab) {
    int64_t count = 0;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(added, i), "content"));
        count += text && !json_object_get(vocab, text);
    }
    return count;
}

/* Appends the added tokens that the vocabulary lacks. */
static Status put_added(const json_t *added, const char **texts, int64_t count, const char *path) {
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i);
        const char *text = json_string_value(json_object_get(entry, "content"));
        TRY(put_text(texts, count, text, json_object_get(entry, "id"), path));
    }
    for (int64_t i = 0; i < count; i++)
        if (!texts[i]) return fail(ERROR_FORMAT, "%s: no token has id %lld", path, (long long)i);
    return OK;
}

/* Called when the vocabulary is complete. */
static Status take_added(Tokenizer *t, const json_t *added, const json_t *vocab, const char *path) {
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i);
        AddedToken token;
        TRY(added_read(entry, (int32_t)json_integer_value(json_object_get(entry, "id")), path, &token));
        added_put(&t->added[token.normalized], token);
        if (!json_object_get(vocab, token.text)) wordpiece_hide(t, token.text);
    }
    return OK;
}

/* ---- vocab.txt and tokenizer.json ---- */

static Status load_lines(Tokenizer *t, char *text, int64_t length, const json_t *config, const char *path,
                         const char ***lines) {
    static const char *const special[] = {"[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", NULL};
    int64_t count;
    WordPieceRule rule;
    TRY(read_rule(config, path, &rule));
    json_auto_t *added = NULL, *vocab = json_object();
    TRY(cut_lines(text, length, path, lines, &count));
    for (int64_t i = 0; i < count; i++)
        if (json_object_set_new(vocab, (*lines)[i], json_integer(i)))
            return fail(ERROR_FORMAT, "%s, line %lld is not UTF-8", path, (long long)i + 1);
    TRY(tokenizer_config_added(config, vocab, special, path, &added));
    int64_t all = count + count_added(added, vocab);
    if (all > count) {
        *lines = memory_resize(*lines, (size_t)all * sizeof **lines);
        memset(*lines + count, 0, (size_t)(all - count) * sizeof **lines);
    }
    TRY(put_added(added, *lines, all, path));
    TRY(wordpiece_build(t, *lines, all, rule, path));
    return take_added(t, added, vocab, path);
}

Status wordpiece_load(Tokenizer *tokenizer, const char *path, const char *unused, const json_t *config) {
    OWNED char *text = NULL;
    OWNED const char **lines = NULL;
    int64_t length;
    (void)unused;
    TRY(file_read(path, TOKENIZER_FILE_LIMIT, &text, &length));
    return load_lines(tokenizer, text, length, config, path, &lines);
}

static Status collect(const json_t *root, const char *path, const char **texts, int64_t count) {
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const char *text;
    json_t *id;
    json_object_foreach(vocab, text, id) TRY(put_text(texts, count, text, id, path));
    return put_added(json_object_get(root, "added_tokens"), texts, count, path);
}

/* Refuses everything that would give other ids than BERT's tokenizer. */
static Status check_kind(const json_t *root, const char *path) {
    const json_t *model = json_object_get(root, "model"), *normalizer = json_object_get(root, "normalizer");
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    const char *wrong = NULL;
    if (!json_is_text(json_object_get(normalizer, "type"), "BertNormalizer"))
        wrong = "normalizer.type is not BertNormalizer";
    else if (json_is_false(json_object_get(normalizer, "clean_text")))
        wrong = "normalizer.clean_text is off";
    else if (!json_is_text(json_object_get(json_object_get(root, "pre_tokenizer"), "type"),
                           "BertPreTokenizer"))
        wrong = "pre_tokenizer.type is not BertPreTokenizer";
    else if (prefix && !json_is_text(prefix, WORDPIECE_PREFIX))
        wrong = "model.continuing_subword_prefix is not " WORDPIECE_PREFIX;
    else if (most && json_integer_value(most) != WORD_CHARACTERS)
        wrong = "model.max_input_chars_per_word is not 100";
    else if (!json_is_text(json_object_get(model, "unk_token"), "[UNK]"))
        wrong = "model.unk_token is not [UNK]";
    if (!wrong) return OK;
    return fail(ERROR_FORMAT, "%s: only BERT's WordPiece is supported, but %s", path, wrong);
}

Status wordpiece_load_json(Tokenizer *tokenizer, const json_t *root, const char *path) {
    WordPieceRule rule;
    const json_t *normalizer = json_object_get(root, "normalizer");
    TRY(check_kind(root, path));
    TRY(json_read_flag(normalizer, "lowercase", true, path, &rule.lower));
    TRY(json_read_flag(normalizer, "strip_accents", rule.lower, path, &rule.strip_accents));
    TRY(json_read_flag(normalizer, "handle_chinese_chars", true, path, &rule.chinese));
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const json_t *added = json_object_get(root, "added_tokens");
    int64_t count = (int64_t)json_object_size(vocab) + count_added(added, vocab);
    OWNED const char **texts = memory_array((size_t)count, sizeof *texts);
    TRY(collect(root, path, texts, count));
    TRY(wordpiece_build(tokenizer, texts, count, rule, path));
    TRY(take_added(tokenizer, added, vocab, path));
    return tokenizer_read_post(tokenizer, json_object_get(root, "post_processor"), path);
}
