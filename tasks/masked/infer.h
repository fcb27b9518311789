/* infer: what ./infer can be told about a BERT, and does with it. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

typedef enum { POOLING_MEAN, POOLING_FIRST, POOLING_POOLER } Pooling; // of hidden states to an embedding

/* Embeddings, which pictures share; masked tokens. */
typedef struct {
    const char *embed; // a text, to embed each line of; of pictures, them
    Pooling pooling;
    const char *fill; // a text with [MASK] in it
} MaskedInfer;

extern const OptionTable masked_infer;

/* ERROR_USAGE where the tokenizer has no [CLS] and [SEP]. */
CHECKED Status masked_needs_tokenizer(const Session *session, const char *asker);

/* ERROR_USAGE where the model has no head for masked tokens. */
CHECKED Status masked_needs_head(const Session *session, const InferOptions *options, const char *asker);

/* ERROR_USAGE without --output. */
CHECKED Status embed_check(const InferOptions *options, const OptionSet *set);

/* --embed: an embedding of each line, as "embeddings" (lines, C) fp32 in --output: the mean of its tokens'
 * hidden states ([CLS] and [SEP] counted), the first token's, or what the pooler makes of it. */
CHECKED Status embed_text(Session *session, const InferOptions *options, const OptionSet *set);

/* Writes "embeddings" (rows, width) fp32. */
CHECKED Status embeddings_write(const char *path, const void *values, int64_t rows, int64_t width);

/* --fill: prints the five likeliest tokens for each [MASK], and the text with the first of them. */
CHECKED Status fill_text(Session *session, const InferOptions *options, const OptionSet *set);
