/* text_lines: a file's lines as tokens, the longest first, as batches want them. */
#pragma once

#include "data/lines.h"
#include "data/tokenizer.h"

typedef struct {
    int64_t first, count; // its tokens: TextLines.tokens[first, first + count)
    int64_t line;         // its number, from 0
} TextLine;

typedef struct {
    Lines lines;
    TokenList tokens;
    TextLine *sorted; // (lines.count), the longest first; equals in the file's order
    int64_t cut;      // lines whose end had to go
} TextLines;

/* Reads the file and tokenizes each line, with the tokenizer's end token behind it and, if `begin`, its begin
 * token before: at most `context` tokens. The tokenizer must have them. ERROR_FORMAT for an empty file.
 * text_lines_close it, also after an error. */
CHECKED Status text_lines_open(const char *path, Tokenizer *tokenizer, bool begin, int64_t context,
                               TextLines *lines);
void text_lines_close(TextLines *lines);

/* Says on standard error how many lines were cut, if any. */
void text_lines_print_cut(const TextLines *lines, int64_t context);
