/* generate: text from a model, token by token. One sequence; a KV cache, or none for comparison. When the
 * window is full, the later half of it is read again and generation goes on.
 * Where a step can be captured (run/replay.h) it is one graph that needs nothing from the host: the
 * token is drawn on the device and read there by the next step, and the host, which is told each token,
 * stays a step behind. */
#pragma once

#include "run/replay.h"
#include "run/sampler.h"
#include "model/transformer.h"

enum { PREFILL = 2048 }; // tokens that are read into a cache at once

typedef struct {
    Transformer *model;
    bool cached;         // use the cache
    int64_t window;      // tokens kept at once; the model's context, unless set to less before generator_take
    int64_t source;      // tokens of the longest source of an encoder-decoder, which must be cached; 0: none
    Cache cache;         // its length: tokens of the window that have been read; always 0 without `cached`
    Tensor cache_memory; // all of cache.memory, of which as much is used as the source is long
    Tensor source_tokens; // (1, source) i32, device memory
    Tensor tokens;        // (1, window) i32, device memory; cached: (1, PREFILL) at most
    Tensor logits;        // (1, padded vocab) fp32
    int32_t *history;     // (context) host memory: the tokens of the window
    float *row;           // (padded vocab) host memory
    int64_t length;       // tokens in history
    int64_t draws;        // tokens drawn since generator_start

    /* Of drawing on the device. A token's position is that of the token before it in the window. */
    Device *device;
    Tensor position;  // (1) i32: of the token that is drawn next
    Tensor uniforms;  // (window) fp64: the random number of each position
    double *numbers;  // (context) host memory: the same
    int32_t *told;    // (context) pinned host memory: the tokens drawn
    Event *drawn[2];  // of the last even and the last odd position
    int64_t launched; // positions whose tokens are drawn or on their way
    Replay step;
} Generator;

/* With an encoder-decoder, set `source` then. */
CHECKED Status generator_open(Device *device, Transformer *model, bool cached, Generator *generator);
void generator_close(Generator *generator);

/* Takes the device memory from ARENA_SAVED; with ctx->measuring also rehearses the largest passes. */
CHECKED Status generator_take(Ctx *ctx, Generator *generator);

/* Forgets everything and starts with `count` >= 1 tokens; of a longer prompt than the window the end is
 * kept. */
CHECKED Status generator_start(Generator *generator, const int32_t *tokens, int64_t count);

/* Puts tokens behind those so far: what the cache holds is not computed again. The window must have room. */
CHECKED Status generator_append(Generator *generator, const int32_t *tokens, int64_t count);

/* Forgets the tokens [first, first + count) of the window: those behind them are read again. The random
 * numbers go on. */
void generator_forget(Generator *generator, int64_t first, int64_t count);

/* What the tokens that follow are drawn for: 1 to `source` tokens, which the encoder reads now. */
CHECKED Status generator_read_source(Ctx *ctx, Generator *generator, const int32_t *tokens, int64_t count);

/* Draws the next token with the sampler and adds it. Waits for it. ERROR_NONFINITE as sampler_next. */
CHECKED Status generator_next(Ctx *ctx, Generator *generator, Sampler *sampler, int32_t *token);

/* The two halves of that, on the host. Logits of the next token after all tokens so far: (vocab) fp32 host
 * memory, valid until the next call. Waits. */
CHECKED Status generator_logits(Ctx *ctx, Generator *generator, const float **logits);

/* Adds a token that was chosen. */
CHECKED Status generator_add(Generator *generator, int32_t token);
