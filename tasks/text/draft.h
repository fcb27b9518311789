/* draft: a smaller model, --draft, that proposes tokens for a generator (run/generate.h). */
#pragma once

#include "run/infer_options.h"
#include "run/inference.h"

typedef struct {
    Session session;
    Inference inference;
} Draft;

/* Opens the model of --draft, loads it and makes it the draft of `main`'s generator, whose window is set;
 * before inference_start. Does nothing without --draft. ERROR_USAGE for a draft with another vocabulary, and
 * where several rows may have other bits than one. The draft must not move; close it also after an error. */
CHECKED Status draft_open(Draft *draft, const Session *session, const InferOptions *options,
                          const OptionSet *set, Inference *main);
void draft_close(Draft *draft);

/* Prints how many proposals the text accepted; nothing without a draft. */
void draft_print(const Generator *generator);
