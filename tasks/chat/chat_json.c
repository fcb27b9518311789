#include "tasks/chat/chat_json.h"

#include "base/memory.h"
#include "data/lines.h"

#include <string.h>

enum { MESSAGES_MOST = 1 << 16 };

static Status read_message(const json_t *object, ChatMessage *message) {
    const char *name = json_string_value(json_object_get(object, "role"));
    TRY(json_line_text(object, "content", &message->text, &message->length));
    for (ChatRole role = 0; name && role < ROLE_COUNT; role++) {
        message->role = role;
        if (strcmp(chat_role_name(role), name) == 0) return OK;
    }
    return fail(ERROR_FORMAT, "the role is %.40s, but must be system, user or assistant",
                name ? name : "missing");
}

Status chat_read_messages(const json_t *object, ChatMessages *messages) {
    const json_t *list = json_object_get(object, "messages"), *message;
    size_t i, count = json_array_size(list);
    if (!count || count > MESSAGES_MOST)
        return fail(ERROR_FORMAT, "\"messages\" must be a list of 1 to %d messages", MESSAGES_MOST);
    messages->list = memory_grow(messages->list, &messages->room, (int64_t)count, sizeof *messages->list);
    messages->count = (int64_t)count;
    json_array_foreach(list, i, message) {
        Status status = read_message(message, &messages->list[i]);
        if (status) return fail_at(status, "message %zu", i + 1);
    }
    return OK;
}
