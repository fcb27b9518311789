/* translate: several sentences at once through an encoder-decoder, by beam search (tasks/pairs/beam.h). The
 * encoder runs once; then each step feeds the last token of every hypothesis, whose keys and values, and
 * those of the encoder's output, are cached. Without the cache each step feeds all tokens so far. */
#pragma once

#include "tasks/pairs/beam.h"
#include "model/transformer.h"

/* What a step of decoding computes: from what a textbook's loop does to what is needed. */
typedef enum {
    DECODING_CACHED, // one token of each hypothesis
    DECODING_SELF,   // the same, but the keys and values of the encoder's output anew
    DECODING_LAST,   // all tokens so far, and the logits of the last
    DECODING_ALL     // all tokens so far, and the logits of each
} Decoding;

typedef struct {
    int64_t sentences, beam; // at once; hypotheses of each
    double penalty;          // of the length
    int32_t begin, end;      // tokens
    int64_t source;          // tokens of the longest source, with its end token
    int64_t least, most;     // of a translation, the same
    Decoding decoding;
} TranslateOptions;

typedef struct {
    TranslateOptions options;
    Transformer *model;
    Beams *beams;
    int64_t rows;            // sentences * beam
    Cache cache;             // of the rows
    Tensor spare_k, spare_v; // as cache.k and cache.v: where the rows go that are reordered
    Tensor cache_memory;     // all of cache.memory, of which a batch uses as much as its sources are long
    Tensor source;           // (sentences, source) i32, device memory, as all that follow
    Tensor source_lengths;   // (rows) i32: first of the sentences, then of their rows
    Tensor repeated;         // (rows) i32: the sentence of each row
    Tensor tokens;           // (rows, most) i32
    Tensor gathered;         // (layers * rows) i32: rows that a gather takes: of the cache, or last positions
    Tensor logits;           // (rows, padded vocab) fp32
    int32_t *ids;            // host memory: as long as the longest of the tensors of i32
    int32_t *next, *parents; // (rows) host memory
    float *values;           // (rows, padded vocab) host memory
    int64_t steps;           // decoded since translator_begin
    Tensor memory;           // (rows, S, C) of a batch under way, and where the arena stood before it
    ArenaMark before;
} Translator;

typedef struct {
    const int32_t *ids;
    int64_t count; // with the end token; at least 1, at most options.source
} Sentence;

CHECKED Status translator_open(const TranslateOptions *options, Transformer *model, Translator *translator);
void translator_close(Translator *translator);

/* Takes the device memory from ARENA_SAVED; with ctx->measuring also rehearses the largest passes. */
CHECKED Status translator_take(Ctx *ctx, Translator *translator);

/* Translates 1 to options.sentences sentences. Waits. ERROR_NONFINITE as beams_advance. */
CHECKED Status translator_run(Ctx *ctx, Translator *translator, const Sentence *sentences, int64_t count);

/* Its parts: reads the sources, which takes memory from ARENA_SAVED; decodes a token of each row while it is
 * not done; gives the memory back. */
CHECKED Status translator_begin(Ctx *ctx, Translator *translator, const Sentence *sentences, int64_t count);
CHECKED Status translator_step(Ctx *ctx, Translator *translator);
bool translator_done(const Translator *translator);
void translator_end(Ctx *ctx, Translator *translator);

/* Of the last run: a sentence's translation, without begin and end, and its score (tasks/pairs/beam.h). */
const int32_t *translator_best(const Translator *translator, int64_t sentence, int64_t *length,
                               double *score);
