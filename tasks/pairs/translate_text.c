#include "tasks/pairs/infer.h"

#include "base/memory.h"
#include "tasks/pairs/bleu.h"
#include "data/digest.h"
#include "run/answers.h"
#include "run/generate.h"
#include "run/runner.h"
#include "run/profiling.h"
#include "run/signals.h"
#include "tasks/text/text_lines.h"
#include "tasks/text/text_profile.h"
#include "tasks/pairs/translate.h"
#include "tasks/text/infer.h"
#include "base/stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    Session *session;
    const InferOptions *options;
    const OptionSet *set;
    const PairsInfer *own;
    const TextInfer *text;
    TextLines source;
    Lines reference;
    Answers *answers;
    Bytes translation; // the latest translation
    Bleu bleu;         // BLEU of all translations so far, with --reference
    Sentence *batch;   // (options->batch)
    int64_t batched;   // number of sentences in the current batch
    int64_t decoded;   // tokens of all translations
    Ctx ctx;
    Transformer model;
    bool greedy; // one hypothesis of one sentence at a time: uses the generator, which samples on the device
    Translator translator; // used unless greedy
    Generator generator;   // used if greedy
    Sampler *sampler;
    TokenList greedy_tokens;
    Peaks peaks;
    Profiling *profiling; // NULL without --profile
    int64_t step;         // batches so far
    double *ms;           // (lines.count) time of each batch
    int64_t timed;        // number of batches in `ms`
} Job;

/* ---- reading ---- */

static Status open_texts(Job *job) {
    const InferOptions *o = job->options;
    TRY(text_lines_open(job->own->translate, job->session->tokenizer, false, job->session->config.context,
                        &job->source));
    job->batch = memory_array((size_t)o->batch, sizeof *job->batch);
    job->ms = memory_array((size_t)job->source.lines.count, sizeof *job->ms);
    if (!*job->own->reference) return OK;
    TRY(lines_open(job->own->reference, &job->reference));
    if (job->reference.count == job->source.lines.count) return OK;
    return fail(ERROR_FORMAT, "%s has %" PRId64 " lines, but --reference=%s has %" PRId64,
                job->own->translate, job->source.lines.count, job->own->reference, job->reference.count);
}

static Status check_model(const Job *job) {
    const Tokenizer *tokenizer = job->session->tokenizer;
    if (job->own->min_tokens > job->session->config.context)
        return fail(ERROR_USAGE, "--min-tokens=%" PRId64 " is more than the model's context of %" PRId64,
                    job->own->min_tokens, job->session->config.context);
    if (tokenizer && tokenizer_special(tokenizer, TOKEN_BEGIN) >= 0 &&
        tokenizer_special(tokenizer, TOKEN_END) >= 0)
        return OK;
    return fail(ERROR_USAGE, "--translate needs a tokenizer with <s> and </s>; name one with "
                             "--tokenizer=FOLDER");
}

/* ---- running ---- */

static Status rehearse(Ctx *ctx, void *program) {
    Job *job = program;
    TRY(transformer_take(ctx, &job->model, false));
    return job->greedy ? generator_take(ctx, &job->generator) : translator_take(ctx, &job->translator);
}

static Status open_greedy(Job *job, int64_t source) {
    const SamplerOptions options = {.temperature = 0, .top_p = 1};
    TRY(generator_open(job->session->device, &job->model, true, &job->generator));
    job->generator.source = source;
    return sampler_open(job->session->config.vocab, &options, &job->sampler);
}

/* Most tokens of a translation, including its end. */
static int64_t most_tokens(const Job *job) {
    int64_t context = job->session->config.context;
    return job->text->tokens < context ? job->text->tokens : context;
}

static Status prepare(Job *job) {
    const InferOptions *o = job->options;
    const Session *s = job->session;
    TRY(runner_open(s, &job->ctx, &job->model));
    TranslateOptions options = {
        .sentences = o->batch < job->source.lines.count ? o->batch : job->source.lines.count,
        .beam = job->own->beam,
        .penalty = job->own->length_penalty,
        .begin = tokenizer_special(s->tokenizer, TOKEN_BEGIN),
        .end = tokenizer_special(s->tokenizer, TOKEN_END),
        .source = job->source.longest,
        .least = job->own->min_tokens,
        .most = most_tokens(job),
        .decoding = job->text->no_cache ? DECODING_LAST : (Decoding)job->own->decoding};
    job->greedy = job->own->beam == 1 && options.sentences == 1 && !job->own->min_tokens &&
                  !*o->profiling.window && options.decoding == DECODING_CACHED;
    if (job->greedy)
        TRY(open_greedy(job, options.source));
    else
        TRY(translator_open(&options, &job->model, &job->translator));
    return runner_start(&(Runner){s, &job->ctx, &job->model, rehearse, job, false, o->seed, NULL});
}

static void judge(void *context, int64_t line, const char *text, int64_t length) {
    Job *job = context;
    if (!*job->own->reference) return;
    bleu_add(&job->bleu, text, length, job->reference.list[line].text, job->reference.list[line].length);
}

/* The tokens' bytes, with line ends replaced by spaces: a translation is one line. */
static Status take_translation(Job *job, int64_t line, const int32_t *ids, int64_t count) {
    Bytes *text = &job->translation;
    int64_t bytes;
    text->count = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *token = tokenizer_decode(job->session->tokenizer, ids[i], &bytes);
        if (bytes) bytes_put(text, token, bytes);
    }
    for (int64_t i = 0; i < text->count; i++)
        if (text->bytes[i] == '\n' || text->bytes[i] == '\r') text->bytes[i] = ' ';
    job->decoded += count;
    judge(job, line, (const char *)text->bytes, text->count);
    return answers_add(job->answers, line, text->bytes, text->count);
}

static void take_batch(Job *job, int64_t first, int64_t count) {
    job->batched = count;
    for (int64_t i = 0; i < count; i++) {
        const TextLine *line = &job->source.sorted[first + i];
        job->batch[i] = (Sentence){job->source.tokens.ids + line->first, line->count};
    }
}

/* Translates the sentences of job->batch: a step of the profile. */
static Status translate_batch(Ctx *ctx, void *program, StepCost *cost) {
    Job *job = program;
    scope_begin_step(ctx);
    scope_begin_phase(ctx, PHASE_FORWARD);
    TRY(translator_run(ctx, &job->translator, job->batch, job->batched));
    profiling_set_seq(job->profiling, job->translator.steps);
    scope_end(ctx);
    scope_end(ctx);
    cost->tokens = job->batched * job->translator.steps;
    return OK;
}

/* Generates by repeatedly appending the likeliest token. */
static Status translate_greedily(Job *job, const TextLine *line) {
    const Tokenizer *tokenizer = job->session->tokenizer;
    int32_t begin = tokenizer_special(tokenizer, TOKEN_BEGIN), end = tokenizer_special(tokenizer, TOKEN_END);
    int64_t most = most_tokens(job);
    Generator *g = &job->generator;
    TRY(generator_start(g, &begin, 1));
    TRY(generator_read_source(&job->ctx, g, job->source.tokens.ids + line->first, line->count));
    job->greedy_tokens.count = 0;
    for (int32_t token = begin; token != end && g->draws < most;) {
        TRY(generator_next(&job->ctx, g, job->sampler, &token));
        if (token != end) token_list_add(&job->greedy_tokens, token);
    }
    return take_translation(job, line->line, job->greedy_tokens.ids, job->greedy_tokens.count);
}

static Status translate_all_greedily(Job *job) {
    for (int64_t i = answers_kept(job->answers); i < job->source.lines.count && !signals_caught(); i++) {
        double start = device_clock();
        TRY(translate_greedily(job, &job->source.sorted[i]));
        job->ms[job->timed++] = 1e3 * (device_clock() - start);
    }
    return OK;
}

static Status translate_all(Job *job) {
    int64_t most = job->translator.options.sentences, lines = job->source.lines.count, count;
    for (int64_t first = answers_kept(job->answers); first < lines && !signals_caught(); first += count) {
        count = lines - first < most ? lines - first : most;
        StepCost cost;
        take_batch(job, first, count);
        TRY(profiling_step(NULL, &job->ctx, ++job->step, translate_batch, job, &cost));
        job->ms[job->timed++] = cost.ms;
        for (int64_t i = 0; i < count; i++) {
            int64_t length;
            double score;
            const int32_t *ids = translator_best(&job->translator, i, &length, &score);
            TRY(take_translation(job, job->source.sorted[first + i].line, ids, length));
        }
    }
    return OK;
}

/* ---- results ---- */

static void print_times(const Job *job, double seconds) {
    int64_t lines = job->source.lines.count - answers_kept(job->answers);
    if (!job->timed) return;
    fprintf(stderr,
            "%" PRId64 " lines in %.2f s (%.0f lines/s, %.0f tokens/s), beam %" PRId64
            "%s; median of %" PRId64 " batches %.2f ms\n",
            lines, seconds, (double)lines / seconds, (double)job->decoded / seconds, job->own->beam,
            job->text->no_cache || job->own->decoding > DECODING_SELF ? ", without a cache" : "", job->timed,
            median(job->ms, job->timed));
    text_lines_print_cut(&job->source, job->session->config.context);
}

static void print_bleu(const Job *job) {
    const Bleu *b = &job->bleu;
    if (!*job->own->reference) return;
    fprintf(stderr, "BLEU %.2f: %.1f/%.1f/%.1f/%.1f, brevity %.3f, %" PRId64 " words against %" PRId64 "\n",
            bleu_score(b), bleu_precision(b, 1), bleu_precision(b, 2), bleu_precision(b, 3),
            bleu_precision(b, 4), bleu_brevity(b), b->words, b->reference_words);
}

/* With --profile the first batch is translated again until the window has been recorded. */
static Status profile_batches(Job *job) {
    while (!profiling_done(job->profiling))
        TRY(profiling_step(job->profiling, &job->ctx, ++job->step, translate_batch, job, NULL));
    return OK;
}

static Status begin_batch(Job *job) {
    return translator_begin(&job->ctx, &job->translator, job->batch, job->batched);
}

/* Reads the batch's sources, before any token. Padding does not count. */
static Status sources_step(Ctx *ctx, void *program, StepCost *cost) {
    Job *job = program;
    for (int64_t i = 0; i < job->batched; i++) cost->tokens += job->source.sorted[i].count;
    scope_begin_step(ctx);
    PHASE_SCOPE(ctx, FORWARD) TRY(begin_batch(job));
    TRY(ctx->device->synchronize(ctx->device));
    scope_end(ctx);
    return OK;
}

/* Decodes a token of each row. */
static Status tokens_step(Ctx *ctx, void *program, StepCost *cost) {
    Job *job = program;
    (void)cost;
    scope_begin_step(ctx);
    PHASE_SCOPE(ctx, FORWARD) TRY(translator_step(ctx, &job->translator));
    TRY(ctx->device->synchronize(ctx->device));
    scope_end(ctx);
    return OK;
}

static Status profile_sources(Job *job) {
    for (int64_t step = 1; !profiling_done(job->profiling); step++) {
        TRY(profiling_step(job->profiling, &job->ctx, step, sources_step, job, NULL));
        translator_end(&job->ctx, &job->translator);
    }
    return OK;
}

/* If a batch ends before the window does, it is decoded again. */
static Status profile_tokens(Job *job) {
    for (int64_t step = 0; !profiling_done(job->profiling);) {
        TRY(begin_batch(job));
        while (!translator_done(&job->translator) && !profiling_done(job->profiling))
            TRY(profiling_step(job->profiling, &job->ctx, ++step, tokens_step, job, NULL));
        translator_end(&job->ctx, &job->translator);
    }
    return OK;
}

/* Profiles `steps`, each of which reads or generates `seq` tokens of each sentence. */
static Status profile_as(Job *job, const ProfilingOptions *options, const char *name, const char *suffix,
                         int64_t seq, Status (*steps)(Job *job)) {
    FILE *file = job->options->quiet ? NULL : stderr;
    TraceRun facts =
        profiling_facts(job->session, "infer", &job->peaks, job->translator.options.sentences, seq, 1);
    facts.step = name;
    job->ctx.graphs = job->session->graphs;
    TRY(profiling_open(options, &job->ctx, &facts, suffix, file, &job->profiling));
    TRY(steps(job));
    TRY(profiling_finish(job->profiling, &job->ctx));
    profiling_close(job->profiling);
    job->profiling = NULL;
    return OK;
}

static Status profile(Job *job) {
    const InferOptions *o = job->options;
    ProfilingOptions sources = o->profiling;
    if (!*o->profiling.window) return OK;
    peaks_remember(&job->ctx, &job->peaks);
    take_batch(job, 0, job->translator.options.sentences);
    if (!job->own->profile_tokens)
        return profile_as(job, &o->profiling, "translation", "", job->translator.options.most,
                          profile_batches);
    sources.window = PREFILL_WINDOW;
    TRY(profile_as(job, &sources, "prefill", "_prefill", job->source.sorted[0].count, profile_sources));
    return profile_as(job, &o->profiling, "decoding step", "_decode", 1, profile_tokens);
}

static Status open_answers(Job *job) {
    const FileMap *text = &job->source.lines.map;
    const AnswersOptions options = {.session = job->session,
                                    .options = job->options,
                                    .set = job->set,
                                    .input = digest_bytes(text->data, (size_t)text->size),
                                    .total = job->source.lines.count,
                                    .context = job,
                                    .keep = judge};
    TRY(answers_open(&options, &job->answers));
    text_lines_sort(&job->source, answers_kept(job->answers), ANSWERS_BATCHES * job->options->batch);
    return OK;
}

static Status run(Job *job) {
    bool whole;
    TRY(check_model(job));
    TRY(open_texts(job));
    TRY(open_answers(job));
    TRY(prepare(job));
    TRY(profile(job));
    double start = device_clock();
    TRY(job->greedy ? translate_all_greedily(job) : translate_all(job));
    double seconds = device_clock() - start;
    TRY(answers_finish(job->answers, &whole));
    if (whole && !job->options->quiet) print_times(job, seconds);
    if (whole) print_bleu(job);
    return OK;
}

static void close_job(Job *job) {
    answers_close(job->answers);
    memory_free(job->translation.bytes);
    memory_free(job->batch);
    memory_free(job->ms);
    text_lines_close(&job->source);
    lines_close(&job->reference);
    profiling_close(job->profiling);
    generator_close(&job->generator);
    sampler_close(job->sampler);
    token_list_free(&job->greedy_tokens);
    translator_close(&job->translator);
    transformer_close(&job->model);
    if (job->ctx.device) ctx_close(&job->ctx);
}

Status translate_text(Session *session, const InferOptions *options, const OptionSet *set) {
    CLOSED_BY(close_job)
    Job job = {.session = session,
               .options = options,
               .set = set,
               .own = options_values(set, &pairs_infer),
               .text = options_values(set, &text_infer)};
    return run(&job);
}
