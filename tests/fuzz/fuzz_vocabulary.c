/* Fuzzes a tokenizer's folder from an input of scratch_unpack: it is opened, saved and opened again, and must
 * give the same ids. If there is a file "text", a tokenizer is trained on it. */
#include "tasks/chat/chat.h"
#include "data/text_stream.h"
#include "base/memory.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { TEXT_MOST = 1024 }; // bytes to train on; longer texts only take longer

static const char sample[] =
    "Ab \xC3\xA9\xE4\xB8\xAD 12's\n\n  x<s></s> b <s>\xE2\x80\x83</s>_[CLS]\xF0\x9F\x98\x80\xFF.";

static void encode(Tokenizer *t, TokenList *ids, Bytes *text) {
    TextStream stream = {0};
    must(!tokenizer_encode(t, sample, sizeof sample - 1, ids));
    must(!tokenizer_encode_special(t, sample, sizeof sample - 1, ids));
    for (int64_t i = 0; i < ids->count; i++) {
        must(ids->ids[i] >= 0 && ids->ids[i] < tokenizer_vocab(t));
        tokenizer_stream(t, &stream, ids->ids[i], text);
    }
    tokenizer_stream_end(&stream, text);
    const TokenList *around[] = {tokenizer_before(t), tokenizer_after(t)};
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < around[side]->count; i++)
            must(around[side]->ids[i] >= 0 && around[side]->ids[i] < tokenizer_vocab(t));
}

static void compare(Tokenizer *a, Tokenizer *b) {
    TokenList ids[2] = {0};
    Bytes texts[2] = {0};
    must(tokenizer_vocab(a) == tokenizer_vocab(b) && tokenizer_hash(a) == tokenizer_hash(b));
    must(strcmp(tokenizer_name(a), tokenizer_name(b)) == 0);
    must(tokenizer_end_of_text(a) == tokenizer_end_of_text(b));
    for (SpecialToken s = 0; s < SPECIAL_COUNT; s++) must(tokenizer_special(a, s) == tokenizer_special(b, s));
    encode(a, &ids[0], &texts[0]);
    encode(b, &ids[1], &texts[1]);
    must(ids[0].count == ids[1].count && texts[0].count == texts[1].count);
    for (int64_t i = 0; i < ids[0].count; i++) must(ids[0].ids[i] == ids[1].ids[i]);
    for (int i = 0; i < 2; i++) token_list_free(&ids[i]), memory_free(texts[i].bytes);
}

static void converse(Tokenizer *t) {
    const ChatMessage messages[] = {{ROLE_USER, "Hi", 2}, {ROLE_ASSISTANT, "Yes.", 4}};
    Chat chat;
    TokenList ids = {0};
    Bytes answers = {0};
    Status status = chat_open(t, "", &chat);
    int64_t content;
    if (!status) status = chat_encode_answers(&chat, messages, 2, &ids, &answers);
    must(answers.count == ids.count);
    if (!status) status = chat_encode(&chat, messages, 1, true, &ids, &content);
    if (!status) status = chat_encode_next(&chat, messages, false, &ids, &content);
    if (!status) status = chat_encode_next(&chat, messages, true, &ids, &content);
    status_free(status);
    chat_close(&chat);
    token_list_free(&ids);
    memory_free(answers.bytes);
}

static void read_vocabulary(const uint8_t *data, size_t size) {
    Tokenizer *first, *again;
    bool present;
    scratch_unpack(data, size);
    PathList texts = {(char *[]){SCRATCH "/text"}, 1, 0};
    bool trained = scratch_get("text", &size);
    if (trained && size > TEXT_MOST) return;
    Status status =
        trained ? tokenizer_train(&texts, TRAINED_LEAST + 9, &first) : tokenizer_open(SCRATCH, &first);
    must(!status == (first != NULL));
    if (!status) {
        must(!tokenizer_save(first, SCRATCH "/saved"));
        must(!tokenizer_present(SCRATCH "/saved", &present) && present);
        must(!tokenizer_open(SCRATCH "/saved", &again));
        compare(first, again);
        tokenizer_free(again);
        converse(first);
        tokenizer_free(first);
    }
    must(!status || status_code(status) == ERROR_FORMAT || status_code(status) == ERROR_FILE);
    status_free(status);
}

FUZZ(vocabulary, read_vocabulary, mutate_folder)
