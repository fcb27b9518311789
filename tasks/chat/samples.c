#include "tasks/chat/samples.h"

#include "base/memory.h"
#include "tasks/chat/chat.h"
#include "tasks/text/train.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *message;
    TextOptions options; // options of the answer
    TokenList ids;       // tokens of the message, in the template
    int32_t end;
} ChatSample;

/* --template has been stored in the tokenizer. */
static Status open_sample(const OptionSet *set, const Session *s, uint64_t seed, int64_t step,
                          ChatSample *sample) {
    Chat chat;
    TextOptions *o = &sample->options;
    *o = text_sample_options(set, seed, step);
    sample->message = *o->prompt ? o->prompt : "Hello!";
    const ChatMessage message = {ROLE_USER, sample->message, (int64_t)strlen(sample->message)};
    TRY(chat_open(s->tokenizer, "", &chat));
    Status status = chat_encode(&chat, &message, 1, true, &sample->ids, NULL);
    sample->end = chat.end;
    chat_close(&chat);
    o->prompt = "";
    o->prompt_length = 0;
    o->ids = &sample->ids;
    o->end = &sample->end;
    return status ? fail_at(status, "a sample; --sample-every=0 writes none") : OK;
}

static void close_sample(ChatSample *sample) {
    token_list_free(&sample->ids);
}

static Status plan(const OptionSet *set, const Session *s, int64_t *every, int64_t *window) {
    CLOSED_BY(close_sample) ChatSample sample = {0};
    *every = text_sample_every(set, s);
    if (!*every) return OK;
    TRY(open_sample(set, s, 0, 0, &sample));
    return stream_text_window(s->tokenizer, &sample.options, &s->config, window);
}

static Status write(const OptionSet *set, const Session *s, Trainer *t, int64_t step, char **text,
                    int64_t *length) {
    CLOSED_BY(close_sample) ChatSample sample = {0};
    OWNED char *answer = NULL;
    TRY(open_sample(set, s, t->seed, step, &sample));
    TRY(stream_text_collect(&t->ctx, &t->generator, s->tokenizer, &sample.options, &answer, length));
    size_t before = strlen(sample.message) + 3, all = before + (size_t)*length;
    *text = memory_allocate(all + 1);
    snprintf(*text, all + 1, "> %s\n", sample.message);
    if (*length) memcpy(*text + before, answer, (size_t)*length);
    *length = (int64_t)all;
    return OK;
}

const Samples chat_samples = {plan, write};
