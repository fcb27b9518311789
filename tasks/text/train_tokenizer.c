#include "tasks/text/train_tokenizer.h"

#include "base/directories.h"
#include "base/memory.h"
#include "tasks/text/corpus.h"
#include "data/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Moves the paths of `more` to the end of `all`. */
static void append(PathList *all, PathList *more) {
    all->paths = memory_resize(all->paths, (size_t)(all->count + more->count) * sizeof *all->paths);
    memcpy(all->paths + all->count, more->paths, (size_t)more->count * sizeof *all->paths);
    all->count += more->count;
    more->count = 0;
}

static Status list_texts(const char *names, PathList *texts) {
    while (*names) {
        size_t length = strcspn(names, ",");
        char *name = memory_text_slice(names, length);
        PathList files = {0};
        Status status = tokens_find_files(name, &files);
        if (!status) append(texts, &files);
        path_list_free(&files);
        memory_free(name);
        TRY(status);
        names += length + (names[length] == ',');
    }
    return OK;
}

Status train_tokenizer(const TrainOptions *o) {
    PathList texts = {0};
    Tokenizer *tokenizer = NULL;
    Status status = *o->data ? list_texts(o->data, &texts) : corpus_list(&texts);
    if (!status) status = tokenizer_train(&texts, o->train_tokenizer, &tokenizer);
    if (!status) status = directory_make(o->out);
    if (!status) status = tokenizer_save(tokenizer, o->out);
    if (!status && !o->quiet)
        printf("tokenizer of %" PRId32 " tokens, trained on %" PRId64 " text%s, in %s%s\n",
               tokenizer_vocab(tokenizer), texts.count, texts.count == 1 ? "" : "s", o->out,
               tokenizer_vocab(tokenizer) < o->train_tokenizer ? "; no pairs are left to merge" : "");
    tokenizer_free(tokenizer);
    path_list_free(&texts);
    return status;
}
