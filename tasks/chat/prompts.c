#include "tasks/chat/infer.h"

#include "base/json_writer.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "tasks/chat/chat.h"
#include "tasks/text/infer.h"
#include "data/end_tokens.h"
#include "data/lines.h"
#include "data/text_stream.h"
#include "data/digest.h"
#include "kernels/decode/decode.h"
#include "run/answers.h"
#include "run/batch_generator.h"
#include "run/runner.h"
#include "run/signals.h"
#include "tasks/text/stream_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A line. */
typedef struct {
    int64_t first, length; // its tokens: Job.tokens[first, first + length)
} Prompt;

typedef struct {
    const Session *session;
    const InferOptions *options;
    const OptionSet *set;
    const ChatInfer *own;
    int64_t most; // most tokens of an answer
    SamplerOptions sampling;
    Chat chat; // opened by the first line with messages
    ChatMessages messages;
    TokenList tokens;
    Prompt *prompts; // (count)
    int64_t count, room;
    int64_t longest; // tokens of the longest prompt
    int64_t next;    // the next prompt to begin
    Answers *answers;
    bool warned; // the warning about an unknown key was printed
    Ctx ctx;
    Transformer model;
    BatchGenerator generator;
} Job;

/* ---- reading ---- */

static Status read_messages(Job *job, const json_t *object) {
    if (!job->chat.tokenizer) TRY(chat_open(job->session->tokenizer, job->own->template, &job->chat));
    TRY(chat_read_messages(object, &job->messages));
    return chat_encode(&job->chat, job->messages.list, job->messages.count, true, &job->tokens, NULL);
}

static Status read_text(Job *job, const json_t *object) {
    TextOptions text = {0};
    TRY(json_line_text(object, "prompt", &text.prompt, &text.prompt_length));
    return stream_text_prompt(job->session->tokenizer, &text, &job->tokens);
}

/* Warns, once, about a key that is not supported. */
static void warn_unknown(Job *job, const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (job->warned || strcmp(key, "prompt") == 0 || strcmp(key, "messages") == 0) continue;
        char name[64];
        snprintf(name, sizeof name, "%s", key);
        utf8_tame(name, (int64_t)strlen(name), false);
        fprintf(
            stderr,
            "(\"prompt\" and \"messages\" are read from a line; other keys, such as \"%s\", are ignored)\n",
            name);
        job->warned = true;
    }
}

static Status read_prompt(void *context, const json_t *object) {
    Job *job = context;
    int64_t first = job->tokens.count, most = job->session->config.context;
    warn_unknown(job, object);
    TRY(json_object_get(object, "messages") ? read_messages(job, object) : read_text(job, object));
    int64_t length = job->tokens.count - first;
    if (length >= most)
        return fail(ERROR_FORMAT, "the prompt has %" PRId64 " tokens, and the model's context is %" PRId64,
                    length, most);
    job->prompts = memory_grow(job->prompts, &job->room, job->count + 1, sizeof *job->prompts);
    job->prompts[job->count] = (Prompt){.first = first, .length = length};
    job->count++;
    if (length > job->longest) job->longest = length;
    return OK;
}

/* ---- writing ---- */

static Status write_answer(void *context, BatchRow *row) {
    const Job *job = context;
    Bytes text = {0};
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    TextStream stream = {.begun = !job->chat.tokenizer};
    for (int64_t i = row->prompt; i < row->text.count; i++)
        tokenizer_stream(job->session->tokenizer, &stream, row->text.ids[i], &text);
    tokenizer_stream_end(&stream, &text);
    json_write_open(&w, '{');
    json_write_key(&w, "text");
    json_write_string(&w, (const char *)text.bytes, text.count);
    json_member_integer(&w, "tokens", row->text.count - row->prompt);
    json_write_key(&w, "ended");
    json_write_boolean(&w, row->ended);
    json_write_close(&w, '}');
    Status status = answers_add(job->answers, row->number, w.text, (int64_t)w.length);
    memory_free(text.bytes);
    return status;
}

/* ---- running ---- */

/* Without --fused, texts that are computed side by side do not change each other's bits where that costs
 * nothing (docs/benchmarks.md): in bf16 on a GPU whose decode kernels have FUSE_INVARIANT. */
static void keep_texts_apart(Session *s, const OptionSet *set) {
    const Config *c = &s->config;
    const DecodeSizes sizes = {.width = c->width, .head_size = c->head_size, .hidden = c->hidden};
    const Ctx ctx = {.device = s->device, .dtype = s->dtype, .fuses = s->fuses | FUSE_INVARIANT};
    if (options_given(set, "fused") || s->dtype != BF16 || s->packed != F32) return;
    if (s->device->backend == BACKEND_CUDA && decode_cuda_serves && decode_cuda_serves(&ctx, &sizes))
        s->fuses |= FUSE_INVARIANT;
}

static Status rehearse(Ctx *ctx, void *program) {
    Job *job = program;
    TRY(transformer_take(ctx, &job->model, false));
    return batch_generator_take(ctx, &job->generator);
}

static Status prepare(Job *job) {
    const Session *s = job->session;
    const InferOptions *o = job->options;
    int64_t window = job->longest + job->most;
    if (window > s->config.context) window = s->config.context;
    TRY(runner_open(s, &job->ctx, &job->model));
    batch_generator_open(&job->model, o->batch < job->count ? o->batch : job->count, window, &job->generator);
    return runner_start(&(Runner){s, &job->ctx, &job->model, rehearse, job, false, o->seed, NULL});
}

static bool ends_text(void *context, const BatchRow *row, int32_t token) {
    const Job *job = context;
    (void)row;
    const EndTokens *ends = &job->session->config.ends;
    if (job->chat.tokenizer && token == job->chat.end) return true;
    return ends->count ? end_tokens_hold(ends, token)
                       : token == tokenizer_end_of_text(job->session->tokenizer);
}

/* A prompt's number determines its random numbers, so its answer does not depend on the rest of the batch. An
 * interrupted run finishes the texts that it has begun. */
static Status next_prompt(void *context, BatchRow *row, bool *any) {
    Job *job = context;
    *any = job->next < job->count && !signals_caught();
    if (!*any) return OK;
    const Prompt *prompt = &job->prompts[job->next];
    SamplerOptions sampling = job->sampling;
    sampling.sequence = (uint64_t)job->next;
    row->number = job->next++;
    row->prompt = prompt->length;
    for (int64_t t = 0; t < prompt->length; t++)
        token_list_add(&row->text, job->tokens.ids[prompt->first + t]);
    return sampler_open(job->session->config.vocab, &sampling, &row->sampler);
}

static Status open_answers(Job *job) {
    const TokenList *tokens = &job->tokens;
    const AnswersOptions options = {
        .session = job->session,
        .options = job->options,
        .set = job->set,
        .input = digest_bytes(tokens->ids, (size_t)tokens->count * sizeof *tokens->ids),
        .total = job->count};
    return answers_open(&options, &job->answers);
}

static Status run_all(Job *job) {
    bool whole;
    TRY(json_lines_read(job->own->prompts, read_prompt, job));
    if (!job->count) return fail(ERROR_FORMAT, "%s has no prompts", job->own->prompts);
    TRY(open_answers(job));
    job->next = answers_kept(job->answers);
    TRY(prepare(job));
    TRY(batch_generator_run(&job->ctx, &job->generator,
                            &(BatchTexts){.context = job,
                                          .tokens = job->most,
                                          .next = next_prompt,
                                          .ends = ends_text,
                                          .finish = write_answer}));
    return answers_finish(job->answers, &whole);
}

Status chat_answer_prompts(Session *session, const InferOptions *options, const OptionSet *set) {
    const TextInfer *text = options_values(set, &text_infer);
    Job job = {.session = session,
               .options = options,
               .set = set,
               .own = options_values(set, &chat_infer),
               .most = text->tokens,
               .sampling = text_sampler(options, set)};
    TRY(text_check_model(session, options, set, "prompts"));
    keep_texts_apart(session, set);
    Status status = run_all(&job);
    answers_close(job.answers);
    memory_free(job.prompts);
    memory_free(job.messages.list);
    token_list_free(&job.tokens);
    batch_generator_close(&job.generator);
    transformer_close(&job.model);
    if (job.ctx.device) ctx_close(&job.ctx);
    chat_close(&job.chat);
    return status;
}
