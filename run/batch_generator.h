/* batch_generator: texts that follow several prompts, at once. The rows go in step: as many tokens as the
 * shortest prompt has are read together, and from there on a token of each row at a time: of its prompt
 * where there is more of it, else the one that it has drawn. So nothing is padded, and a row's tokens are
 * those that it would have alone; prompts of similar lengths waste least. */
#pragma once

#include "data/token.h"
#include "model/transformer.h"
#include "run/sampler.h"

typedef struct {
    TokenList text;   // the prompt, at least a token, and what has been drawn behind it; the caller frees it
    int64_t prompt;   // tokens of the prompt
    Sampler *sampler; // of this row alone
    bool ended;       // by an end token, which is not kept
} BatchRow;

/* Whether a token ends a text. */
typedef bool (*EndsText)(const void *context, int32_t token);

typedef struct {
    Transformer *model;
    int64_t rows, window; // prompts at once; tokens of each, with what follows
    Cache cache;
    Tensor tokens; // (rows, chunk) i32, device memory
    Tensor last;   // (rows) i32: the last positions of a chunk
    Tensor hidden; // (rows, C): what lies there
    Tensor logits; // (rows, padded vocab) fp32
    int32_t *ids;  // (rows * chunk) host memory
    float *values; // (rows, padded vocab) host memory
} BatchGenerator;

void batch_generator_open(Transformer *model, int64_t rows, int64_t window, BatchGenerator *generator);
void batch_generator_close(BatchGenerator *generator);

/* Takes the device memory from ARENA_SAVED; with ctx->measuring also rehearses the largest passes. */
CHECKED Status batch_generator_take(Ctx *ctx, BatchGenerator *generator);

/* Draws at most `tokens` tokens behind each of `count` prompts, 1 to `rows`; fewer where the window ends. */
CHECKED Status batch_generator_run(Ctx *ctx, BatchGenerator *generator, BatchRow *rows, int64_t count,
                                   int64_t tokens, EndsText ends, const void *context);
