/* text_stream: decodes tokens to text one by one, in whole UTF-8 characters. */
#pragma once

#include "data/token.h"
#include "data/tokenizer.h"

/* All-zero at the beginning of a text. */
typedef struct {
    bool begun;      // there is text already, or a text is continued: a first space stays
    uint8_t held[3]; // the beginning of an incomplete character
    int count;
} TextStream;

/* Appends the text that a token completes to `out`. Invalid bytes become U+FFFD, one for each longest part
 * that could begin a character (Unicode 15, section 3.9). Special tokens, and ids outside the vocabulary,
 * have no text. */
void tokenizer_stream(const Tokenizer *tokenizer, TextStream *stream, int32_t id, Bytes *out);

/* Ends the text: an incomplete character becomes U+FFFD. */
void tokenizer_stream_end(TextStream *stream, Bytes *out);
