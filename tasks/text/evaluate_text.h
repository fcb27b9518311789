/* evaluate_text: ./infer --eval of a model that continues texts. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

/* Prints mean loss, perplexity and bits per byte over every window of options->eval, and writes them as JSON
 * to options->json, if that is given. ERROR_NONFINITE where the mean is not finite. */
CHECKED Status evaluate_text(Session *session, const InferOptions *options);
