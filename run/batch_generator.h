/* batch_generator: generates texts for several prompts at once. The rows advance in step: the length of the
 * shortest prompt is read at once, and then one token per row at a time: the prompt's next token if there is
 * one, else the sampled one. So there is no padding, and each row gets the same tokens as if it were
 * generated alone. Prompts of similar length waste least. */
#pragma once

#include "data/token.h"
#include "model/transformer.h"
#include "run/sampler.h"

typedef struct {
    TokenList text;   // the prompt, at least one token, followed by the sampled tokens; the caller frees it
    int64_t prompt;   // tokens of the prompt
    Sampler *sampler; // used by this row only
    bool ended;       // ended by an end token, which is not in `text`
} BatchRow;

/* Whether a token ends a text. */
typedef bool (*EndsText)(const void *context, int32_t token);

typedef struct {
    Transformer *model;
    int64_t rows, window; // prompts at once; tokens per row, including sampled ones
    Cache cache;
    Tensor tokens; // (rows, chunk) i32, device memory
    Tensor last;   // (rows) i32: the last positions of a chunk
    Tensor hidden; // (rows, C): hidden states at these positions
    Tensor logits; // (rows, padded vocab) fp32
    int32_t *ids;  // (rows * chunk) host memory
    float *values; // (rows, padded vocab) host memory
} BatchGenerator;

void batch_generator_open(Transformer *model, int64_t rows, int64_t window, BatchGenerator *generator);
void batch_generator_close(BatchGenerator *generator);

/* Allocates device memory from ARENA_SAVED; with ctx->measuring also rehearses the largest passes. */
CHECKED Status batch_generator_take(Ctx *ctx, BatchGenerator *generator);

/* Generates at most `tokens` tokens after each of `count` prompts, 1 to `rows`; fewer if the window ends. */
CHECKED Status batch_generator_run(Ctx *ctx, BatchGenerator *generator, BatchRow *rows, int64_t count,
                                   int64_t tokens, EndsText ends, const void *context);
