#include "tasks/text/train_tokenizer.h"

#include "base/directories.h"
#include "base/memory.h"
#include "tasks/text/corpus.h"
#include "data/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

Status train_tokenizer(const TrainOptions *o) {
    CLOSED_BY(path_list_free) PathList texts = {0};
    CLOSED_BY(tokenizer_release) Tokenizer *tokenizer = NULL;
    TRY(*o->data ? tokens_find_files(o->data, &texts) : corpus_list(&texts));
    TRY(tokenizer_train(&texts, o->train_tokenizer, &tokenizer));
    TRY(directory_make(o->out));
    TRY(tokenizer_save(tokenizer, o->out));
    if (!o->quiet)
        printf("tokenizer of %" PRId32 " tokens, trained on %" PRId64 " text%s, in %s%s\n",
               tokenizer_vocab(tokenizer), texts.count, texts.count == 1 ? "" : "s", o->out,
               tokenizer_vocab(tokenizer) < o->train_tokenizer ? "; no pairs are left to merge" : "");
    return OK;
}
