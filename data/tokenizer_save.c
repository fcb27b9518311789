/* Writes a tokenizer's files as GPT-2's are. */
#include "base/files.h"
#include "base/memory.h"
#include "data/tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

/* Text on its way to a file. After a failure the rest is dropped, and the close reports it. */
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

/* A token as files spell it; in JSON, with what a string there must escape. */
static void put_token(TextFile *file, const Tokenizer *tokenizer, int32_t id, bool json) {
    for (int64_t i = tokenizer->starts[id]; i < tokenizer->starts[id + 1]; i++) {
        uint8_t byte = tokenizer->pool[i];
        char letter[8] = {(char)byte, 0};
        int bytes = tokenizer->spelled[id] ? 1 : alphabet_write(byte, letter);
        if (json && (byte == '"' || byte == '\\')) put(file, "\\", 1);
        if (json && (uint8_t)letter[0] < ' ') /* only in a token that is spelled out */
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
    put_text(file, "}\n");
}

static void put_merges(TextFile *file, const Tokenizer *tokenizer) {
    put_text(file, "#version: 0.2\n");
    for (int64_t rank = 0; rank < tokenizer->merge_count; rank++) {
        put_token(file, tokenizer, tokenizer->merges[rank].left, false);
        put(file, " ", 1);
        put_token(file, tokenizer, tokenizer->merges[rank].right, false);
        put(file, "\n", 1);
    }
}

static void put_config(TextFile *file, const Tokenizer *tokenizer) {
    put_text(file, tokenizer->bytes
                       ? "{\"fusebox_tokenizer\": \"bytes\"}\n"
                       : "{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_prefix_space\": false}\n");
}

typedef void PutContents(TextFile *file, const Tokenizer *tokenizer);

static Status save_file(const Tokenizer *tokenizer, const char *folder, const char *name,
                        PutContents *contents) {
    char *path = NULL;
    TextFile *file = memory_allocate(sizeof *file);
    Status status =
        file ? path_join(folder, name, &path) : fail(ERROR_MEMORY, "no memory left to save %s", name);
    if (!status) status = file_writer_open(path, &file->writer);
    if (!status) {
        contents(file, tokenizer);
        status = file->status;
        if (!status) status = file_writer_append(file->writer, file->buffer, file->used);
        if (!status)
            status = file_writer_close(file->writer);
        else
            file_writer_abandon(file->writer);
    }
    memory_free(path);
    memory_free(file);
    return status;
}

Status tokenizer_save(const Tokenizer *tokenizer, const char *folder) {
    if (!tokenizer->bytes) {
        TRY(save_file(tokenizer, folder, "vocab.json", put_vocab));
        TRY(save_file(tokenizer, folder, "merges.txt", put_merges));
    }
    return save_file(tokenizer, folder, "tokenizer_config.json", put_config);
}
