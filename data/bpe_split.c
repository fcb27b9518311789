/* Cuts text into pieces by patterns, through PCRE2. */
#include "base/memory.h"
#include "data/bpe.h"
#include "base/hash.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { INTERPRETER_KIB = 1 << 18 }; // of memory for one match

struct Splitter {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    bool compiled; // to machine code
    SplitBehavior behavior;
    bool invert;
    uint64_t hash; // of the pattern
};

/* Contractions; letters, numbers or other marks with at most one space before; spaces, of which the last is
 * left to the word that follows. (Radford et al. 2019, the released code's pattern.) */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

Status splitter_open(const char *pattern, bool literal, SplitBehavior behavior, bool invert,
                     Splitter **splitter) {
    *splitter = NULL;
    Splitter *s = memory_allocate(sizeof *s);
    *s = (Splitter){.behavior = behavior, .invert = invert};
    s->hash = hash_bytes(literal, pattern, strlen(pattern));
    int error = 0;
    uint32_t matches_nothing = 0;
    PCRE2_SIZE where = 0;
    /* Most matches begin where the last one ended: looking ahead for a good place does not pay. */
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NO_START_OPTIMIZE);
    s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &where, NULL);
    if (s->code) pcre2_pattern_info(s->code, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
    if (!s->code || matches_nothing) {
        char reason[200] = "it matches nothing at all";
        if (!s->code) pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
        splitter_free(s);
        return fail(error == PCRE2_ERROR_HEAP_FAILED ? ERROR_MEMORY : ERROR_FORMAT,
                    "the pattern \"%.200s\" cannot be used: %s", pattern, reason);
    }
    s->match = pcre2_match_data_create(1, NULL);
    s->limits = pcre2_match_context_create(NULL);
    if (!s->match || !s->limits) {
        splitter_free(s);
        return fail(ERROR_MEMORY, "out of host memory for a tokenizer's pattern");
    }
    pcre2_set_heap_limit(s->limits, INTERPRETER_KIB);
    s->compiled = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
    *splitter = s;
    return OK;
}

Status splitter_open_gpt2(Splitter **splitter) {
    char *pattern;
    TRY(pattern_translate(gpt2_pattern, &pattern));
    Status status = splitter_open(pattern, false, SPLIT_ISOLATED, false, splitter);
    memory_free(pattern);
    return status;
}

void splitter_free(Splitter *splitter) {
    if (!splitter) return;
    pcre2_match_context_free(splitter->limits);
    pcre2_match_data_free(splitter->match);
    pcre2_code_free(splitter->code);
    memory_free(splitter);
}

uint64_t splitter_hash(const Splitter *s, uint64_t hash) {
    uint64_t parts[] = {s->hash, (uint64_t)s->behavior, s->invert};
    return hash_bytes(hash, parts, sizeof parts);
}

/* The first match in text[from, length), [*begin, *end), or both the length if there is none. */
static Status find(Splitter *s, const uint8_t *text, int64_t length, int64_t from, int64_t *begin,
                   int64_t *end) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    /* The caller has checked the UTF-8. */
    if (s->compiled) found = pcre2_jit_match(s->code, text, (size_t)length, (size_t)from, 0, s->match, NULL);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter's grows */
        found = pcre2_match(s->code, text, (size_t)length, (size_t)from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            s->match, s->limits);
    *begin = *end = length;
    if (found == PCRE2_ERROR_NOMATCH) return OK;
    if (found == PCRE2_ERROR_NOMEMORY)
        return fail(ERROR_MEMORY, "out of host memory for a tokenizer's pattern");
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT)
        return fail(ERROR_FORMAT,
                    "a tokenizer's pattern takes too many steps, or too much memory, on this text");
    /* With one pair of offsets, 0 says that there were groups besides. */
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(s->match);
    if (found < 0 || (int64_t)offsets[1] <= from || offsets[1] <= offsets[0])
        return fail(ERROR_INTERNAL, "a tokenizer's pattern: PCRE2 answers %d", found);
    *begin = (int64_t)offsets[0];
    *end = (int64_t)offsets[1];
    return OK;
}

/* A match, or what stands between two. */
typedef struct {
    int64_t end;
    bool match;          // after `invert`
    int64_t known_until; // the end of the match that follows, where that is known; else 0
} Stretch;

static Status stretch_at(Splitter *s, const uint8_t *text, int64_t length, int64_t from,
                         const Stretch *before, Stretch *stretch) {
    int64_t begin = from, end = before ? before->known_until : 0;
    if (end == 0) TRY(find(s, text, length, from, &begin, &end));
    bool match = begin == from;
    *stretch = (Stretch){match ? end : begin, match != s->invert, match || begin == end ? 0 : end};
    return OK;
}

/* Does the next stretch belong to the piece of this one? */
static bool goes_on(SplitBehavior behavior, bool match, bool next) {
    if (behavior == SPLIT_CONTIGUOUS) return match == next;
    return behavior == SPLIT_WITH_PREVIOUS ? !match && next : behavior == SPLIT_WITH_NEXT && match && !next;
}

Status splitter_next(Splitter *s, const uint8_t *text, int64_t length, int64_t from, int64_t *begin,
                     int64_t *end) {
    Stretch here, next;
    if (s->behavior == SPLIT_ISOLATED) { /* nearly all: a match, or what stands before it */
        int64_t found;
        *begin = from;
        TRY(find(s, text, length, from, &found, end));
        if (found > from) *end = found;
        return OK;
    }
    TRY(stretch_at(s, text, length, from, NULL, &here));
    *begin = from;
    *end = here.end;
    if (s->behavior == SPLIT_REMOVED && here.match) {
        *begin = here.end;
        for (; *begin < length; *begin = here.end) {
            TRY(stretch_at(s, text, length, *begin, &here, &next));
            here = next;
            if (!here.match) break;
        }
        *end = *begin < length ? here.end : length;
        return OK;
    }
    if (s->behavior == SPLIT_REMOVED) return OK;
    while (*end < length) {
        TRY(stretch_at(s, text, length, *end, &here, &next));
        if (!goes_on(s->behavior, here.match, next.match)) break;
        *end = next.end;
        here = next;
        if (s->behavior != SPLIT_CONTIGUOUS) break;
    }
    return OK;
}
