/* text_encoder: a BERT that reads texts: rows of [CLS] text [SEP], padded, in; hidden states out. */
#pragma once

#include "run/runner.h"

typedef struct {
    Ctx ctx;
    Transformer model;
    int64_t batch, seq;     // the largest that will be run
    bool pooled;            // the pooler runs too
    int64_t logits;         // rows of logits that are wanted; 0: none
    Tensor tokens, lengths; // (batch, seq), (batch) i32, device memory
    Tensor rows;            // (logits) i32: rows of (batch * seq)
    Tensor chosen;          // (logits, C): their hidden states
    Tensor pool;            // (batch, C)
    Tensor output;          // (logits, padded vocab)
} TextEncoder;

/* Then set what is wanted. The encoder must stay where it is. */
CHECKED Status text_encoder_open(TextEncoder *encoder, const Session *session);
void text_encoder_close(TextEncoder *encoder);

/* Memory for batch, seq, pooled and logits as they are set, and weights. */
CHECKED Status text_encoder_start(TextEncoder *encoder, const Session *session, int64_t seed);

/* tokens (batch, seq) and lengths (batch) in host memory, no larger than prepared for. Leaves model.hidden
 * and, where they are wanted, pool, and output of `rows`, (logits) of (batch * seq) in host memory: all valid
 * until the next run. */
CHECKED Status text_encoder_run(TextEncoder *encoder, const int32_t *tokens, const int32_t *lengths,
                                int64_t batch, int64_t seq, const int32_t *rows);
