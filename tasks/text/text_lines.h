/* text_lines: a file's lines as tokens, sorted by length for batches. */
#pragma once

#include "data/lines.h"
#include "data/tokenizer.h"

typedef struct {
    int64_t first, count; // tokens of the line: TextLines.tokens[first, first + count)
    int64_t line;         // number of the line, from 0
} TextLine;

typedef struct {
    Lines lines;
    TokenList tokens;
    TextLine *sorted; // (lines.count), in the file's order until text_lines_sort
    int64_t longest;  // tokens of the longest line
    int64_t cut;      // number of lines whose end was cut
} TextLines;

/* Reads the file and tokenizes each line, followed by the tokenizer's end token and, with `begin`, preceded
 * by its begin token: at most `context` tokens. The tokenizer must have these tokens. ERROR_FORMAT for an
 * empty file. Call text_lines_close, also after an error. */
CHECKED Status text_lines_open(const char *path, Tokenizer *tokenizer, bool begin, int64_t context,
                               TextLines *lines);
void text_lines_close(TextLines *lines);

/* Sorts the lines from `first` on within groups of `stretch`: longest first, equal lengths in the file's
 * order. Because of the groups, an answer never waits for a line much later in the file. */
void text_lines_sort(TextLines *lines, int64_t first, int64_t stretch);

/* Reports on standard error how many lines were cut, if any. */
void text_lines_print_cut(const TextLines *lines, int64_t context);
