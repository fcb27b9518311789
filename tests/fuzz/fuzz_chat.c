/* Fuzzes chat templates: a template's source, a zero byte, and a message. A template that compiles must end
 * within its bounds, and the tokens it gives a conversation must be attributed. */
#include "base/memory.h"
#include "tasks/chat/chat.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void encode(const Chat *chat, const ChatMessage *messages, int64_t count) {
    TokenList ids = {0};
    Bytes answers = {0};
    int64_t content;
    Status status = chat_encode(chat, messages, count, true, &ids, &content);
    must(status || (content >= 0 && content <= ids.count));
    status_free(status);
    ids.count = 0;
    status = chat_encode_next(chat, messages, false, &ids, &content);
    must(status || (content >= 0 && content <= ids.count));
    status_free(status);
    ids.count = 0;
    status = chat_encode_answers(chat, messages, count, &ids, &answers);
    must(status || answers.count == ids.count);
    status_free(status);
    token_list_free(&ids);
    memory_free(answers.bytes);
}

static void read_chat(const uint8_t *data, size_t size) {
    const uint8_t *zero = memchr(data, 0, size);
    const char *message = zero ? (const char *)zero + 1 : "";
    int64_t length = zero ? (int64_t)(data + size - zero - 1) : 0;
    char *source = memory_text_slice((const char *)data, zero ? (size_t)(zero - data) : size);
    const ChatMessage messages[] = {
        {ROLE_SYSTEM, message, length}, {ROLE_USER, message, length}, {ROLE_ASSISTANT, message, length}};
    Chat chat;
    Status status = chat_open_source(fuzz_tokenizer(), source, &chat);
    if (!status)
        for (int first = 0; first < 2; first++) encode(&chat, messages + first, 3 - first);
    else
        must(status_code(status) == ERROR_FORMAT || status_code(status) == ERROR_USAGE);
    chat_close(&chat);
    status_free(status);
    memory_free(source);
}

FUZZ(chat, read_chat, NULL)
