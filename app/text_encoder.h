/* text_encoder: a BERT that reads texts: rows of [CLS] text [SEP], padded, in; hidden states out. */
#ifndef APP_TEXT_ENCODER_H
#define APP_TEXT_ENCODER_H

#include "app/session.h"
#include "model/transformer.h"

typedef struct {
    Session *session;
    Ctx ctx;
    Transformer model;
    int64_t batch, seq;     // the largest that will be run
    bool pooled;            // the pooler runs too
    int64_t logits;         // rows of logits that are wanted; 0: none
    Tensor tokens, lengths; // (batch, seq), (batch) i32, device memory
    Tensor places;          // (logits) i32
    Tensor rows;            // (logits, C): hidden states at the places
    Tensor pool;            // (batch, C)
    Tensor output;          // (logits, padded vocab)
} TextEncoder;

/* Opens the session's model; ERROR_USAGE unless it is a BERT whose tokenizer has [CLS] and [SEP]. `option`
 * is what asked for it. The encoder must stay where it is. */
CHECKED Status text_encoder_open(TextEncoder *encoder, Session *session, const char *option);
void text_encoder_close(TextEncoder *encoder);

/* Appends [CLS], the text's tokens and [SEP]: at most the context. `cut`: the text's end had to go. */
CHECKED Status text_encoder_tokens(TextEncoder *encoder, const char *text, int64_t length, TokenList *list,
                                   bool *cut);

/* Takes memory for batch, seq, pooled and logits as they are set, then loads the weights, or draws them by
 * `seed`. */
CHECKED Status text_encoder_prepare(TextEncoder *encoder, uint64_t seed);

/* tokens (batch, seq) and lengths (batch) in host memory, no larger than prepared for. Leaves model.hidden
 * and, where they are wanted, pool, and output at places (logits), rows of (batch * seq) in host memory: all
 * valid until the next run. */
CHECKED Status text_encoder_run(TextEncoder *encoder, const int32_t *tokens, const int32_t *lengths,
                                int64_t batch, int64_t seq, const int32_t *places);

#endif
