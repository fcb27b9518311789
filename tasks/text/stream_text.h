/* stream_text: generates text: reads a prompt, and writes bytes as they are generated. */
#pragma once

#include "data/tokenizer.h"
#include "run/generate.h"
#include "run/profiling.h"
#include "run/sampler.h"

typedef struct {
    const char *prompt; // empty: the tokenizer's end of text, or a newline
    int64_t prompt_length;
    int64_t tokens;   // maximum to generate
    const char *stop; // generation ends before each of these texts, separated by OPTION_SEPARATOR; "": never
    SamplerOptions sampler;
    const TokenList *ids; // the prompt's tokens, instead of its text; or NULL
    const int32_t *end;   // another token that ends the text; or NULL
    Profiling *profiling; // each token is a step of this profile, except the first, which comes from the
                          // prompt; or NULL
} TextOptions;

typedef struct {
    int64_t prompt_tokens, tokens;          // tokens read; tokens generated
    int64_t left_out;                       // tokens dropped from the beginning of a prompt longer than the
                                            // context
    double prefill_seconds, decode_seconds; // seconds until the first token, and for all others
    bool stopped;                           // ended by the stop text or the end of text
} TextStats;

/* The prompt's tokens: at least one; free with token_list_free. */
CHECKED Status stream_text_prompt(Tokenizer *tokenizer, const TextOptions *options, TokenList *prompt);

/* The part of the model's context that the prompt and the requested tokens take: the size of a generator's
 * window. */
CHECKED Status stream_text_window(Tokenizer *tokenizer, const TextOptions *options, const Config *config,
                                  int64_t *window);

/* Receives the text piece by piece; a piece may end inside a UTF-8 character. */
typedef Status (*TextSink)(void *context, const void *bytes, int64_t count);

CHECKED Status stream_text(Ctx *ctx, Generator *generator, Tokenizer *tokenizer, const TextOptions *options,
                           TextSink sink, void *context, TextStats *stats);

/* The same into memory, which the caller frees with memory_free; NULL if no text was generated. Takes the
 * generator's memory, and releases it. */
CHECKED Status stream_text_collect(Ctx *ctx, Generator *generator, Tokenizer *tokenizer,
                                   const TextOptions *options, char **text, int64_t *length);
