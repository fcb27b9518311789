/* batch_generator: generates texts for several prompts at once. Each text has a place in the batch, with its
 * own length, and a prompt takes the place of a text that has ended. Prompts are read in pieces between the
 * steps, each of which reads one token per place. Texts are not padded, and each is the one that is generated
 * alone. */
#pragma once

#include "data/token.h"
#include "model/transformer.h"
#include "run/replay.h"
#include "run/sampler.h"

typedef struct {
    int64_t number;   // the caller's
    TokenList text;   // the prompt, at least one token, followed by the sampled tokens
    int64_t prompt;   // tokens of the prompt
    int64_t read;     // tokens of the text in the cache
    Sampler *sampler; // used by this row only
    bool ended;       // ended by an end token, which is not in `text`
} BatchRow;

/* Where prompts come from and texts go. */
typedef struct {
    void *context;
    int64_t tokens; // most tokens after a prompt; fewer if the window ends
    /* Sets number, text, prompt and sampler of an all-zero row; *any = false if no prompt is left. */
    Status (*next)(void *context, BatchRow *row, bool *any);
    bool (*ends)(void *context, const BatchRow *row, int32_t token); // whether a token ends a text
    /* Receives a text in any order; the row's text and sampler are freed afterwards. */
    Status (*finish)(void *context, BatchRow *row);
} BatchTexts;

typedef struct {
    Transformer *model;
    int64_t rows, window;    // prompts at once; tokens per row, including sampled ones
    int64_t piece;           // most tokens of prompts that are read between two steps
    const BatchTexts *texts; // of the run
    BatchRow *places;        // (rows); one is free if its text is empty
    int64_t count;           // the first `count` places are in use
    Cache cache;
    Tensor tokens;  // (B, T) i32, device memory
    Tensor lengths; // (rows) i32: tokens of each place in the cache
    Tensor logits;  // (rows, padded vocab) fp32
    Replay step;
    int32_t *ids;  // host memory for as many tokens
    float *values; // (rows, padded vocab) host memory

    /* For sampling on the device, as part of a step that can be captured. */
    bool draws; // in this step
    SampleRule rule;
    Device *device;
    Tensor positions; // (rows) i32: each place's number, before a step
    Tensor uniforms;  // (rows) fp64: the random number of each place
    double *numbers;  // (rows) host memory: the same
    int32_t *sampled; // (rows) pinned host memory
} BatchGenerator;

void batch_generator_open(Transformer *model, int64_t rows, int64_t window, BatchGenerator *generator);
void batch_generator_close(BatchGenerator *generator);

/* Allocates device memory from ARENA_SAVED; with ctx->measuring also rehearses the largest passes. */
CHECKED Status batch_generator_take(Ctx *ctx, BatchGenerator *generator);

/* Generates texts until no prompt is left. */
CHECKED Status batch_generator_run(Ctx *ctx, BatchGenerator *generator, const BatchTexts *texts);
