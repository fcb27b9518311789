#include "tasks/text/train.h"

#include "run/option_rows.h"
#include "base/directories.h"
#include "base/memory.h"
#include "tasks/text/corpus.h"
#include "data/tokens.h"

#include <string.h>
#include <inttypes.h>
#include <stdio.h>

enum { SIZE_MOST = 1 << 24, STEPS_MOST = 1000000000 };

typedef struct {
    int64_t every, tokens; // every 0: no samples
    const char *prompt;
} TextTrain;

#define AT(member) .field = offsetof(TextTrain, member)

static const Option rows[] = {
    HEADING("Samples of text models"),
    {COUNT("sample-every", 0, STEPS_MOST, every), .doc = "steps between samples; 0 for none",
     .travels = true},
    {COUNT("sample-tokens", 1, SIZE_MOST, tokens), .doc = "tokens in a sample", .travels = true},
    {TEXT("sample-prompt", "TEXT", prompt), .doc = "prompt of the samples",
     .default_text = "a newline; of a conversation Hello!", .travels = true},
};

static const TextTrain defaults = {.every = 100, .tokens = 160, .prompt = ""};

const OptionTable text_train = {rows, sizeof rows / sizeof *rows, &defaults, sizeof defaults};

Status text_check_train(const OptionSet *set) {
    const TextTrain *own = options_values(set, &text_train);
    TRY(option_needs(set, "sample-tokens", own->every, "--sample-every"));
    return option_needs(set, "sample-prompt", own->every, "--sample-every");
}

TextOptions text_sample_options(const OptionSet *set, uint64_t seed, int64_t step) {
    const TextTrain *own = options_values(set, &text_train);
    return (TextOptions){
        .prompt = own->prompt,
        .prompt_length = (int64_t)strlen(own->prompt),
        .tokens = own->tokens,
        .stop = "",
        .sampler = {.temperature = 0.8, .top_k = 40, .top_p = 1, .seed = seed, .sequence = (uint64_t)step}};
}

int64_t text_sample_every(const OptionSet *set, const Session *s) {
    const TextTrain *own = options_values(set, &text_train);
    return s->tokenizer ? own->every : 0;
}

static Status plan(const OptionSet *set, const Session *s, int64_t *every, int64_t *window) {
    const TextOptions options = text_sample_options(set, 0, 0);
    *every = text_sample_every(set, s);
    return *every ? stream_text_window(s->tokenizer, &options, &s->config, window) : OK;
}

static Status write(const OptionSet *set, const Session *s, Trainer *t, int64_t step, char **text,
                    int64_t *length) {
    const TextOptions options = text_sample_options(set, t->seed, step);
    return stream_text_collect(&t->ctx, &t->generator, s->tokenizer, &options, text, length);
}

const Samples text_samples = {plan, write};

/* ---- --train-tokenizer ---- */

Status train_tokenizer(const TrainOptions *o) {
    CLOSED_BY(path_list_free) PathList texts = {0};
    CLOSED_BY(tokenizer_release) Tokenizer *tokenizer = NULL;
    TRY(*o->data ? tokens_find_files(o->data, &texts) : corpus_list(&texts));
    TRY(tokenizer_train(&texts, o->train_tokenizer, &tokenizer));
    TRY(directory_make(o->out));
    TRY(tokenizer_save(tokenizer, o->out));
    if (!o->quiet)
        printf("tokenizer of %" PRId32 " tokens, trained on %" PRId64 " text%s, in %s%s\n",
               tokenizer_vocab(tokenizer), texts.count, texts.count == 1 ? "" : "s", o->out,
               tokenizer_vocab(tokenizer) < o->train_tokenizer ? "; no pairs are left to merge" : "");
    return OK;
}
