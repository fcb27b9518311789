/* text_stream: tokens become text as they come, in whole UTF-8 characters. */
#pragma once

#include "data/token.h"
#include "data/tokenizer.h"

/* All-zero at the beginning of a text. */
typedef struct {
    bool begun;      // there is text already, or it goes on from another: a first space stays
    uint8_t held[3]; // the beginning of a character
    int count;
} TextStream;

/* Appends the text that a token completes to `out`. Bytes that can be no character become U+FFFD, one for
 * each longest part that could begin one (Unicode 15, section 3.9). A special token, and an id outside the
 * vocabulary, have no text. */
void tokenizer_stream(const Tokenizer *tokenizer, TextStream *stream, int32_t id, Bytes *out);

/* When no token follows: what is left of a character becomes U+FFFD. */
void tokenizer_stream_end(TextStream *stream, Bytes *out);
