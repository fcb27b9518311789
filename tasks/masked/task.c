/* The task "masked": predicting the original tokens behind masks. */
#include "tasks/masked/infer.h"
#include "tasks/masked/masked.h"
#include "tasks/task.h"
#include "tasks/text/infer.h"
#include "tasks/text/texts.h"

static Status masked_rule(const Session *s, MaskRule *rule) {
    const Tokenizer *t = s->tokenizer;
    *rule = (MaskRule){.begin = -1, .end = -1, .mask = -1, .vocab = s->config.vocab};
    if (t)
        *rule = (MaskRule){tokenizer_special(t, TOKEN_BEGIN), tokenizer_special(t, TOKEN_END),
                           tokenizer_special(t, TOKEN_MASK), tokenizer_vocab(t)};
    if (rule->begin >= 0 && rule->end >= 0 && rule->mask >= 0) return OK;
    return fail(ERROR_USAGE, "masked tokens need a tokenizer with [CLS], [SEP] and [MASK], such as BERT's "
                             "vocab.txt; name its folder with --tokenizer, or train one with "
                             "--train-tokenizer=N");
}

/* Reports a tokenizer without a mask before a text is read with it, and before texts_open reports that a text
 * needs a tokenizer. */
static Status open_texts(const FeedOptions *o, const char *data, void **source) {
    MaskRule rule;
    TRY(masked_rule(o->session, &rule));
    return texts_open(o, data, source);
}

static Status make(const FeedOptions *o, const void *source, const LoaderOptions *part, Loader **loader) {
    MaskRule rule;
    TRY(masked_rule(o->session, &rule));
    return loader_open_masked(part, source, &rule, loader);
}

static Status begin(TrainOptions *o, const OptionSet *set, Session *session, Feed *feed) {
    (void)set;
    (void)feed;
    if (session->config.head_transform || *o->resume) return OK;
    return fail(ERROR_USAGE, "the model in %s has no head for masked tokens; --new-head adds one", o->model);
}

static Status logits(Session *session, const InferOptions *o, const OptionSet *set) {
    TRY(masked_needs_head(session, o, "logits"));
    return logits_text(session, o, set);
}

static const Command commands[] = {
    {.selector = "fill", .reads = "", .run = fill_text},
    {.selector = "embed", .reads = "output pooling batch seq", .check = embed_check, .run = embed_text},
    {.selector = "logits", .reads = "ids", .check = logits_check, .run = logits},
    {0},
};

const TaskRow task_masked = {.trains = TASK_MASKED_TOKEN,
                             .models = "a BERT",
                             .infer = &masked_infer,
                             .reads = "field",
                             .commands = commands,
                             .begin = begin,
                             .batches = {.held = BATCHES_HELD,
                                         .open = open_texts,
                                         .rows = texts_rows,
                                         .make = make,
                                         .print = texts_print,
                                         .record = texts_record,
                                         .sample = texts_sample,
                                         .close = texts_close}};
