/* translate: translates several sentences at once with an encoder-decoder, by beam search
 * (tasks/pairs/beam.h). The encoder runs once. Then each step feeds the last token of every hypothesis; its
 * keys and values, and those of the encoder's output, are cached. Without the cache each step feeds all
 * tokens so far. */
#pragma once

#include "tasks/pairs/beam.h"
#include "model/transformer.h"

/* The amount of work of a decoding step, from the minimum to a textbook's loop. */
typedef enum {
    DECODING_CACHED, // one token of each hypothesis
    DECODING_SELF,   // the same, but recomputes keys and values of the encoder's output
    DECODING_LAST,   // all tokens so far, and the logits of the last
    DECODING_ALL     // all tokens so far, and the logits of each
} Decoding;

typedef struct {
    int64_t sentences, beam; // sentences at once; hypotheses per sentence
    double penalty;          // length penalty
    int32_t begin, end;      // special tokens
    int64_t source;          // tokens of the longest source, including its end token
    int64_t least, most;     // least and most tokens of a translation, including its end token
    Decoding decoding;
} TranslateOptions;

typedef struct {
    TranslateOptions options;
    Transformer *model;
    Beams *beams;
    int64_t rows;            // sentences * beam
    Cache cache;             // the cache of all rows
    Tensor spare_k, spare_v; // like cache.k and cache.v: the destination of reordered rows
    Tensor cache_memory;     // all of cache.memory; a batch uses the part for its longest source
    Tensor source;           // (sentences, source) i32, device memory, like all below
    Tensor source_lengths;   // (rows) i32: lengths of the sentences, then of their rows
    Tensor repeated;         // (rows) i32: the sentence of each row
    Tensor tokens;           // (rows, most) i32
    Tensor gathered;         // (layers * rows) i32: indices for gathering rows of the cache, or last
                             // positions
    Tensor logits;           // (rows, padded vocab) fp32
    int32_t *ids;            // host memory: as long as the longest i32 tensor
    int32_t *next, *parents; // (rows) host memory
    float *values;           // (rows, padded vocab) host memory
    int64_t steps;           // steps since translator_begin
    Tensor memory;           // (rows, S, C) of the current batch, and the arena's mark before it
    ArenaMark before;
} Translator;

typedef struct {
    const int32_t *ids;
    int64_t count; // tokens of the sentence, including the end token: 1 to options.source
} Sentence;

CHECKED Status translator_open(const TranslateOptions *options, Transformer *model, Translator *translator);
void translator_close(Translator *translator);

/* Allocates device memory from ARENA_SAVED; with ctx->measuring also rehearses the largest passes. */
CHECKED Status translator_take(Ctx *ctx, Translator *translator);

/* Translates 1 to options.sentences sentences. Waits. ERROR_NONFINITE as in beams_advance. */
CHECKED Status translator_run(Ctx *ctx, Translator *translator, const Sentence *sentences, int64_t count);

/* The parts of translator_run: begin reads the sources and takes memory from ARENA_SAVED; step decodes a
 * token per row until done; end releases the memory. */
CHECKED Status translator_begin(Ctx *ctx, Translator *translator, const Sentence *sentences, int64_t count);
CHECKED Status translator_step(Ctx *ctx, Translator *translator);
bool translator_done(const Translator *translator);
void translator_end(Ctx *ctx, Translator *translator);

/* From the last run: a sentence's translation, without begin and end, and its score (tasks/pairs/beam.h). */
const int32_t *translator_best(const Translator *translator, int64_t sentence, int64_t *length,
                               double *score);
