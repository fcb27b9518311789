/* text_encoder: runs a BERT on texts: padded rows of [CLS] text [SEP] in, hidden states out. */
#pragma once

#include "run/runner.h"

typedef struct {
    Ctx ctx;
    Transformer model;
    int64_t batch, seq;     // sizes of the largest batch
    bool pooled;            // also run the pooler
    int64_t logits;         // rows of logits to compute; 0: none
    Tensor tokens, lengths; // (batch, seq), (batch) i32, device memory
    Tensor rows;            // (logits) i32: rows of (batch * seq)
    Tensor chosen;          // (logits, C): their hidden states
    Tensor pool;            // (batch, C)
    Tensor output;          // (logits, padded vocab)
} TextEncoder;

/* After opening, set the members above. The encoder must not move. */
CHECKED Status text_encoder_open(TextEncoder *encoder, const Session *session);
void text_encoder_close(TextEncoder *encoder);

/* Allocates memory for batch, seq, pooled and logits, and loads the weights. */
CHECKED Status text_encoder_start(TextEncoder *encoder, const Session *session, int64_t seed);

/* tokens (batch, seq) and lengths (batch) are in host memory, no larger than prepared for. Computes
 * model.hidden and, if requested, pool, and the output of `rows`, (logits) indices into (batch * seq) in host
 * memory: all valid until the next run. */
CHECKED Status text_encoder_run(TextEncoder *encoder, const int32_t *tokens, const int32_t *lengths,
                                int64_t batch, int64_t seq, const int32_t *rows);
