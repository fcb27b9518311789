/* text_lines: a file's lines as tokens, sorted by length for batches. */
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
    TextLine *sorted; // (lines.count), in the file's order until text_lines_sort
    int64_t longest;  // tokens of the longest line
    int64_t cut;      // lines whose end had to go
} TextLines;

/* Reads the file and tokenizes each line, with the tokenizer's end token behind it and, if `begin`, its begin
 * token before: at most `context` tokens. The tokenizer must have them. ERROR_FORMAT for an empty file.
 * text_lines_close it, also after an error. */
CHECKED Status text_lines_open(const char *path, Tokenizer *tokenizer, bool begin, int64_t context,
                               TextLines *lines);
void text_lines_close(TextLines *lines);

/* Sorts the lines from `first` on, `stretch` of them at a time: the longest first, equals in the file's
 * order. So no line's answer waits for one that is far behind it. */
void text_lines_sort(TextLines *lines, int64_t first, int64_t stretch);

/* Says on standard error how many lines were cut, if any. */
void text_lines_print_cut(const TextLines *lines, int64_t context);
