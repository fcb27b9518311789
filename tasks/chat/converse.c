#include "tasks/chat/infer.h"

#include "base/json_writer.h"
#include "base/memory.h"
#include "tasks/chat/chat.h"
#include "tasks/chat/line_editor.h"
#include "tasks/text/draft.h"
#include "tasks/text/infer.h"
#include "data/text_stream.h"
#include "data/end_tokens.h"
#include "run/print_text.h"
#include "run/signals.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The window contains the beginning of every conversation, with the system message and the start of a
 * message; then messages and answers, each pair from the message's content to the next one's. So the oldest
 * pairs can be removed without recomputing anything before them. */
typedef struct {
    const Session *session;
    const InferOptions *options;
    const ChatInfer *own;
    const TextInfer *text;
    SamplerOptions sampling;
    Chat chat;
    Inference inference;
    Draft draft;
    Sampler *sampler;
    bool asks;          // the input is a terminal, so print a prompt
    LineEditor *editor; // the terminal's line editor; NULL: lines are read without one
    Bytes line;         // the message being read
    int64_t *contents;  // (turns) start of each message's content in the window
    int64_t turns, room;
    bool begun;            // the window contains a conversation
    bool ended;            // the last answer's end token is in the window
    char *system;          // the system message, or ""
    ChatMessage *messages; // (message_count) all messages and answers, for /save
    int64_t message_count, message_room;
    int64_t tokens;
    double seconds; // time of all answers
} Talk;

/* ---- the window ---- */

static void forget_oldest(Talk *t) {
    Generator *g = &t->inference.generator;
    int64_t first = t->contents[0], next = t->turns > 1 ? t->contents[1] : g->length;
    generator_forget(g, first, next - first);
    for (int64_t i = 1; i < t->turns; i++) t->contents[i - 1] = t->contents[i] - (next - first);
    t->turns--;
}

/* Removes the oldest messages, down to `least`, until `needed` tokens and some for an answer fit. */
static void make_room(Talk *t, int64_t needed, int64_t least) {
    const Generator *g = &t->inference.generator;
    int64_t before = t->turns, wanted = needed + g->window / 4;
    if (g->length + needed <= g->window) return;
    while (t->turns > least && g->length + wanted > g->window) forget_oldest(t);
    if (before > t->turns)
        fprintf(stderr, "%s(the context of %" PRId64 " tokens is full: the oldest %s gone)\n",
                least ? "\n" : "", g->window, // an unfinished answer has left the cursor after a word
                before - t->turns == 1 ? "message and its answer are" : "messages and their answers are");
}

static void add_turn(Talk *t, int64_t content) {
    t->contents = memory_grow(t->contents, &t->room, t->turns + 1, sizeof *t->contents);
    t->contents[t->turns++] = content;
}

/* Starts the window with the beginning of the conversation and the first message. */
static Status begin(Talk *t, ChatMessage message, TokenList *ids, int64_t *content) {
    const char *system = t->system;
    const ChatMessage both[] = {{ROLE_SYSTEM, system, (int64_t)strlen(system)}, message};
    int64_t given = *system != 0;
    return chat_encode(&t->chat, both + !given, 1 + given, true, ids, content);
}

/* Adds a message to the window; *taken is false if it would not fit even after removing all earlier ones;
 * then nothing is removed. */
static Status take_message(Talk *t, TokenList *ids, bool *taken) {
    Generator *g = &t->inference.generator;
    ChatMessage message = {ROLE_USER, (const char *)t->line.bytes, t->line.count};
    bool first = !t->begun;
    int64_t content, stays = first ? 0 : t->turns ? t->contents[0] : g->length;
    TRY(first ? begin(t, message, ids, &content)
              : chat_encode_next(&t->chat, &message, t->ended, ids, &content));
    *taken = stays + ids->count - (first ? 0 : content) < g->window;
    if (!*taken) {
        fprintf(stderr,
                "(the message is too long: %sit has %" PRId64 " tokens, and the context %" PRId64 ")\n",
                first && *t->system ? "with the system message " : "", ids->count, g->window);
        return OK;
    }
    if (!first) make_room(t, ids->count + 1, 0);    // reserves a token for the answer
    int64_t from = first || t->turns ? 0 : content; // the window still contains the text before the content
    add_turn(t, first ? content : g->length + content - from);
    t->begun = true;
    if (!first) return generator_append(g, ids->ids + from, ids->count - from);
    TRY(generator_start(g, ids->ids, ids->count));
    return generator_prepare(&t->inference.ctx, g, t->sampler);
}

static void remember(Talk *t, ChatRole role, const void *text, int64_t length) {
    t->messages = memory_grow(t->messages, &t->message_room, t->message_count + 1, sizeof *t->messages);
    t->messages[t->message_count++] = (ChatMessage){role, memory_text_slice(text, (size_t)length), length};
}

static void forget_all(Talk *t) {
    for (int64_t i = 0; i < t->message_count; i++) memory_free((char *)t->messages[i].text);
    t->message_count = t->turns = 0;
    t->begun = false;
}

/* ---- an answer ---- */

static bool ends_answer(const Talk *t, int32_t token) {
    return token == t->chat.end || end_tokens_hold(&t->session->config.ends, token);
}

/* Prints the new part of the text. */
static Status show(const Bytes *text, int64_t *shown) {
    int64_t from = *shown;
    *shown = text->count;
    return print_text(NULL, text->bytes + from, text->count - from);
}

/* Samples the answer's tokens, and prints their text. */
static Status write_answer(Talk *t, Bytes *text) {
    Generator *g = &t->inference.generator;
    int64_t shown = 0;
    TextStream stream = {0};
    int32_t token;
    t->ended = false;
    for (int64_t i = 0; i < t->text->tokens && !signals_take(); i++) {
        make_room(t, 1, 1);
        if (g->length == g->window) {
            fprintf(stderr, "\n(the context of %" PRId64 " tokens is full: the answer ends here)", g->window);
            break;
        }
        TRY(generator_next(&t->inference.ctx, g, t->sampler, &token));
        t->tokens++;
        t->ended = token == t->chat.end;
        if (ends_answer(t, token)) break;
        tokenizer_stream(t->session->tokenizer, &stream, token, text);
        TRY(show(text, &shown));
    }
    tokenizer_stream_end(&stream, text);
    remember(t, ROLE_USER, t->line.bytes, t->line.count);
    remember(t, ROLE_ASSISTANT, text->bytes, text->count);
    bytes_put(text, "\n", 1);
    return show(text, &shown);
}

static Status answer(Talk *t) {
    CLOSED_BY(token_list_free) TokenList ids = {0};
    Bytes text = {0};
    bool taken = false;
    double start = device_clock();
    Status status = take_message(t, &ids, &taken);
    if (!status && taken) status = write_answer(t, &text);
    t->seconds += device_clock() - start;
    memory_free(text.bytes);
    return status;
}

/* ---- commands ---- */

static Status show_help(Talk *t, const char *rest) {
    (void)rest;
    fprintf(stderr,
            "/clear         start a new conversation\n"
            "/system TEXT   start anew with this system message; without TEXT, the template's\n"
            "/save FILE     write the conversation as a line of JSON, as training reads it\n"
            "/help          these lines\n"
            "A line that ends in \\ continues in the next.\n"
            "Ctrl-C ends an answer, Ctrl-D the conversation.\n%s",
            t->editor ? "Arrow keys move in the line and recall earlier ones; Ctrl-R searches them.\n" : "");
    return OK;
}

static Status clear(Talk *t, const char *rest) {
    (void)rest;
    forget_all(t);
    return OK;
}

static Status set_system(Talk *t, const char *rest) {
    forget_all(t);
    memory_free(t->system);
    t->system = memory_text(rest);
    return OK;
}

static void write_message(JsonWriter *w, ChatRole role, const char *text, int64_t length) {
    json_write_open(w, '{');
    json_member_text(w, "role", chat_role_name(role));
    json_write_key(w, "content");
    json_write_string(w, text, length);
    json_write_close(w, '}');
}

/* An error of writing the file does not end the conversation. */
static Status save(Talk *t, const char *rest) {
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    json_write_open(&w, '{');
    json_member_open(&w, "messages", '[');
    if (*t->system) write_message(&w, ROLE_SYSTEM, t->system, (int64_t)strlen(t->system));
    for (int64_t i = 0; i < t->message_count; i++)
        write_message(&w, t->messages[i].role, t->messages[i].text, t->messages[i].length);
    json_write_close(&w, ']');
    json_write_close(&w, '}');
    Status status = *rest ? json_writer_save(&w, rest) : fail(ERROR_USAGE, "/save needs the name of a file");
    if (status)
        fprintf(stderr, "(%s)\n", status_message(status));
    else
        fprintf(stderr, "(saved in %s)\n", rest);
    status_free(status);
    return OK;
}

/* Executes a line that is a command: its word, optionally followed by a space and an argument. */
static Status execute_command(Talk *t, bool *executed) {
    static const struct {
        const char *name;
        Status (*execute_command)(Talk *talk, const char *rest);
        bool takes; // takes an argument
    } commands[] = {{"/help", show_help, false},
                    {"/clear", clear, false},
                    {"/system", set_system, true},
                    {"/save", save, true}};
    OWNED char *line = memory_text_slice((const char *)t->line.bytes, (size_t)t->line.count);
    *executed = false;
    for (size_t i = 0; !*executed && i < sizeof commands / sizeof *commands; i++) {
        size_t length = strlen(commands[i].name);
        if (strncmp(line, commands[i].name, length) != 0) continue;
        bool more = line[length] == ' ' && commands[i].takes;
        if (line[length] && !more) continue;
        *executed = true;
        TRY(commands[i].execute_command(t, line + length + more));
    }
    return OK;
}

/* ---- the conversation ---- */

/* Appends the next line without its end; returns false at the end of the input, or at Ctrl-C. */
static bool read_line(Talk *t, const char *prompt) {
    int64_t first = t->line.count, length;
    if (t->editor) {
        const char *typed = line_editor_read(t->editor, prompt, &length);
        if (typed) bytes_put(&t->line, typed, length);
        return typed;
    }
    int c;
    if (t->asks) fprintf(stderr, "%s", prompt);
    while ((c = getchar()) != EOF && c != '\n') bytes_put(&t->line, &(char){(char)c}, 1);
    if (t->line.count > first && t->line.bytes[t->line.count - 1] == '\r') t->line.count--;
    return c != EOF || t->line.count > first;
}

static bool goes_on(const Bytes *line) {
    return line->count && line->bytes[line->count - 1] == '\\';
}

/* Reads a message. A line that ends in a backslash continues on the next. Returns false at the end of the
 * input, or at Ctrl-C. */
static bool read_message(Talk *t) {
    t->line.count = 0;
    bool more = read_line(t, "> ");
    while (more && goes_on(&t->line)) {
        t->line.bytes[t->line.count - 1] = '\n';
        more = read_line(t, "  ");
    }
    return !signals_take() && (more || t->line.count);
}

static void greet(const Talk *t) {
    fprintf(stderr,
            "%s, %" PRId64 " tokens of context. /help lists the commands.\n"
            "Ctrl-C ends an answer, Ctrl-D the conversation%s.\n",
            session_model_name(t->session), t->inference.generator.window,
            t->editor ? "; the arrow keys recall earlier lines" : "");
}

static Status converse(Talk *t) {
    bool executed;
    if (t->asks && !t->options->quiet) greet(t);
    while (read_message(t)) {
        TRY(execute_command(t, &executed));
        if (t->line.count && !executed) TRY(answer(t));
    }
    if (t->asks) fprintf(stderr, "\n");
    if (!t->options->quiet && t->tokens)
        fprintf(stderr, "%" PRId64 " tokens in %.2f s (%.0f tok/s)\n", t->tokens, t->seconds,
                (double)t->tokens / t->seconds);
    if (!t->options->quiet) draft_print(&t->inference.generator);
    return OK;
}

static Status open_talk(Talk *t, const OptionSet *set) {
    const Session *s = t->session;
    Inference *in = &t->inference;
    int64_t wanted = t->text->context ? t->text->context : CHAT_WINDOW;
    TRY(chat_open(s->tokenizer, t->own->template, &t->chat));
    TRY(inference_open(in, s, true));
    in->use = INFERENCE_GENERATE;
    in->generator.window = wanted < s->config.context ? wanted : s->config.context;
    TRY(draft_open(&t->draft, s, t->options, set, in));
    TRY(inference_start(in, s, false, t->options->seed));
    t->asks = isatty(STDIN_FILENO);
    if (t->asks && isatty(STDERR_FILENO) && line_editor_open) t->editor = line_editor_open();
    return sampler_open(s->config.vocab, &t->sampling, &t->sampler);
}

Status chat_converse(Session *session, const InferOptions *options, const OptionSet *set) {
    Talk t = {.session = session,
              .options = options,
              .own = options_values(set, &chat_infer),
              .text = options_values(set, &text_infer),
              .sampling = text_sampler(options, set)};
    TRY(text_check_model(session, options, set, "chat"));
    t.system = memory_text(t.own->system);
    Status status = open_talk(&t, set);
    if (!status) signals_catch_interrupt();
    if (!status) status = converse(&t);
    sampler_close(t.sampler);
    if (t.editor) line_editor_close(t.editor);
    if (t.inference.ctx.device) inference_close(&t.inference);
    draft_close(&t.draft);
    chat_close(&t.chat);
    forget_all(&t);
    memory_free(t.messages);
    memory_free(t.system);
    memory_free(t.line.bytes);
    memory_free(t.contents);
    return status;
}
