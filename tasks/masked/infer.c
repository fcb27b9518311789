#include "tasks/masked/infer.h"

#include "run/option_rows.h"

#define AT(member) .field = offsetof(MaskedInfer, member)

static const Option rows[] = {
    HEADING("Embeddings and masked tokens, with a BERT"),
    {TEXT("embed", "FILE", embed), .doc = "embed each line, as safetensors; needs --output"},
    {CHOICE("pooling", "mean|first|pooler", pooling),
     .doc = "how the tokens' hidden states become one embedding"},
    {TEXT("fill", "TEXT", fill), .doc = "print the likeliest tokens for each [MASK] in TEXT"},
};

static const MaskedInfer defaults = {.embed = "", .fill = ""};

const OptionTable masked_infer = {rows, sizeof rows / sizeof *rows, &defaults, sizeof defaults};

Status embed_check(const InferOptions *o, const OptionSet *set) {
    (void)set;
    if (*o->output) return OK;
    return fail(ERROR_USAGE, "--embed needs a file to write the embeddings to: --output=FILE");
}

Status masked_needs_head(const Session *session, const InferOptions *o, const char *selector) {
    if (session->config.head_transform) return OK;
    return fail(ERROR_USAGE,
                "--%s needs a head for masked tokens, and the model in %s has none: --embed needs none, "
                "training with --new-head adds one",
                selector, o->model);
}

Status masked_needs_tokenizer(const Session *session, const char *selector) {
    const Tokenizer *t = session->tokenizer;
    if (t && tokenizer_special(t, TOKEN_BEGIN) >= 0 && tokenizer_special(t, TOKEN_END) >= 0) return OK;
    return fail(ERROR_USAGE, "--%s needs a tokenizer with [CLS] and [SEP]; name one with --tokenizer=FOLDER",
                selector);
}
