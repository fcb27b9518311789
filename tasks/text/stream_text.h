/* stream_text: text from a model: prompt in, bytes out as they come. */
#pragma once

#include "data/tokenizer.h"
#include "run/generate.h"
#include "run/profiling.h"
#include "run/sampler.h"

typedef struct {
    const char *prompt; // empty: the tokenizer's end of text, or a newline
    int64_t prompt_length;
    int64_t tokens;   // to write at most
    const char *stop; // writing ends before each of these texts, which OPTION_SEPARATOR divides; "" for never
    SamplerOptions sampler;
    Profiling *profiling; // each token but the first, for which the prompt is read, is a step of it; or NULL
} TextOptions;

typedef struct {
    int64_t prompt_tokens, tokens;          // read and written
    int64_t left_out;                       // of the prompt, from its beginning: the context holds no more
    double prefill_seconds, decode_seconds; // until the first token; for all others
    bool stopped;                           // by the stop text or the end of text
} TextStats;

/* The prompt's tokens: at least one, to be freed with token_list_free. */
CHECKED Status stream_text_prompt(Tokenizer *tokenizer, const TextOptions *options, TokenList *prompt);

/* How much of the model's context the prompt and the tokens asked for take: what a generator's window
 * needs. */
CHECKED Status stream_text_window(Tokenizer *tokenizer, const TextOptions *options, const Config *config,
                                  int64_t *window);

/* Gets the text piece by piece; a piece may end inside a UTF-8 character. */
typedef Status (*TextSink)(void *context, const void *bytes, int64_t count);

CHECKED Status stream_text(Ctx *ctx, Generator *generator, Tokenizer *tokenizer, const TextOptions *options,
                           TextSink sink, void *context, TextStats *stats);

/* The same into memory, which the caller frees with memory_free; NULL for no text at all. Takes the
 * generator's memory, and gives it back. */
CHECKED Status stream_text_collect(Ctx *ctx, Generator *generator, Tokenizer *tokenizer,
                                   const TextOptions *options, char **text, int64_t *length);
