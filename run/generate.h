/* generate: generates one sequence token by token, with a KV cache, or without one for comparison. When the
 * window is full, its later half is read again and generation continues. If a step can be captured
 * (run/replay.h), it is one graph that needs nothing from the host: the token is sampled on the device and
 * read there by the next step, while the host stays one launch behind. */
#pragma once

#include "run/replay.h"
#include "run/sampler.h"
#include "model/transformer.h"

enum { PREFILL = 2048 }; // tokens that are read into a cache at once

/* Tokens of a draft that are verified at once: with linear and attention fused, on a GPU also with
 * FUSE_INVARIANT, up to LINEAR_FEW_ROWS rows have the same bits together as one by one. */
enum { PROPOSALS = LINEAR_FEW_ROWS - 1 };

/* Tokens of one launch after generator_prepare. Between launches a GPU rests for 4 us; within one the next
 * step's kernels start before the last step's end. */
enum { STRIDE = 4 };

typedef struct Generator {
    Transformer *model;
    bool cached;         // use the cache
    int64_t window;      // tokens kept at once; the model's context, unless set to less before generator_take
    int64_t source;      // longest source of an encoder-decoder, in tokens; it requires the cache. 0: none
    Cache cache;         // keys and values; its length is the number of tokens of the window that have been
                         // read, always 0 without `cached`
    Tensor cache_memory; // all of cache.memory, of which a source uses one row per token
    Tensor source_tokens; // (1, source) i32, device memory
    Tensor tokens;        // (1, window) i32, device memory; cached: (1, PREFILL) at most
    Tensor logits;        // (1, padded vocab) fp32; with a draft (1 + PROPOSALS, padded vocab)
    int32_t *history;     // (context) host memory: the tokens of the window
    float *row;           // (padded vocab) host memory
    int64_t length;       // tokens in history
    int64_t draws;        // tokens sampled since generator_start

    /* Speculative decoding (Leviathan et al. 2023): the draft, a generator of a smaller model with the same
     * vocabulary, proposes tokens, and one pass computes the logits after each. A proposal is accepted if it
     * is the token that the sampler selects from them, so the text is the same as without a draft. */
    struct Generator *draft; // set before generator_take; NULL: none
    Ctx *draft_ctx;
    int64_t rows;               // rows of logits that a pass computes: 1 and one per proposal
    int64_t pending;            // computed rows that have not been sampled from; the proposals that they
                                // follow are in history after `length`, except the first row's
    int64_t proposed, accepted; // since generator_start

    /* For sampling on the device. A token's position is that of the previous token in the window. */
    Device *device;
    Tensor position;  // (1) i32: position of the token that is sampled next
    Tensor uniforms;  // (window) fp64: the random number of each position
    double *numbers;  // (context) host memory: the same
    int32_t *sampled; // (context) pinned host memory: the sampled tokens
    int64_t launched; // positions whose tokens are sampled or in progress
    int64_t first[2]; // the first position of each of the last two launches
    Event *drawn[2];  // their ends
    int latest;       // which of the two is the last
    Replay step;      // one token
    Replay stride;    // STRIDE tokens
} Generator;

/* For an encoder-decoder, set `source` afterwards. */
CHECKED Status generator_open(Device *device, Transformer *model, bool cached, Generator *generator);
void generator_close(Generator *generator);

/* Allocates device memory from ARENA_SAVED; with ctx->measuring also rehearses the largest passes. */
CHECKED Status generator_take(Ctx *ctx, Generator *generator);

/* Discards everything and starts with `count` >= 1 tokens; if the prompt is longer than the window, its end
 * is kept. */
CHECKED Status generator_start(Generator *generator, const int32_t *tokens, int64_t count);

/* Captures the steps after the prompt as graphs, of one token and of STRIDE, so that no token waits for the
 * capture. Call it between generator_start and the first token. Up to 2 * STRIDE - 1 tokens are then sampled
 * ahead of the returned one. No effect if a step cannot be captured, or if texts have sources, because a
 * graph is for one length of source. */
CHECKED Status generator_prepare(Ctx *ctx, Generator *generator, const Sampler *sampler);

/* Appends tokens; cached ones are not computed again. The window must have space for them. */
CHECKED Status generator_append(Generator *generator, const int32_t *tokens, int64_t count);

/* Removes the tokens [first, first + count) of the window; those after them are read again. Random numbers
 * continue. */
void generator_forget(Generator *generator, int64_t first, int64_t count);

/* Sets the encoder's source: 1 to `source` tokens, which the encoder reads now. */
CHECKED Status generator_read_source(Ctx *ctx, Generator *generator, const int32_t *tokens, int64_t count);

/* Samples the next token and appends it. Waits for it. ERROR_NONFINITE as in sampler_next. */
CHECKED Status generator_next(Ctx *ctx, Generator *generator, Sampler *sampler, int32_t *token);

/* The logits of the next token after all tokens so far, (vocab) fp32 in host memory, valid until the next call.
 * Waits. Not for a generator with a draft. */
CHECKED Status generator_logits(Ctx *ctx, Generator *generator, const float **logits);
