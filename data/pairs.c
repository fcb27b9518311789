#include "data/pairs.h"

#include "base/files.h"
#include "base/memory.h"
#include "data/pairs_internal.h"

#include <string.h>

/* The sentences of one side, one after another. */
typedef struct {
    TokenList tokens;
    int64_t *starts; // (count + 1)
} Side;

struct PairSource {
    Side sides[2];
    int64_t count, left_out;
    PairTokens special;
};

static Status fail_memory(void) {
    return fail(ERROR_MEMORY, "no memory left for the sentence pairs");
}

/* ---- reading ---- */

/* A text and the place that it has been read to. */
typedef struct {
    const char *path;
    FileMap map;
    int64_t at;
} Lines;

static int64_t count_lines(const FileMap *map) {
    int64_t lines = 0;
    const uint8_t *at = map->data, *end = at + map->size;
    for (; at < end; lines++) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        at = newline ? newline + 1 : end;
    }
    return lines;
}

/* The next line, without its end. */
static const uint8_t *next_line(Lines *lines, int64_t *length) {
    const uint8_t *line = lines->map.data + lines->at;
    int64_t left = lines->map.size - lines->at;
    const uint8_t *newline = memchr(line, '\n', (size_t)left);
    *length = newline ? newline - line : left;
    lines->at += *length + (newline != NULL);
    if (*length > 0 && line[*length - 1] == '\r') --*length;
    return line;
}

/* One pair; left out if a side has no token, or too many. */
static Status read_pair(PairSource *pairs, Tokenizer *tokenizer, Lines lines[2], int64_t most) {
    bool fits = true;
    for (int side = 0; side < 2; side++) {
        int64_t length, begin = pairs->sides[side].starts[pairs->count];
        const uint8_t *line = next_line(&lines[side], &length);
        TRY(tokenizer_encode(tokenizer, line, length, &pairs->sides[side].tokens));
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

static Status read_pairs(PairSource *pairs, const PairOptions *o, Lines lines[2]) {
    int64_t counts[2];
    for (int side = 0; side < 2; side++) {
        TRY(file_map(lines[side].path, &lines[side].map));
        counts[side] = count_lines(&lines[side].map);
    }
    if (counts[0] != counts[1])
        return fail(ERROR_FORMAT,
                    "%s has %lld lines and %s has %lld: line i of one must be the translation of line i of "
                    "the other",
                    o->source, (long long)counts[0], o->target, (long long)counts[1]);
    for (int side = 0; side < 2; side++) {
        pairs->sides[side].starts = memory_array((size_t)counts[0] + 1, sizeof(int64_t));
        if (!pairs->sides[side].starts) return fail_memory();
    }
    for (int64_t i = 0; i < counts[0]; i++) TRY(read_pair(pairs, o->tokenizer, lines, o->seq - 1));
    if (pairs->count) return OK;
    return fail(ERROR_FORMAT, "%s and %s: none of %lld pairs of lines has 1 to %lld tokens on each side",
                o->source, o->target, (long long)counts[0], (long long)o->seq - 1);
}

static Status read_special(const Tokenizer *tokenizer, PairTokens *special) {
    *special =
        (PairTokens){tokenizer_special(tokenizer, TOKEN_PAD), tokenizer_special(tokenizer, TOKEN_BEGIN),
                     tokenizer_special(tokenizer, TOKEN_END)};
    if (special->pad >= 0 && special->begin >= 0 && special->end >= 0) return OK;
    return fail(ERROR_USAGE, "the tokenizer of sentence pairs needs <pad>, <s> and </s>; train one with "
                             "--train-tokenizer=N");
}

Status pairs_open(const PairOptions *options, PairSource **pairs) {
    *pairs = NULL;
    Lines lines[2] = {{.path = options->source}, {.path = options->target}};
    PairSource *p = memory_allocate(sizeof *p);
    if (!p) return fail_memory();
    Status status = read_special(options->tokenizer, &p->special);
    if (!status) status = read_pairs(p, options, lines);
    file_unmap(&lines[0].map);
    file_unmap(&lines[1].map);
    if (status)
        pairs_close(p);
    else
        *pairs = p;
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
        return fail(ERROR_USAGE, "--data=%s: sentence pairs are two texts, --data=SOURCE,TARGET", names);
    *source = memory_text_slice(names, (size_t)(comma - names));
    *target = memory_text(comma + 1);
    if (*source && *target) return OK;
    memory_free(*source);
    memory_free(*target);
    return fail_memory();
}

/* ---- reading out ---- */

int64_t pairs_count(const PairSource *pairs) {
    return pairs->count;
}
int64_t pairs_left_out(const PairSource *pairs) {
    return pairs->left_out;
}
PairTokens pairs_special(const PairSource *pairs) {
    return pairs->special;
}

const int32_t *pairs_sentence(const PairSource *pairs, int side, int64_t pair, int64_t *length) {
    const Side *s = &pairs->sides[side];
    *length = s->starts[pair + 1] - s->starts[pair];
    return s->tokens.ids + s->starts[pair];
}
