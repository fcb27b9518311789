/* infer: what ./infer can be told about translation, and does. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

typedef struct {
    const char *translate; // a text, a sentence in each line
    const char *reference; // its translation, for BLEU; "": none
    int64_t beam;          // hypotheses of each sentence; 1: greedy
    double length_penalty; // of the beam
    int64_t min_tokens;    // of a translation, with the end token
    int decoding;          // a Decoding (tasks/pairs/translate.h)
    bool profile_tokens;   // a token is a step of the profile, not a batch
} PairsInfer;

extern const OptionTable pairs_infer;

CHECKED Status translate_check(const InferOptions *options, const OptionSet *set);

/* Prints a translation for each line of --translate on standard output, in order; on standard error, unless
 * quiet, how long it took, and BLEU where there is a reference. */
CHECKED Status translate_text(Session *session, const InferOptions *options, const OptionSet *set);
