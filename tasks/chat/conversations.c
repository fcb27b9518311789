#include "tasks/chat/conversations.h"

#include "base/memory.h"
#include "tasks/chat/chat.h"
#include "data/lines.h"
#include "tasks/chat/packing.h"
#include "data/tokens.h"

struct ConversationSource {
    TokenList tokens; // tokens of all conversations, concatenated
    Bytes answers;
    int64_t *starts; // (conversations + 1) offset of each in `tokens`
    int64_t room;
    Packing rows;
    int32_t padding;
    ConversationCounts counts;
};

typedef struct {
    ConversationSource *source;
    Chat chat;
    int64_t seq;
    ChatMessages messages;
} Reading;

/* Keeps the conversation from `first` on if a token after its first is a target. */
static void keep(Reading *r, int64_t first) {
    ConversationSource *s = r->source;
    ConversationCounts *c = &s->counts;
    int64_t length = s->tokens.count - first, most = r->seq + 1, answers = 0;
    bool cut = length > most;
    if (cut) length = most;
    for (int64_t i = 1; i < length; i++) answers += s->answers.bytes[first + i];
    if (!answers) length = 0;
    s->tokens.count = s->answers.count = first + length;
    c->left_out += !answers;
    if (!answers) return;
    c->cut += cut;
    c->answers += answers;
    c->tokens += length - 1;
    s->starts = memory_grow(s->starts, &s->room, ++c->conversations + 1, sizeof *s->starts);
    s->starts[c->conversations - 1] = first;
    s->starts[c->conversations] = first + length;
}

static Status read_conversation(void *context, const json_t *object) {
    Reading *r = context;
    ConversationSource *s = r->source;
    int64_t first = s->tokens.count;
    if (!json_object_get(object, "messages"))
        return fail(ERROR_FORMAT,
                    "the object has no \"messages\"; where its text stands under another key, name that "
                    "with --field");
    TRY(chat_read_messages(object, &r->messages));
    TRY(chat_encode_answers(&r->chat, r->messages.list, r->messages.count, &s->tokens, &s->answers));
    keep(r, first);
    return OK;
}

static Status read_files(Reading *r, const char *path) {
    CLOSED_BY(path_list_free) PathList files = {0};
    TRY(tokens_find_files(path, &files));
    for (int64_t i = 0; i < files.count; i++) TRY(json_lines_read(files.paths[i], read_conversation, r));
    if (r->source->counts.conversations) return OK;
    if (!r->source->counts.left_out) return fail(ERROR_FORMAT, "%s is empty", path);
    return fail(ERROR_FORMAT, "%s: no conversation has an answer of the assistant's in its first %lld tokens",
                path, (long long)r->seq);
}

/* Without packing, each conversation is a row. */
static void lay_out(ConversationSource *s, const ConversationOptions *o) {
    int64_t count = s->counts.conversations;
    OWNED int64_t *lengths = memory_array((size_t)count, sizeof *lengths);
    for (int64_t i = 0; i < count; i++) lengths[i] = o->packed ? s->starts[i + 1] - s->starts[i] - 1 : o->seq;
    s->rows = pack_rows(lengths, count, o->seq);
    s->counts.rows = s->rows.rows;
}

Status conversations_open(const ConversationOptions *o, ConversationSource **source) {
    *source = NULL;
    Reading r = {.source = memory_allocate(sizeof *r.source), .seq = o->seq};
    Status status = fail_at(chat_open(o->tokenizer, o->template, &r.chat),
                            "%s as conversations (--field=KEY reads a text a line)", o->path);
    if (!status) r.source->padding = r.chat.end;
    if (!status) status = read_files(&r, o->path);
    if (!status) lay_out(r.source, o);
    chat_close(&r.chat);
    memory_free(r.messages.list);
    if (status)
        conversations_close(r.source);
    else
        *source = r.source;
    return status;
}

void conversations_close(ConversationSource *s) {
    if (!s) return;
    token_list_free(&s->tokens);
    memory_free(s->answers.bytes);
    memory_free(s->starts);
    packing_free(&s->rows);
    memory_free(s);
}

ConversationCounts conversations_counts(const ConversationSource *s) {
    return s->counts;
}
int32_t conversations_padding_token(const ConversationSource *s) {
    return s->padding;
}

const int32_t *conversations_tokens(const ConversationSource *s, int64_t conversation, int64_t *length,
                                    const uint8_t **answers) {
    *length = s->starts[conversation + 1] - s->starts[conversation];
    *answers = s->answers.bytes + s->starts[conversation];
    return s->tokens.ids + s->starts[conversation];
}

const int64_t *conversations_row(const ConversationSource *s, int64_t row, int64_t *count) {
    *count = s->rows.starts[row + 1] - s->rows.starts[row];
    return s->rows.items + s->rows.starts[row];
}
