#include "data/tokenizer_state.h"

#include "base/files.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "data/bpe.h"
#include "data/tokenizer_config.h"
#include "data/wordpiece.h"

#include <string.h>

/* Adds a token as files spell it. */
static void spell(Bytes *text, const Tokenizer *t, int32_t id) {
    for (int64_t i = t->starts[id]; i < t->starts[id + 1]; i++) {
        char letter[2] = {(char)t->pool[i]};
        bytes_put(text, letter, t->spelled[id] ? 1 : alphabet_write(t->pool[i], letter));
    }
}

/* The same as a separate text, in the memory of `text`. */
static const char *spelling(Bytes *text, const Tokenizer *t, int32_t id) {
    text->count = 0;
    spell(text, t, id);
    bytes_put(text, "", 1);
    return (const char *)text->bytes;
}

static void write_token(JsonWriter *w, const char *key, const Tokenizer *t, int32_t id) {
    Bytes text = {0};
    json_member_text(w, key, spelling(&text, t, id));
    memory_free(text.bytes);
}

static bool is_special(const Tokenizer *tokenizer, int32_t id) {
    for (int i = 0; i < SPECIAL_COUNT; i++)
        if (tokenizer->special[i] == id) return true;
    return false;
}

static void write_added(JsonWriter *w, const Tokenizer *tokenizer) {
    json_member_open(w, "added_tokens", '[');
    for (int32_t id = 0; id < tokenizer->vocab; id++) {
        if (!is_special(tokenizer, id)) continue;
        json_write_line(w, 0, true);
        json_write_open(w, '{');
        json_member_integer(w, "id", id);
        write_token(w, "content", tokenizer, id);
        json_member_boolean(w, "single_word", false);
        json_member_boolean(w, "lstrip", false);
        json_member_boolean(w, "rstrip", false);
        json_member_boolean(w, "normalized", false);
        json_member_boolean(w, "special", true);
        json_write_close(w, '}');
    }
    json_write_close(w, ']');
}

static void write_null(JsonWriter *w, const char *key) {
    json_write_key(w, key);
    json_write_json(w, "null");
}

static void write_byte_level(JsonWriter *w, const char *key, bool prefix) {
    json_write_line(w, 0, true);
    json_member_open(w, key, '{');
    json_member_text(w, "type", "ByteLevel");
    json_member_boolean(w, "add_prefix_space", prefix);
    json_member_boolean(w, "trim_offsets", true);
    json_member_boolean(w, "use_regex", true);
    json_write_close(w, '}');
}

static void write_vocab(JsonWriter *w, const Tokenizer *t) {
    Bytes text = {0};
    json_write_line(w, 0, true);
    json_member_open(w, "vocab", '{');
    for (int32_t id = 0; id < t->vocab; id++) json_member_integer(w, spelling(&text, t, id), id);
    json_write_close(w, '}');
    json_member_open(w, "merges", '[');
    for (int64_t rank = 0; rank < t->bpe->merge_count; rank++) {
        text.count = 0;
        spell(&text, t, t->bpe->merges[rank].left);
        bytes_put(&text, " ", 1);
        spell(&text, t, t->bpe->merges[rank].right);
        json_write_line(w, 0, true);
        json_write_string(w, (const char *)text.bytes, text.count);
    }
    json_write_close(w, ']');
    memory_free(text.bytes);
}

static void write_model(JsonWriter *w, const Tokenizer *tokenizer) {
    json_write_line(w, 0, true);
    json_member_open(w, "model", '{');
    json_member_text(w, "type", "BPE");
    write_null(w, "dropout");
    write_null(w, "unk_token");
    write_null(w, "continuing_subword_prefix");
    write_null(w, "end_of_word_suffix");
    json_member_boolean(w, "fuse_unk", false);
    json_member_boolean(w, "byte_fallback", false);
    write_vocab(w, tokenizer);
    json_write_close(w, '}');
}

/* Everything in one file, as Hugging Face's tokenizers writes it. */
static void write_whole(JsonWriter *w, const Tokenizer *tokenizer) {
    json_member_text(w, "version", "1.0");
    write_null(w, "truncation");
    write_null(w, "padding");
    write_added(w, tokenizer);
    json_write_line(w, 0, true);
    write_null(w, "normalizer");
    write_null(w, "post_processor");
    write_byte_level(w, "pre_tokenizer", false);
    write_byte_level(w, "decoder", true);
    write_model(w, tokenizer);
}

/* The last keys of a config: names of the special tokens, except an end token that is not the end of text:
 * naming it here would make it that. */
static void write_special(JsonWriter *w, const Tokenizer *tokenizer) {
    for (int i = 0; i < SPECIAL_COUNT; i++) {
        if (tokenizer->special[i] < 0) continue;
        if (i == TOKEN_END && tokenizer->special[i] != tokenizer->end_of_text) continue;
        write_token(w, tokenizer_config_key(i, tokenizer->kind == TOKENIZER_WORDPIECE), tokenizer,
                    tokenizer->special[i]);
    }
}

static void write_bytes_config(JsonWriter *w, const Tokenizer *tokenizer) {
    json_member_text(w, "fusebox_tokenizer", "bytes");
    write_special(w, tokenizer);
}

static void write_bpe_config(JsonWriter *w, const Tokenizer *tokenizer) {
    bool gpt2 = tokenizer->kept_count && strcmp(tokenizer->kept[0].name, "vocab.json") == 0;
    json_member_text(w, "tokenizer_class", gpt2 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast");
    json_member_boolean(w, gpt2 ? "add_prefix_space" : "clean_up_tokenization_spaces", false);
    write_special(w, tokenizer);
}

static void write_wordpiece_config(JsonWriter *w, const Tokenizer *tokenizer) {
    WordPieceRule rule = wordpiece_rule(tokenizer);
    json_member_text(w, "tokenizer_class", "BertTokenizer");
    json_member_boolean(w, "do_lower_case", rule.lower);
    json_member_boolean(w, "strip_accents", rule.strip_accents);
    json_member_boolean(w, "tokenize_chinese_chars", rule.chinese);
    write_special(w, tokenizer);
}

typedef void WriteMembers(JsonWriter *w, const Tokenizer *tokenizer);

static Status save_file(const Tokenizer *tokenizer, const char *folder, const char *name,
                        WriteMembers *write) {
    OWNED char *path = path_join(folder, name);
    CLOSED_BY(json_writer_free) JsonWriter w = {.spaced = true};
    json_write_open(&w, '{');
    write(&w, tokenizer);
    json_write_close(&w, '}');
    json_write_line(&w, 0, false);
    return json_writer_save(&w, path);
}

static const char config_name[] = "tokenizer_config.json";

/* Writes the files that were read unchanged. A missing config is created. */
static Status save_kept(const Tokenizer *t, const char *folder, WriteMembers *config) {
    bool has_config = false;
    for (int i = 0; i < t->kept_count; i++) {
        OWNED char *path = path_join(folder, t->kept[i].name);
        TRY(file_write(path, t->kept[i].contents, t->kept[i].length));
        if (strcmp(t->kept[i].name, config_name) == 0) has_config = true;
    }
    return has_config ? OK : save_file(t, folder, config_name, config);
}

Status tokenizer_save_bytes(const Tokenizer *tokenizer, const char *folder) {
    return save_file(tokenizer, folder, config_name, write_bytes_config);
}

Status tokenizer_save_bpe(const Tokenizer *tokenizer, const char *folder) {
    if (tokenizer->kept_count == 0) TRY(save_file(tokenizer, folder, "tokenizer.json", write_whole));
    return save_kept(tokenizer, folder, write_bpe_config);
}

Status tokenizer_save_wordpiece(const Tokenizer *tokenizer, const char *folder) {
    return save_kept(tokenizer, folder, write_wordpiece_config);
}
