/* infer: the options and commands of ./infer for translation. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

typedef struct {
    const char *translate; // a text with one sentence per line
    const char *reference; // a reference translation of that text, for BLEU; "": none
    int64_t beam;          // hypotheses per sentence; 1: greedy
    double length_penalty; // length penalty of the beam search
    int64_t min_tokens;    // least tokens of a translation, including the end token
    int decoding;          // a Decoding (tasks/pairs/translate.h)
    bool profile_tokens;   // a step of the profile is a token, not a batch
} PairsInfer;

extern const OptionTable pairs_infer;

CHECKED Status translate_check(const InferOptions *options, const OptionSet *set);

/* Prints a translation for each line of --translate on standard output, in order; on standard error, unless
 * quiet, the time taken, and BLEU if there is a reference. */
CHECKED Status translate_text(Session *session, const InferOptions *options, const OptionSet *set);
