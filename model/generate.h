/* generate: text from a model, token by token. One sequence; a KV cache, or none for comparison. When the
 * model's context is full, the later half of it is read again and generation goes on. */
#ifndef MODEL_GENERATE_H
#define MODEL_GENERATE_H

#include "model/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Transformer *model;
    bool cached; // use the cache
    Cache cache;
    Tensor tokens;    // (1, context) i32, device memory
    Tensor logits;    // (1, padded vocab) fp32
    int32_t *history; // (context) host memory: the tokens of the present window
    float *row;       // (padded vocab) host memory
    int64_t length;   // tokens in history
    int64_t fed;      // of them, those that the cache holds
} Generator;

CHECKED Status generator_open(Transformer *model, bool cached, Generator *generator);
void generator_close(Generator *generator);

/* Takes the device memory from ARENA_SAVED; with ctx->measuring also rehearses the largest passes. */
CHECKED Status generator_take(Ctx *ctx, Generator *generator);

/* Forgets everything and starts with `count` >= 1 tokens; of a longer prompt than the context the end is
 * kept. */
CHECKED Status generator_start(Generator *generator, const int32_t *tokens, int64_t count);

/* Logits of the next token after all tokens so far: (vocab) fp32 host memory, valid until the next call.
 * Waits. */
CHECKED Status generator_logits(Ctx *ctx, Generator *generator, const float **logits);

/* Adds the token that was chosen. */
CHECKED Status generator_add(Generator *generator, int32_t token);

#ifdef __cplusplus
}
#endif
#endif
