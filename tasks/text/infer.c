#include "tasks/text/infer.h"

#include "run/option_rows.h"

#include <inttypes.h>

enum { SIZE_MOST = 1 << 24 };

#define AT(member) .field = offsetof(TextInfer, member)

static const Option rows[] = {
    HEADING("Generation"),
    {TEXT("prompt", "TEXT", prompt), .doc = "text to continue; - reads it from standard input"},
    {COUNT("tokens", 1, SIZE_MOST, tokens), .alias = "max-new-tokens",
     .default_text = "256; for an answer unlimited", .doc = "maximum number of tokens to generate"},
    {COUNT("n", 1, SIZE_MOST, answers), .doc = "number of answers to --prompt"},
    {NUMBER("temperature", 0, 1000, sampler.temperature),
     .doc = "sampling temperature; 0: always the likeliest token"},
    {COUNT("top-k", 0, 1 << 28, sampler.top_k), .doc = "sample from the k likeliest tokens; 0: from all"},
    {NUMBER("top-p", 0, 1, sampler.top_p), .above = true,
     .doc = "sample from the likeliest tokens that add up to probability X"},
    {NUMBER("min-p", 0, 1, sampler.min_p),
     .doc = "sample from tokens at least X times as likely as the likeliest"},
    {NUMBER("repeat-penalty", 0, 1000, sampler.repeat_penalty), .above = true,
     .doc = "make tokens that already occur in the text less likely; 1: off"},
    {COUNT("context", 1, SIZE_MOST, context),
     .default_text = "the prompt and --tokens; of a conversation 4096",
     .doc = "tokens kept at once; the oldest are dropped first"},
    {TEXT("stop", "TEXT", stop), .several = true, .doc = "stop before this text; may be repeated"},
    {FLAG("no-cache", no_cache), .doc = "compute all tokens again for each new one, for comparison"},
    {TEXT("draft", "FOLDER", draft), .doc = "smaller model with the same tokenizer that proposes tokens: the "
                                            "same text, faster (on a GPU with --fused=1,invariant)"},

    HEADING("Evaluation"),
    {TEXT("eval", "FILES", eval), .doc = "print the mean loss on text or .bin shards"},
    {TEXT("field", "KEY", field), .doc = "--eval reads JSON lines, with a text under this key"},
    {TEXT("logits", "FILE", logits), .written = true, .doc = "write logits as safetensors; needs --ids"},
    {LIST("ids", 0, (1 << 28) - 1, ids), .doc = "tokens to compute logits for, such as 1,2,3"},

};

static const TextInfer defaults = {.prompt = "",
                                   .tokens = 256,
                                   .answers = 1,
                                   .sampler = {.temperature = 0.8, .top_p = 0.95, .repeat_penalty = 1},
                                   .stop = "",
                                   .draft = "",
                                   .eval = "",
                                   .field = "",
                                   .logits = ""};

const OptionTable text_infer = {rows, sizeof rows / sizeof *rows, &defaults, sizeof defaults};

Status text_check_sampling(const OptionSet *set) {
    const TextInfer *o = options_values(set, &text_infer);
    static const char *const of_samples[] = {"top-k", "top-p", "min-p"};
    for (size_t i = 0; i < sizeof of_samples / sizeof *of_samples; i++)
        TRY(option_needs(set, of_samples[i], o->sampler.temperature > 0, "a --temperature above 0"));
    return OK;
}

Status text_check_model(const Session *session, const InferOptions *o, const OptionSet *set,
                        const char *selector) {
    const TextInfer *own = options_values(set, &text_infer);
    int64_t context = session->config.context;
    if (!session->tokenizer)
        return fail(ERROR_USAGE, "--%s needs a tokenizer, but %s has none; name one with --tokenizer=FOLDER",
                    selector, o->model);
    if (own->context <= context) return OK;
    return fail(ERROR_USAGE, "--context=%" PRId64 " is more than the model's %" PRId64, own->context,
                context);
}

SamplerOptions text_sampler(const InferOptions *o, const OptionSet *set) {
    const TextInfer *own = options_values(set, &text_infer);
    SamplerOptions sampler = own->sampler;
    sampler.seed = (uint64_t)o->seed;
    return sampler;
}
