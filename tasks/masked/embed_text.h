/* embed_text: ./infer --embed and --fill: what a BERT makes of texts. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

/* An embedding of each line of options->embed, as "embeddings" (lines, C) fp32 in the safetensors file
 * options->output: the mean of its tokens' hidden states ([CLS] and [SEP] counted), the first token's, or
 * what the pooler makes of it. */
CHECKED Status embed_text(Session *session, const InferOptions *options);

/* Prints the five likeliest tokens for each [MASK] in options->fill, and the text with the first of them. */
CHECKED Status fill_text(Session *session, const InferOptions *options);
