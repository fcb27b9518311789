#include "tasks/text/text_lines.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int longest_first(const void *left, const void *right) {
    const TextLine *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

static Status add_line(TextLines *l, int64_t line, Tokenizer *tokenizer, bool begin, int64_t context) {
    const Line *text = &l->lines.list[line];
    int64_t first = l->tokens.count;
    if (begin) token_list_add(&l->tokens, tokenizer_special(tokenizer, TOKEN_BEGIN));
    TRY(tokenizer_encode(tokenizer, text->text, text->length, &l->tokens));
    if (l->tokens.count - first >= context) {
        l->tokens.count = first + context - 1;
        l->cut++;
    }
    token_list_add(&l->tokens, tokenizer_special(tokenizer, TOKEN_END));
    l->sorted[line] = (TextLine){first, l->tokens.count - first, line};
    if (l->sorted[line].count > l->longest) l->longest = l->sorted[line].count;
    return OK;
}

Status text_lines_open(const char *path, Tokenizer *tokenizer, bool begin, int64_t context, TextLines *l) {
    *l = (TextLines){0};
    TRY(lines_open(path, &l->lines));
    if (!l->lines.count) return fail(ERROR_FORMAT, "%s is empty", path);
    l->sorted = memory_array((size_t)l->lines.count, sizeof *l->sorted);
    for (int64_t i = 0; i < l->lines.count; i++) TRY(add_line(l, i, tokenizer, begin, context));
    return OK;
}

void text_lines_sort(TextLines *l, int64_t first, int64_t stretch) {
    for (int64_t count; first < l->lines.count; first += count) {
        count = l->lines.count - first < stretch ? l->lines.count - first : stretch;
        qsort(l->sorted + first, (size_t)count, sizeof *l->sorted, longest_first);
    }
}

void text_lines_close(TextLines *l) {
    memory_free(l->sorted);
    token_list_free(&l->tokens);
    lines_close(&l->lines);
}

void text_lines_print_cut(const TextLines *l, int64_t context) {
    if (l->cut)
        fprintf(stderr, "%" PRId64 " line%s truncated to the model's context of %" PRId64 " tokens\n", l->cut,
                l->cut == 1 ? " was" : "s were", context);
}
