/* Chat templates from bytes: a template's source, a zero byte, and a message. What is recognized can
 * render it. */
#include "base/memory.h"
#include "tasks/chat/chat.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void read_chat(const uint8_t *data, size_t size) {
    const uint8_t *zero = memchr(data, 0, size);
    const char *message = zero ? (const char *)zero + 1 : "";
    int64_t length = zero ? (int64_t)(data + size - zero - 1) : 0, starts[3];
    char *source = memory_text_slice((const char *)data, zero ? (size_t)(zero - data) : size);
    const ChatMessage messages[] = {
        {ROLE_SYSTEM, message, length}, {ROLE_USER, message, length}, {ROLE_ASSISTANT, message, length}};
    ChatTemplate template;
    Status status = chat_template_read(source, "<s>", "</s>", "01 Feb 2025", &template);
    for (int first = 0; !status && first < 2; first++) {
        Bytes text = {0};
        status_free(chat_render(&template, messages + first, 3 - first, true, &text, starts));
        must(!text.count || starts[2 - first] <= text.count);
        memory_free(text.bytes);
    }
    if (!status) chat_template_free(&template);
    status_free(status);
    memory_free(source);
}

FUZZ(chat, read_chat, NULL)
