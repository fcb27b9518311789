/* translate_text: ./infer --translate: the lines of a file through an encoder-decoder, and their BLEU. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

/* Prints a translation for each line of options->translate on standard output, in order; on standard error,
 * unless quiet, how long it took, and BLEU where there is a reference. */
CHECKED Status translate_text(Session *session, const InferOptions *options);
