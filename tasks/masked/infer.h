/* infer: the options and commands of ./infer for BERT. */
#pragma once

#include "run/infer_options.h"
#include "run/session.h"

typedef enum { POOLING_MEAN, POOLING_FIRST, POOLING_POOLER } Pooling; // how hidden states become an embedding

/* Embeddings, which pictures share; masked tokens. */
typedef struct {
    const char *embed; // a text, each line of which is embedded; or pictures
    Pooling pooling;
    const char *fill; // a text with [MASK] in it
} MaskedInfer;

extern const OptionTable masked_infer;

/* ERROR_USAGE if the tokenizer lacks [CLS] and [SEP]. */
CHECKED Status masked_needs_tokenizer(const Session *session, const char *selector);

/* ERROR_USAGE if the model has no head for masked tokens. */
CHECKED Status masked_needs_head(const Session *session, const InferOptions *options, const char *selector);

/* ERROR_USAGE without --output. */
CHECKED Status embed_check(const InferOptions *options, const OptionSet *set);

/* --embed: writes an embedding of each line, as "embeddings" (lines, C) fp32, to --output: the mean of its
 * tokens' hidden states (including [CLS] and [SEP]), the first token's, or the pooler's output. */
CHECKED Status embed_text(Session *session, const InferOptions *options, const OptionSet *set);

/* Writes "embeddings" (rows, width) fp32. */
CHECKED Status embeddings_write(const char *path, const void *values, int64_t rows, int64_t width);

/* --fill: prints the five likeliest tokens for each [MASK], and the text filled with the first of them. */
CHECKED Status fill_text(Session *session, const InferOptions *options, const OptionSet *set);
