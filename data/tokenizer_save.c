#include "data/tokenizer_save.h"

#include "base/files.h"
#include "base/memory.h"
#include "data/bpe.h"
#include "data/tokenizer_config.h"
#include "data/wordpiece.h"

#include <stdio.h>
#include <string.h>

/* Text being written to a file. After a failure the rest is dropped, and closing reports it. */
typedef struct {
    FileWriter *writer;
    Status status;
    int64_t used;
    char buffer[1 << 15];
} TextFile;

static void put(TextFile *file, const char *text, size_t length) {
    if (file->status) return;
    if (file->used + (int64_t)length > (int64_t)sizeof file->buffer) {
        file->status = file_writer_append(file->writer, file->buffer, file->used);
        file->used = 0;
    }
    memcpy(file->buffer + file->used, text, length);
    file->used += (int64_t)length;
}

static void put_text(TextFile *file, const char *text) {
    put(file, text, strlen(text));
}

/* A token as files spell it; in JSON, with escapes. */
static void put_token(TextFile *file, const Tokenizer *tokenizer, int32_t id, bool json) {
    for (int64_t i = tokenizer->starts[id]; i < tokenizer->starts[id + 1]; i++) {
        uint8_t byte = tokenizer->pool[i];
        char letter[8] = {(char)byte, 0};
        int bytes = tokenizer->spelled[id] ? 1 : alphabet_write(byte, letter);
        if (json && (byte == '"' || byte == '\\')) put(file, "\\", 1);
        if (json && (uint8_t)letter[0] < ' ') /* only in a token that is spelled literally */
            bytes = snprintf(letter, sizeof letter, "\\u%04x", byte);
        put(file, letter, (size_t)bytes);
    }
}

static void put_vocab(TextFile *file, const Tokenizer *tokenizer) {
    char number[32];
    for (int32_t id = 0; id < tokenizer->vocab; id++) {
        put_text(file, id ? ", \"" : "{\"");
        put_token(file, tokenizer, id, true);
        snprintf(number, sizeof number, "\": %d", id);
        put_text(file, number);
    }
    put_text(file, "}");
}

static bool is_special(const Tokenizer *tokenizer, int32_t id) {
    for (int i = 0; i < SPECIAL_COUNT; i++)
        if (tokenizer->special[i] == id) return true;
    return false;
}

static void put_added(TextFile *file, const Tokenizer *tokenizer) {
    char number[32];
    const char *comma = "";
    for (int32_t id = 0; id < tokenizer->vocab; id++) {
        if (!is_special(tokenizer, id)) continue;
        snprintf(number, sizeof number, "%s\n{\"id\": %d", comma, id);
        put_text(file, number);
        put_text(file, ", \"content\": \"");
        put_token(file, tokenizer, id, true);
        put_text(file, "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                       "\"normalized\": false, \"special\": true}");
        comma = ",";
    }
}

/* Everything in one file, as Hugging Face's tokenizers writes it. */
static void put_whole(TextFile *file, const Tokenizer *tokenizer) {
    put_text(file, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    put_added(file, tokenizer);
    put_text(file, "],\n\"normalizer\": null, \"post_processor\": null,\n"
                   "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                   "\"trim_offsets\": true, \"use_regex\": true},\n"
                   "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                   "\"trim_offsets\": true, \"use_regex\": true},\n"
                   "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                   "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                   "\"fuse_unk\": false, \"byte_fallback\": false,\n\"vocab\": ");
    put_vocab(file, tokenizer);
    put_text(file, ", \"merges\": [");
    for (int64_t rank = 0; rank < tokenizer->bpe->merge_count; rank++) {
        put_text(file, rank ? ",\n\"" : "\n\"");
        put_token(file, tokenizer, tokenizer->bpe->merges[rank].left, true);
        put(file, " ", 1);
        put_token(file, tokenizer, tokenizer->bpe->merges[rank].right, true);
        put(file, "\"", 1);
    }
    put_text(file, "]}}\n");
}

/* The last keys of a config: names of the special tokens, except an end token that is not the end of text:
 * naming it here would make it that. */
static void put_special(TextFile *file, const Tokenizer *tokenizer) {
    for (int i = 0; i < SPECIAL_COUNT; i++) {
        if (tokenizer->special[i] < 0) continue;
        if (i == TOKEN_END && tokenizer->special[i] != tokenizer->end_of_text) continue;
        put_text(file, ", \"");
        put_text(file, tokenizer_config_key(i, tokenizer->kind == TOKENIZER_WORDPIECE));
        put_text(file, "\": \"");
        put_token(file, tokenizer, tokenizer->special[i], true);
        put_text(file, "\"");
    }
    put_text(file, "}\n");
}

static void put_bytes_config(TextFile *file, const Tokenizer *tokenizer) {
    put_text(file, "{\"fusebox_tokenizer\": \"bytes\"");
    put_special(file, tokenizer);
}

static void put_bpe_config(TextFile *file, const Tokenizer *tokenizer) {
    bool gpt2 = tokenizer->kept_count && strcmp(tokenizer->kept[0].name, "vocab.json") == 0;
    put_text(file, gpt2 ? "{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_prefix_space\": false"
                        : "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", "
                          "\"clean_up_tokenization_spaces\": false");
    put_special(file, tokenizer);
}

static void put_flag(TextFile *file, const char *name, bool value) {
    put_text(file, ", \"");
    put_text(file, name);
    put_text(file, value ? "\": true" : "\": false");
}

static void put_wordpiece_config(TextFile *file, const Tokenizer *tokenizer) {
    WordPieceRule rule = wordpiece_rule(tokenizer);
    put_text(file, "{\"tokenizer_class\": \"BertTokenizer\"");
    put_flag(file, "do_lower_case", rule.lower);
    put_flag(file, "strip_accents", rule.strip_accents);
    put_flag(file, "tokenize_chinese_chars", rule.chinese);
    put_special(file, tokenizer);
}

typedef void PutContents(TextFile *file, const Tokenizer *tokenizer);

static Status save_file(const Tokenizer *tokenizer, const char *folder, const char *name,
                        PutContents *contents) {
    OWNED char *path = path_join(folder, name);
    OWNED TextFile *file = memory_allocate(sizeof *file);
    TRY(file_writer_open(path, &file->writer));
    contents(file, tokenizer);
    if (!file->status) file->status = file_writer_append(file->writer, file->buffer, file->used);
    return file_writer_finish(file->writer, file->status);
}

static const char config_name[] = "tokenizer_config.json";

/* Writes the files that were read unchanged. A missing config is created. */
static Status save_kept(const Tokenizer *t, const char *folder, PutContents *config) {
    bool has_config = false;
    for (int i = 0; i < t->kept_count; i++) {
        OWNED char *path = path_join(folder, t->kept[i].name);
        TRY(file_write(path, t->kept[i].contents, t->kept[i].length));
        if (strcmp(t->kept[i].name, config_name) == 0) has_config = true;
    }
    return has_config ? OK : save_file(t, folder, config_name, config);
}

Status tokenizer_save_bytes(const Tokenizer *tokenizer, const char *folder) {
    return save_file(tokenizer, folder, config_name, put_bytes_config);
}

Status tokenizer_save_bpe(const Tokenizer *tokenizer, const char *folder) {
    if (tokenizer->kept_count == 0) TRY(save_file(tokenizer, folder, "tokenizer.json", put_whole));
    return save_kept(tokenizer, folder, put_bpe_config);
}

Status tokenizer_save_wordpiece(const Tokenizer *tokenizer, const char *folder) {
    return save_kept(tokenizer, folder, put_wordpiece_config);
}
