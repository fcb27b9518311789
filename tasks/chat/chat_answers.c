/* Finds the assistant's tokens of a conversation by comparing renderings of the template. */
#define _GNU_SOURCE
#include "base/memory.h"
#include "tasks/chat/chat.h"

#include <string.h>

typedef struct {
    const Chat *chat;
    ChatMessage *messages; // a copy of the conversation's messages
    int64_t count;
    JinjaOutput text; // rendering of the conversation
    const int32_t *ids;
    int64_t length; // number of ids
    uint8_t *marks; // (length)
} Answers;

static Status render(const Answers *a, int64_t count, bool ask, JinjaOutput *output) {
    return chat_template_render(&a->chat->template, a->messages, count, ask, output);
}

static Status find_token(const Answers *a, int64_t offset, int64_t *token) {
    return chat_find_token(a->chat, &a->text, offset, a->ids, a->length, token);
}

static Status ambiguous(int64_t message) {
    return fail(
        ERROR_FORMAT,
        "message %lld: the position of the answer cannot be determined from the chat template's output",
        (long long)message + 1);
}

/* ---- where an answer is ---- */

/* The number of equal bytes at the beginning, or at the end; at most `most`. */
static int64_t same_bytes(const JinjaOutput *a, const JinjaOutput *b, bool end, int64_t most) {
    int64_t same = 0;
    if (most > a->length) most = a->length;
    if (most > b->length) most = b->length;
    while (same < most && (end ? a->text[a->length - 1 - same] == b->text[b->length - 1 - same]
                               : a->text[same] == b->text[same]))
        same++;
    return same;
}

/* The position where an answer to the preceding messages would begin: after the prompt for an answer. -1:
 * unknown, because the conversation continues differently from the prompt. */
static int64_t find_asked(const Answers *a, int64_t message) {
    CLOSED_BY(jinja_output_free) JinjaOutput before = {0};
    Status status = render(a, message, true, &before);
    if (status) {
        status_free(status);
        return -1;
    }
    return same_bytes(&before, &a->text, false, before.length) < before.length ? -1 : before.length;
}

/* Locates an answer by a rendering with a sentinel in its place: the text before and after the sentinel is
 * the same in the conversation. Only text before the content may depend on the answer, if the prompt is
 * further ahead. */
static Status place_answer(const Answers *a, int64_t message, const JinjaOutput *marked, int64_t at,
                           int64_t size, int64_t *from, int64_t *to) {
    int64_t behind = marked->length - at - size, before = same_bytes(&a->text, marked, false, at);
    int64_t asked = find_asked(a, message);
    if (same_bytes(&a->text, marked, true, behind) < behind || a->text.length - behind < before)
        return ambiguous(message);
    *to = a->text.length - behind;
    bool known = asked >= 0 && asked <= *to;
    *from = known ? asked : before;
    return before == at || (known && asked <= before) ? OK : ambiguous(message);
}

/* *from is -1 if the template does not print the message. */
static Status find_answer(const Answers *a, int64_t message, int64_t *from, int64_t *to) {
    char sentinel[SENTINEL_SIZE];
    CLOSED_BY(jinja_output_free) JinjaOutput marked = {0};
    const ChatMessage answer = a->messages[message];
    chat_choose_sentinel(a->text.text, a->text.length, sentinel);
    a->messages[message].text = sentinel;
    a->messages[message].length = (int64_t)strlen(sentinel);
    Status status = render(a, a->count, false, &marked);
    a->messages[message] = answer;
    TRY(status);
    const int64_t at = chat_find_sentinel(&marked, sentinel);
    bool same = marked.length == a->text.length &&
                same_bytes(&marked, &a->text, false, marked.length) == marked.length;
    *from = -1;
    if (at >= 0) return place_answer(a, message, &marked, at, (int64_t)strlen(sentinel), from, to);
    return at == -2 || !same ? ambiguous(message) : OK;
}

/* ---- marking ---- */

/* Whether the end token follows, apart from spaces. */
static bool ends_at(const Answers *a, int64_t offset) {
    int64_t length;
    const char *end = (const char *)tokenizer_decode(a->chat->tokenizer, a->chat->end, &length);
    while (offset < a->text.length && strchr(" \n\t\r", a->text.text[offset])) offset++;
    return end && a->text.length - offset >= length &&
           memcmp(a->text.text + offset, end, (size_t)length) == 0;
}

/* An answer that spells the end token ends there. If the template does not end an answer, only its text is
 * marked. */
static Status mark_answer(const Answers *a, int64_t from, int64_t to) {
    int64_t token, last = a->length;
    bool ended = false;
    TRY(find_token(a, from, &token));
    if (!ends_at(a, to)) TRY(find_token(a, to, &last));
    for (; token < last && !ended; token++) {
        a->marks[token] = 1;
        ended = a->ids[token] == a->chat->end;
    }
    return OK;
}

static Status mark_answers(const Answers *a) {
    if (!a->chat->ends)
        return fail(ERROR_FORMAT,
                    "the chat template ends an answer without a token, so a model cannot learn to end one");
    for (int64_t i = 0; i < a->count; i++) {
        int64_t from, to;
        if (a->messages[i].role != ROLE_ASSISTANT) continue;
        TRY(find_answer(a, i, &from, &to));
        if (from >= 0) TRY(mark_answer(a, from, to));
    }
    return OK;
}

/* Marks the template's own spans, including tokens that begin or end within them. */
static Status mark_spans(const Answers *a) {
    if (a->text.hidden)
        return fail(ERROR_FORMAT,
                    "the chat template has {%% generation %%} where its position cannot be determined");
    for (int64_t i = 0; i < a->text.spans_count; i++) {
        int64_t from = a->text.spans[i][0], last = a->text.spans[i][1] - 1, token, end;
        if (last < from) continue;
        while (last > from && ((uint8_t)a->text.text[last] & 0xc0) == 0x80) last--;
        TRY(find_token(a, from, &token));
        TRY(find_token(a, last, &end));
        for (; token <= end && token < a->length; token++) a->marks[token] = 1;
    }
    return OK;
}

static Status encode(Answers *a, TokenList *ids, Bytes *answers) {
    int64_t first = ids->count;
    TRY(render(a, a->count, false, &a->text));
    TRY(tokenizer_encode_special(a->chat->tokenizer, a->text.text, a->text.length, ids));
    a->length = ids->count - first;
    if (!a->length) return OK;
    a->ids = ids->ids + first;
    bytes_reserve(answers, a->length);
    a->marks = answers->bytes + answers->count;
    memset(a->marks, 0, (size_t)a->length);
    answers->count += a->length;
    return jinja_marks_generation(a->chat->template.jinja) ? mark_spans(a) : mark_answers(a);
}

Status chat_encode_answers(const Chat *chat, const ChatMessage *messages, int64_t count, TokenList *ids,
                           Bytes *answers) {
    Answers a = {.chat = chat, .messages = memory_array((size_t)count, sizeof *messages), .count = count};
    memcpy(a.messages, messages, (size_t)count * sizeof *messages);
    Status status = encode(&a, ids, answers);
    memory_free(a.messages);
    jinja_output_free(&a.text);
    return status;
}
