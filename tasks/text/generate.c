/* ./infer --prompt: continues a text. */
#include "base/files.h"
#include "base/memory.h"
#include "run/inference.h"
#include "run/print_text.h"
#include "tasks/text/draft.h"
#include "tasks/text/stream_text.h"
#include "tasks/text/text_profile.h"
#include "tasks/text/infer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PROMPT_LIMIT = 64 << 20 }; // bytes

typedef struct {
    Session *session;
    const InferOptions *options;
    const OptionSet *set;
    const TextInfer *own;
    Inference inference;
    Draft draft;
    Peaks peaks;
} Job;

static Status read_prompt(const char *option, char **prompt, int64_t *length) {
    if (strcmp(option, "-") == 0) return file_read("/dev/stdin", PROMPT_LIMIT, prompt, length);
    *prompt = memory_text(option);
    *length = (int64_t)strlen(option);
    return OK;
}

/* Memory for a text of `window` tokens, with --compare for both forms; then weights. */
static Status prepare(Job *job, int64_t window) {
    Inference *in = &job->inference;
    const InferOptions *o = job->options;
    const Session *s = job->session;
    TRY(inference_open(in, s, !job->own->no_cache));
    in->use = INFERENCE_GENERATE;
    in->generator.window = window;
    TRY(draft_open(&job->draft, s, o, job->set, in));
    if (*o->profiling.window) TRY(compute_options_peaks(&o->compute, job->set, &in->ctx, &job->peaks));
    return inference_start(in, s, o->compare, o->seed);
}

static Status write_on(Job *job, const TextOptions *options, TextStats *stats) {
    const InferOptions *o = job->options;
    Inference *in = &job->inference;
    Tokenizer *tokenizer = job->session->tokenizer;
    const TextProfile profile = {.session = job->session,
                                 .options = &o->profiling,
                                 .peaks = &job->peaks,
                                 .compare = o->compare,
                                 .file = o->quiet ? NULL : stderr};
    if (*o->profiling.window)
        return text_profile(&in->ctx, &in->generator, tokenizer, options, &profile, print_text, NULL, stats);
    TRY(stream_text(&in->ctx, &in->generator, tokenizer, options, print_text, NULL, stats));
    return print_text(NULL, "\n", 1);
}

/* The first token comes from the prefill. */
static void print_speed(const TextInfer *own, const TextStats *stats) {
    const int64_t decoded = stats->tokens > 1 ? stats->tokens - 1 : 0;
    double prefill = stats->prefill_seconds, decode = stats->decode_seconds;
    fprintf(stderr,
            "prefill %" PRId64 " tokens in %.2f ms (%.0f tok/s); decode %" PRId64 " tokens in %.2f ms (%.0f "
            "tok/s)%s\n",
            stats->prompt_tokens, 1e3 * prefill, prefill > 0 ? (double)stats->prompt_tokens / prefill : 0,
            decoded, 1e3 * decode, decode > 0 ? (double)decoded / decode : 0,
            own->no_cache ? ", without a cache" : "");
}

/* Each answer has separate random numbers; the first is the same as without the others. */
static Status write_answers(Job *job, TextOptions *options) {
    const bool quiet = job->options->quiet;
    const int64_t count = job->own->answers;
    TextStats stats = {0};
    for (int64_t i = 0; i < count; i++) {
        options->sampler.sequence = (uint64_t)i;
        if (count > 1) printf("[%" PRId64 "]\n", i + 1);
        if (!quiet) TRY(print_text(NULL, options->prompt, options->prompt_length));
        TRY(write_on(job, options, &stats));
        if (!i && stats.left_out)
            fprintf(stderr,
                    "PROMPT CUT: of its %" PRId64 " tokens only the last %" PRId64
                    " were read, which is the context\n",
                    stats.left_out + stats.prompt_tokens, stats.prompt_tokens);
        if (!quiet) print_speed(job->own, &stats);
        if (!quiet) draft_print(&job->inference.generator);
    }
    return OK;
}

/* The window is --context, or else the prompt and the requested tokens. */
static Status run(Job *job) {
    const InferOptions *o = job->options;
    const TextInfer *own = job->own;
    OWNED char *prompt = NULL;
    TextOptions options = {.tokens = own->tokens, .stop = own->stop, .sampler = text_sampler(o, job->set)};
    int64_t window = own->context;
    TRY(text_check_model(job->session, o, job->set, "prompt"));
    TRY(read_prompt(own->prompt, &prompt, &options.prompt_length));
    options.prompt = prompt;
    if (!window) TRY(stream_text_window(job->session->tokenizer, &options, &job->session->config, &window));
    TRY(prepare(job, window));
    return write_answers(job, &options);
}

static void job_close(Job *job) {
    inference_close(&job->inference);
    draft_close(&job->draft);
}

Status generate_text(Session *session, const InferOptions *options, const OptionSet *set) {
    CLOSED_BY(job_close)
    Job job = {.session = session, .options = options, .set = set, .own = options_values(set, &text_infer)};
    return run(&job);
}
