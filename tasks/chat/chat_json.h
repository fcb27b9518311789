/* chat_json: conversations in JSON: {"messages": [{"role": "user", "content": "..."}, ...]}, with the
 * roles system, user and assistant. */
#pragma once

#include "tasks/chat/chat.h"

#include <jansson.h>

/* Starts all-zero; memory_free(list) ends it. */
typedef struct {
    ChatMessage *list;
    int64_t count, room;
} ChatMessages;

/* Reads the object's messages, replacing earlier ones. Their texts live as long as the object. ERROR_FORMAT
 * if a message is malformed, or there are none. */
CHECKED Status chat_read_messages(const json_t *object, ChatMessages *messages);
