#include "tasks/pairs/pairs.h"

#include "base/memory.h"
#include "data/lines.h"

#include <string.h>

/* The sentences of one side, concatenated. */
typedef struct {
    TokenList tokens;
    int64_t *starts; // (count + 1)
} Side;

struct PairSource {
    Side sides[2];
    int64_t count, left_out, seq;
    PairTokens special;
};

/* ---- reading ---- */

static Status read_special(const Tokenizer *tokenizer, PairTokens *special) {
    *special =
        (PairTokens){tokenizer_special(tokenizer, TOKEN_PAD), tokenizer_special(tokenizer, TOKEN_BEGIN),
                     tokenizer_special(tokenizer, TOKEN_END)};
    if (special->pad >= 0 && special->begin >= 0 && special->end >= 0) return OK;
    return fail(ERROR_USAGE, "sentence pairs need a tokenizer with <pad>, <s> and </s>; train one with "
                             "--train-tokenizer=N");
}

/* Reads one pair; skips it if a side has no token, or too many. */
static Status read_pair(PairSource *pairs, Tokenizer *tokenizer, const Line *lines[2], int64_t most) {
    bool fits = true;
    for (int side = 0; side < 2; side++) {
        int64_t begin = pairs->sides[side].starts[pairs->count];
        TRY(tokenizer_encode(tokenizer, lines[side]->text, lines[side]->length, &pairs->sides[side].tokens));
        int64_t count = pairs->sides[side].tokens.count - begin;
        fits = fits && count > 0 && count <= most;
    }
    for (int side = 0; side < 2; side++) {
        Side *s = &pairs->sides[side];
        if (fits)
            s->starts[pairs->count + 1] = s->tokens.count;
        else
            s->tokens.count = s->starts[pairs->count];
    }
    *(fits ? &pairs->count : &pairs->left_out) += 1;
    return OK;
}

static Status read_pairs(PairSource *pairs, const PairOptions *o) {
    CLOSED_BY(lines_close) Lines source = {0};
    CLOSED_BY(lines_close) Lines target = {0};
    TRY(read_special(o->tokenizer, &pairs->special));
    TRY(lines_open(o->source, &source));
    TRY(lines_open(o->target, &target));
    int64_t count = source.count;
    if (count != target.count)
        return fail(ERROR_FORMAT,
                    "%s has %lld lines and %s has %lld: line i of one must be the translation of line i of "
                    "the other",
                    o->source, (long long)count, o->target, (long long)target.count);
    for (int side = 0; side < 2; side++)
        pairs->sides[side].starts = memory_array((size_t)count + 1, sizeof(int64_t));
    for (int64_t i = 0; i < count; i++) {
        const Line *pair[2] = {&source.list[i], &target.list[i]};
        TRY(read_pair(pairs, o->tokenizer, pair, o->seq - 1));
    }
    if (pairs->count) return OK;
    if (o->seq < 2)
        return fail(ERROR_USAGE,
                    "--seq=%lld leaves no room for a sentence and its end token; the minimum is 2",
                    (long long)o->seq);
    return fail(ERROR_FORMAT, "%s and %s: none of %lld pairs of lines has 1 to %lld tokens on each side",
                o->source, o->target, (long long)count, (long long)o->seq - 1);
}

Status pairs_open(const PairOptions *options, PairSource **pairs) {
    PairSource *p = memory_allocate(sizeof *p);
    p->seq = options->seq;
    Status status = read_pairs(p, options);
    *pairs = status ? NULL : p;
    if (status) pairs_close(p);
    return status;
}

void pairs_close(PairSource *pairs) {
    if (!pairs) return;
    for (int side = 0; side < 2; side++) {
        token_list_free(&pairs->sides[side].tokens);
        memory_free(pairs->sides[side].starts);
    }
    memory_free(pairs);
}

Status pairs_split_names(const char *names, char **source, char **target) {
    const char *comma = strchr(names, ',');
    *source = *target = NULL;
    if (!comma || comma == names || !comma[1] || strchr(comma + 1, ','))
        return fail(ERROR_USAGE, "%s: sentence pairs are two texts, such as --data=SOURCE,TARGET", names);
    *source = memory_text_slice(names, (size_t)(comma - names));
    *target = memory_text(comma + 1);
    return OK;
}

/* ---- access ---- */

int64_t pairs_count(const PairSource *pairs) {
    return pairs->count;
}
int64_t pairs_left_out(const PairSource *pairs) {
    return pairs->left_out;
}
PairTokens pairs_special(const PairSource *pairs) {
    return pairs->special;
}
int64_t pairs_seq(const PairSource *pairs) {
    return pairs->seq;
}

const int32_t *pairs_sentence(const PairSource *pairs, int side, int64_t pair, int64_t *length) {
    const Side *s = &pairs->sides[side];
    *length = s->starts[pair + 1] - s->starts[pair];
    return s->tokens.ids + s->starts[pair];
}
