/* infer: the options and commands of ./infer for texts. */
#pragma once

#include "run/infer_options.h"
#include "run/sampler.h"
#include "run/session.h"

/* Generation, which conversations and translation share; evaluation, which pictures share. */
typedef struct {
    const char *prompt; // "-": standard input
    int64_t tokens;     // maximum of tokens to generate
    int64_t answers;    // number of answers to the prompt
    SamplerOptions sampler;
    int64_t context;    // tokens of a text that are kept at once; 0: as many as needed
    const char *stop;   // generation ends before this text
    bool no_cache;      // recompute every token, for comparison
    const char *draft;  // a smaller model that proposes tokens; "": none
    const char *eval;   // a file or a pattern of files
    const char *field;  // the key of its texts if they are JSON lines; "": plain texts
    const char *logits; // safetensors file to write
    OptionList ids;     // tokens whose logits are written
} TextInfer;

extern const OptionTable text_infer;

/* The sampling options of ./infer: names for Command.reads. */
#define TEXT_SAMPLING "temperature top-k top-p min-p repeat-penalty"

/* ERROR_USAGE for options without effect on greedy sampling. */
CHECKED Status text_check_sampling(const OptionSet *set);

/* ERROR_USAGE for a model without a tokenizer, or with a shorter context than --context: it cannot write
 * texts, which `selector` requires. */
CHECKED Status text_check_model(const Session *session, const InferOptions *options, const OptionSet *set,
                                const char *selector);

SamplerOptions text_sampler(const InferOptions *options, const OptionSet *set);

/* --prompt: continues the text. */
CHECKED Status generate_text(Session *session, const InferOptions *options, const OptionSet *set);

/* --eval: prints mean loss, perplexity and bits per byte over every window of the texts, and writes them as
 * JSON to --json, if given. ERROR_NONFINITE if the mean is not finite. */
CHECKED Status evaluate_text(Session *session, const InferOptions *options, const OptionSet *set);

/* --logits: writes the logits of --ids as "logits" (ids, vocab) fp32. */
CHECKED Status logits_text(Session *session, const InferOptions *options, const OptionSet *set);
CHECKED Status logits_check(const InferOptions *options, const OptionSet *set);
