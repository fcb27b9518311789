#include "data/conversations.h"

#include "base/memory.h"
#include "data/chat_json.h"
#include "data/json_lines.h"
#include "data/tokens.h"

struct ConversationSource {
    TokenList tokens; // of all rows, one after the other
    Bytes answers;
    int64_t *starts; // (counts.rows + 1)
    int64_t room;
    int32_t padding;
    ConversationCounts counts;
};

typedef struct {
    ConversationSource *source;
    Chat chat;
    int64_t seq;
    ChatMessages messages;
} Reading;

/* Keeps the row from `first` on, if it has a target; a target's input stands before it. */
static void keep_row(Reading *r, int64_t first) {
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
    s->starts = memory_grow(s->starts, &s->room, ++c->rows + 1, sizeof *s->starts);
    s->starts[c->rows - 1] = first;
    s->starts[c->rows] = first + length;
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
    keep_row(r, first);
    return OK;
}

static Status read_files(Reading *r, const char *path) {
    PathList files = {0};
    Status status = tokens_find_files(path, &files);
    for (int64_t i = 0; i < files.count && !status; i++)
        status = json_lines_read(files.paths[i], read_conversation, r);
    path_list_free(&files);
    if (status || r->source->counts.rows) return status;
    return fail(ERROR_FORMAT, "%s: no conversation has an answer of the assistant's in its first %lld tokens",
                path, (long long)r->seq);
}

Status conversations_open(const ConversationOptions *o, ConversationSource **source) {
    *source = NULL;
    Reading r = {.source = memory_allocate(sizeof *r.source), .seq = o->seq};
    Status status = chat_open(o->tokenizer, o->template, &r.chat);
    if (!status) r.source->padding = r.chat.end;
    if (!status) status = read_files(&r, o->path);
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
    memory_free(s);
}

ConversationCounts conversations_counts(const ConversationSource *s) {
    return s->counts;
}
int32_t conversations_padding_token(const ConversationSource *s) {
    return s->padding;
}

const int32_t *conversations_row(const ConversationSource *s, int64_t row, int64_t *length,
                                 const uint8_t **answers) {
    *length = s->starts[row + 1] - s->starts[row];
    *answers = s->answers.bytes + s->starts[row];
    return s->tokens.ids + s->starts[row];
}
