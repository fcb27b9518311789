/* Reads WordPiece vocabularies from files, trusting nothing in them. */
#include "base/files.h"
#include "base/memory.h"
#include "data/tokenizer_json.h"
#include "data/wordpiece.h"

#include <string.h>

/* ---- vocab.txt ---- */

/* A flag of a config; null and absent mean `otherwise`. */
static Status read_flag(const json_t *config, const char *name, bool otherwise, const char *path,
                        bool *flag) {
    const json_t *value = json_object_get(config, name);
    *flag = json_is_true(value) || (otherwise && !json_is_false(value));
    if (!value || json_is_null(value) || json_is_boolean(value)) return OK;
    return fail(ERROR_FORMAT, "%s: %s is neither true nor false", path, name);
}

static Status read_rule(const char *path, WordPieceRule *rule) {
    json_t *config = NULL;
    PathKind kind;
    TRY(path_kind(path, &kind));
    if (kind != PATH_ABSENT) TRY(tokenizer_config_read(path, &config));
    Status status = read_flag(config, "do_lower_case", true, path, &rule->lower);
    if (!status) status = read_flag(config, "strip_accents", rule->lower, path, &rule->strip_accents);
    if (!status) status = read_flag(config, "tokenize_chinese_chars", true, path, &rule->chinese);
    json_decref(config);
    return status;
}

/* Cuts the text into lines in place; `lines` gets them. */
static Status cut_lines(char *text, int64_t length, const char *path, const char ***lines, int64_t *count) {
    int64_t most = 1;
    for (int64_t i = 0; i < length; i++) most += text[i] == '\n';
    *count = 0;
    *lines = memory_array((size_t)most, sizeof **lines);
    for (char *line = text; line < text + length;) {
        char *end = memchr(line, '\n', (size_t)(text + length - line));
        if (!end) end = text + length; /* where file_read has put a zero */
        *end = 0;
        if (memchr(line, 0, (size_t)(end - line)))
            return fail(ERROR_FORMAT, "%s, line %lld contains a zero byte", path, (long long)*count + 1);
        if (end > line && end[-1] == '\r') end[-1] = 0;
        (*lines)[(*count)++] = line;
        line = end + 1;
    }
    return OK;
}

Status wordpiece_load(Tokenizer *tokenizer, const char *path, const char *config_path) {
    char *text;
    const char **lines = NULL;
    int64_t length, count;
    WordPieceRule rule;
    TRY(read_rule(config_path, &rule));
    TRY(file_read(path, TOKENIZER_FILE_LIMIT, &text, &length));
    Status status = cut_lines(text, length, path, &lines, &count);
    if (!status) status = wordpiece_build(tokenizer, lines, count, rule, path);
    memory_free(lines);
    memory_free(text);
    return status;
}

/* ---- tokenizer.json ---- */

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

static Status collect(const json_t *root, const char *path, const char **texts, int64_t count) {
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const json_t *added = json_object_get(root, "added_tokens");
    const char *text;
    json_t *id;
    json_object_foreach(vocab, text, id) TRY(put_text(texts, count, text, id, path));
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i);
        text = json_string_value(json_object_get(entry, "content"));
        TRY(put_text(texts, count, text, json_object_get(entry, "id"), path));
    }
    for (int64_t i = 0; i < count; i++)
        if (!texts[i]) return fail(ERROR_FORMAT, "%s: no token has id %lld", path, (long long)i);
    return OK;
}

/* The vocabulary's tokens, and those that are added to it. */
static int64_t count_tokens(const json_t *root) {
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const json_t *added = json_object_get(root, "added_tokens");
    int64_t count = (int64_t)json_object_size(vocab);
    for (size_t i = 0; i < json_array_size(added); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(added, i), "content"));
        count += text && !json_object_get(vocab, text);
    }
    return count;
}

/* Refuses what would give other ids than BERT's way does. */
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
    TRY(read_flag(normalizer, "lowercase", true, path, &rule.lower));
    TRY(read_flag(normalizer, "strip_accents", rule.lower, path, &rule.strip_accents));
    TRY(read_flag(normalizer, "handle_chinese_chars", true, path, &rule.chinese));
    int64_t count = count_tokens(root);
    const char **texts = memory_array((size_t)count, sizeof *texts);
    Status status = collect(root, path, texts, count);
    if (!status) status = wordpiece_build(tokenizer, texts, count, rule, path);
    memory_free(texts);
    return status;
}
