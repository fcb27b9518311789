#include "tasks/pairs/infer.h"

#include "run/option_rows.h"
#include "tasks/text/infer.h"

#include <inttypes.h>

enum { SIZE_MOST = 1 << 24 };

#define AT(member) .field = offsetof(PairsInfer, member)

static const Option rows[] = {
    HEADING("Translation, with an encoder-decoder"),
    {TEXT("translate", "FILE", translate), .doc = "translate each line by beam search"},
    {TEXT("reference", "FILE", reference), .doc = "reference translations, for BLEU"},
    {COUNT("beam", 1, 64, beam), .doc = "hypotheses for each sentence; 1 is greedy"},
    {COUNT("min-tokens", 0, SIZE_MOST, min_tokens),
     .doc = "minimum tokens of a translation, including its end"},
    {CHOICE("decoding", "cached|self|last|all", decoding),
     .doc = "keys and values to cache: all, the decoder's, or none (last, all); all also computes the logits "
            "of every position"},
    {FLAG("profile-tokens", profile_tokens), .doc = "with --profile: a step is a token, not a batch"},
    {NUMBER("length-penalty", 0, 10, length_penalty), .doc = "scores are divided by ((5 + length) / 6)^X"},
};

static const PairsInfer defaults = {.translate = "", .reference = "", .beam = 4, .length_penalty = 0.6};

const OptionTable pairs_infer = {rows, sizeof rows / sizeof *rows, &defaults, sizeof defaults};

Status translate_check(const InferOptions *o, const OptionSet *set) {
    const PairsInfer *own = options_values(set, &pairs_infer);
    const TextInfer *text = options_values(set, &text_infer);
    TRY(options_exclude(set, "no-cache", "decoding"));
    TRY(options_exclude(set, "profile", "output"));
    TRY(option_needs(set, "profile-tokens", *o->profiling.window, "--profile"));
    if (own->min_tokens <= text->tokens) return OK;
    return fail(ERROR_USAGE, "--min-tokens=%" PRId64 " is more than --tokens=%" PRId64, own->min_tokens,
                text->tokens);
}
