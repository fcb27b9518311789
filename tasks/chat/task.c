/* The task "chat": predicting the assistant's next token. */
#include "base/files.h"
#include "base/memory.h"
#include "run/option_rows.h"
#include "tasks/chat/chat.h"
#include "tasks/chat/conversations.h"
#include "tasks/chat/infer.h"
#include "tasks/task.h"
#include "tasks/text/infer.h"
#include "tasks/text/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    ConversationSource *conversations;
    int64_t padded, padded_unpacked; // tokens of an epoch's batches, including padding; the same number if
                                     // each conversation were a row
} Source;

typedef struct {
    const char *template; // "chatml", ...; "": the model's own
} ChatTrain;

#define AT(member) .field = offsetof(ChatTrain, member)

static const Option train_rows[] = {
    HEADING("Conversations, with a chat model"),
    {TEXT("template", "NAME", template), .doc = "chatml, llama3, zephyr or mistral",
     .default_text = "the model's", .travels = true},
};

static const ChatTrain defaults = {""};

static const OptionTable chat_train = {train_rows, sizeof train_rows / sizeof *train_rows, &defaults,
                                       sizeof defaults};

/* Takes JSON lines, unless the options name the key of plain texts in them. */
static bool takes(const TrainOptions *o) {
    return path_ends_with(o->data, ".jsonl") && !*o->field;
}

/* A chosen template becomes the tokenizer's, which samples use and checkpoints contain. */
static Status begin(TrainOptions *o, const OptionSet *set, Session *session, Feed *feed) {
    const ChatTrain *own = options_values(set, &chat_train);
    ChatTemplate chosen;
    (void)o, (void)feed;
    if (!*own->template || !session->tokenizer) return OK;
    TRY(chat_template_open(session->tokenizer, own->template, &chosen));
    chat_template_free(&chosen);
    tokenizer_choose_template(session->tokenizer, chat_template_named(own->template));
    return OK;
}

static void close_source(void *source) {
    Source *s = source;
    if (s) conversations_close(s->conversations);
    memory_free(s);
}

static Status open_source(const FeedOptions *o, const char *data, void **source) {
    ConversationSource *conversations = NULL;
    Tokenizer *tokenizer = o->session->tokenizer;
    if (!tokenizer)
        return fail(ERROR_USAGE, "conversations need a tokenizer; name one with --tokenizer=FOLDER");
    const ChatTrain *own = options_values(o->set, &chat_train);
    const ConversationOptions options = {data, tokenizer, own->template, o->options->seq,
                                         .packed = o->session->config.positions == POSITIONS_ROTARY};
    TRY(conversations_open(&options, &conversations));
    Source *s = memory_allocate(sizeof *s);
    s->conversations = conversations;
    *source = s;
    return OK;
}

static ConversationCounts counts_of(const void *source) {
    return conversations_counts(((const Source *)source)->conversations);
}

static int64_t rows(const void *source) {
    return counts_of(source).rows;
}

static Status make(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader) {
    (void)o;
    return loader_open_conversations(part, ((const Source *)source)->conversations, loader);
}

static Status count(const FeedOptions *o, void *source) {
    Source *s = source;
    const TrainOptions *t = o->options;
    TRY(conversations_padded(s->conversations, t->batch, t->seq, true, &s->padded_unpacked));
    return conversations_padded(s->conversations, t->batch, t->seq, false, &s->padded);
}

static void print(const void *source, const Session *session) {
    const Source *s = source;
    const ConversationCounts c = counts_of(source);
    printf("%" PRId64 " conversations (%" PRId64 " cut, %" PRId64 " left out) in %" PRId64
           " rows, %.1f%% padding (%.1f%% if each were a row), %" PRId64 " tokens of answers among ",
           c.conversations, c.cut, c.left_out, c.rows, 100 - 100 * (double)c.tokens / (double)s->padded,
           100 - 100 * (double)c.tokens / (double)s->padded_unpacked, c.answers);
    feed_print_tokens(c.tokens, NULL, session->tokenizer);
}

static void record(const void *source, JsonWriter *w) {
    const ConversationCounts c = counts_of(source);
    json_member_integer(w, "data_tokens", c.tokens);
    json_member_integer(w, "data_conversations", c.conversations);
    json_member_integer(w, "data_conversations_cut", c.cut);
    json_member_integer(w, "data_conversations_left_out", c.left_out);
    json_member_integer(w, "data_answer_tokens", c.answers);
    json_member_integer(w, "data_rows", c.rows);
    json_member_integer(w, "data_tokens_padded", ((const Source *)source)->padded);
}

/* A sample of the row's first conversation. */
static Status sample(const void *source, int64_t row, int32_t *out, int64_t *length) {
    const ConversationSource *conversations = ((const Source *)source)->conversations;
    const uint8_t *answers;
    int64_t members;
    const int64_t *list = conversations_row(conversations, row, &members);
    const int32_t *ids = conversations_tokens(conversations, list[0], length, &answers);
    if (*length > FEED_SAMPLE) *length = FEED_SAMPLE;
    memcpy(out, ids, (size_t)*length * sizeof *out);
    return OK;
}

/* ---- samples: answers that ./train writes regularly ---- */

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

static Status plan_samples(const OptionSet *set, const Session *s, int64_t *every, int64_t *window) {
    CLOSED_BY(close_sample) ChatSample sample = {0};
    *every = text_sample_every(set, s);
    if (!*every) return OK;
    TRY(open_sample(set, s, 0, 0, &sample));
    return stream_text_window(s->tokenizer, &sample.options, &s->config, window);
}

static Status write_sample(const OptionSet *set, const Session *s, Trainer *t, int64_t step, char **text,
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

static const Samples samples = {plan_samples, write_sample};

/* ---- commands of ./infer ---- */

/* An answer ends by itself, unless --tokens limits it. */
static Status check_conversation(const InferOptions *o, const OptionSet *set) {
    TextInfer *text = options_values(set, &text_infer);
    (void)o;
    if (!options_given(set, "tokens")) text->tokens = options_find(set, "tokens")->most;
    return text_check_sampling(set);
}

static Status check_prompts(const InferOptions *o, const OptionSet *set) {
    (void)o;
    return text_check_sampling(set);
}

static const Command commands[] = {
    {.selector = "chat",
     .reads = TEXT_SAMPLING " tokens context draft system template",
     .check = check_conversation,
     .run = chat_converse},
    {.selector = "prompts",
     .reads = TEXT_SAMPLING " tokens template batch output",
     .check = check_prompts,
     .run = chat_answer_prompts},
    {0},
};

const TaskRow task_chat = {.trains = TASK_NEXT_TOKEN,
                           .models = "a decoder-only model",
                           .data = "conversations: --data=FILE.jsonl",
                           .train = &chat_train,
                           .infer = &chat_infer,
                           .reads = TEXT_SAMPLES,
                           .samples = &samples,
                           .commands = commands,
                           .takes = takes,
                           .begin = begin,
                           .batches = {.rows_name = "rows of conversations",
                                       .held = BATCHES_HELD,
                                       .varied = true,
                                       .open = open_source,
                                       .rows = rows,
                                       .make = make,
                                       .count = count,
                                       .print = print,
                                       .record = record,
                                       .sample = sample,
                                       .close = close_source}};
