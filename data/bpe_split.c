/* Splits text into pieces by patterns, with PCRE2. */
#include "base/memory.h"
#include "data/bpe.h"
#include "base/hash.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Patterns are untrusted, and PCRE2's own limit is per match, while a match is tried at every character. So a
 * match is first tried in WINDOW bytes with QUICK_LIMIT of PCRE2's steps, which is enough in nearly all cases
 * and examines at most WINDOW * QUICK_LIMIT characters. A match that needs more is tried in the whole text
 * with its steps counted against a budget that grows with the text. */
enum { INTERPRETER_KIB = 1 << 18 /* memory for one match */, WINDOW = 128, QUICK_LIMIT = 32 };
static const int64_t STEPS_AT_FIRST = 1 << 24, STEPS_PER_BYTE = 64, STEPS_MOST = (int64_t)1 << 40;

struct Splitter {
    char *pattern;
    uint32_t options;
    pcre2_code *code,
        *counted; // `counted` calls count_step before each item of the pattern; compiled when needed
    pcre2_match_data *match;
    pcre2_match_context *quick, *counting;
    bool compiled;   // compiled by the JIT
    int64_t budget;  // remaining steps
    int64_t looked;  // position of the previous step
    int64_t careful; // bytes for which steps are still counted
    SplitBehavior behavior;
    bool invert;
    uint64_t hash; // hash of the pattern, and of whether it is literal
};

/* GPT-2's pattern: contractions; letters, numbers or other marks with at most one space before them; spaces,
 * except the last one before a word. (Radford et al. 2019, the released code's pattern.) */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* PCRE2 calls this before each item of the pattern. An item costs the distance that the match has
 * advanced. */
static int count_step(pcre2_callout_block *block, void *splitter) {
    Splitter *s = splitter;
    int64_t at = (int64_t)block->current_position;
    s->budget -= 1 + (at > s->looked ? at - s->looked : 0);
    s->looked = at;
    return s->budget < 0 ? PCRE2_ERROR_CALLOUT : 0;
}

Status splitter_open(const char *pattern, bool literal, SplitBehavior behavior, bool invert,
                     Splitter **splitter) {
    *splitter = NULL;
    Splitter *s = memory_allocate(sizeof *s);
    *s = (Splitter){.behavior = behavior, .invert = invert};
    s->hash = hash_bytes(literal, pattern, strlen(pattern));
    int error = 0;
    uint32_t matches_nothing = 0;
    PCRE2_SIZE where = 0;
    /* Most matches begin where the last one ended, so PCRE2's optimizations of the start do not pay. */
    s->options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NO_START_OPTIMIZE);
    s->pattern = memory_text(pattern);
    s->budget = STEPS_AT_FIRST;
    s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, s->options, &error, &where, NULL);
    if (s->code) pcre2_pattern_info(s->code, PCRE2_INFO_MATCHEMPTY, &matches_nothing);
    if (!s->code || matches_nothing) {
        char reason[200] = "it matches nothing at all";
        if (!s->code) pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
        splitter_free(s);
        return fail(error == PCRE2_ERROR_HEAP_FAILED ? ERROR_MEMORY : ERROR_FORMAT,
                    "the pattern \"%.200s\" cannot be used: %s", pattern, reason);
    }
    s->match = pcre2_match_data_create(1, NULL);
    s->quick = pcre2_match_context_create(NULL);
    s->counting = pcre2_match_context_create(NULL);
    if (!s->match || !s->quick || !s->counting) {
        splitter_free(s);
        return fail(ERROR_MEMORY, "out of host memory for a tokenizer's pattern");
    }
    pcre2_set_match_limit(s->quick, QUICK_LIMIT);
    pcre2_set_match_limit(s->counting, UINT32_MAX);
    pcre2_set_heap_limit(s->counting, INTERPRETER_KIB);
    pcre2_set_callout(s->counting, count_step, s);
    s->compiled = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
    *splitter = s;
    return OK;
}

Status splitter_open_gpt2(Splitter **splitter) {
    OWNED char *pattern = NULL;
    TRY(pattern_translate(gpt2_pattern, &pattern));
    return splitter_open(pattern, false, SPLIT_ISOLATED, false, splitter);
}

void splitter_free(Splitter *splitter) {
    if (!splitter) return;
    pcre2_match_context_free(splitter->quick);
    pcre2_match_context_free(splitter->counting);
    pcre2_match_data_free(splitter->match);
    pcre2_code_free(splitter->code);
    pcre2_code_free(splitter->counted);
    memory_free(splitter->pattern);
    memory_free(splitter);
}

uint64_t splitter_hash(const Splitter *s, uint64_t hash) {
    uint64_t parts[] = {s->hash, (uint64_t)s->behavior, s->invert};
    return hash_bytes(hash, parts, sizeof parts);
}

/* PCRE2's result: a match, or an error. The caller has validated the UTF-8. */
static int quick_match(Splitter *s, const uint8_t *text, int64_t length, int64_t from, uint32_t partial) {
    if (s->compiled)
        return pcre2_jit_match(s->code, text, (size_t)length, (size_t)from, partial, s->match, s->quick);
    return pcre2_match(s->code, text, (size_t)length, (size_t)from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT | partial, s->match, s->quick);
}

static int counted_match(Splitter *s, const uint8_t *text, int64_t length, int64_t from) {
    int error, found;
    PCRE2_SIZE where;
    if (!s->counted) {
        s->counted = pcre2_compile((PCRE2_SPTR)s->pattern, PCRE2_ZERO_TERMINATED,
                                   s->options | PCRE2_AUTO_CALLOUT, &error, &where, NULL);
        if (!s->counted)
            return PCRE2_ERROR_NOMEMORY; // cannot fail otherwise: the pattern has been compiled
                                         // before
        if (s->compiled) (void)pcre2_jit_compile(s->counted, PCRE2_JIT_COMPLETE);
    }
    s->looked = from;
    found = pcre2_match(s->counted, text, (size_t)length, (size_t)from, PCRE2_NO_UTF_CHECK, s->match,
                        s->counting);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    return pcre2_match(s->counted, text, (size_t)length, (size_t)from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       s->match, s->counting); // the interpreter, whose stack can grow
}

/* The end of the window from `from` on, at a character boundary. */
static int64_t window_end(const uint8_t *text, int64_t length, int64_t from) {
    if (length - from <= WINDOW) return length;
    int64_t end = from + WINDOW;
    while ((text[end] & 0xC0) == 0x80) end--;
    return end;
}

static int match_from(Splitter *s, const uint8_t *text, int64_t length, int64_t from) {
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(s->match);
    while (s->careful <= 0) {
        int64_t end = window_end(text, length, from);
        int found = quick_match(s, text, end, from, end < length ? PCRE2_PARTIAL_HARD : 0);
        if (found >= 0 || (found == PCRE2_ERROR_NOMATCH && end == length)) return found;
        if (found == PCRE2_ERROR_PARTIAL) from = (int64_t)offsets[0]; // no match begins before this offset
        if (found == PCRE2_ERROR_NOMATCH)
            from = end;
        else
            s->careful = WINDOW;
    }
    return counted_match(s, text, length, from);
}

/* Finds the first match in text[from, length), [*begin, *end); both are `length` if there is none. */
static Status find(Splitter *s, const uint8_t *text, int64_t length, int64_t from, int64_t *begin,
                   int64_t *end) {
    int found = match_from(s, text, length, from);
    *begin = *end = length;
    if (found == PCRE2_ERROR_NOMEMORY)
        return fail(ERROR_MEMORY, "out of host memory for a tokenizer's pattern");
    if (found == PCRE2_ERROR_CALLOUT || found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT)
        return fail(ERROR_FORMAT,
                    "a tokenizer's pattern takes too many steps, or too much memory, on this text");
    /* With one pair of offsets, a result of 0 only means that there were capture groups. */
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(s->match);
    if (found != PCRE2_ERROR_NOMATCH) {
        if (found < 0 || (int64_t)offsets[1] <= from || offsets[1] <= offsets[0])
            return fail(ERROR_INTERNAL, "a tokenizer's pattern: PCRE2 answers %d", found);
        *begin = (int64_t)offsets[0];
        *end = (int64_t)offsets[1];
    }
    s->careful -= *end - from;
    if (s->budget < STEPS_MOST) s->budget += STEPS_PER_BYTE * (*end - from);
    return OK;
}

/* A match, or the text between two matches. */
typedef struct {
    int64_t end;
    bool match;          // after `invert`
    int64_t known_until; // the end of the next match if it is known; else 0
} Stretch;

static Status stretch_at(Splitter *s, const uint8_t *text, int64_t length, int64_t from,
                         const Stretch *before, Stretch *stretch) {
    int64_t begin = from, end = before ? before->known_until : 0;
    if (end == 0) TRY(find(s, text, length, from, &begin, &end));
    bool match = begin == from;
    *stretch = (Stretch){match ? end : begin, match != s->invert, match || begin == end ? 0 : end};
    return OK;
}

/* Whether the next stretch belongs to the same piece. */
static bool goes_on(SplitBehavior behavior, bool match, bool next) {
    if (behavior == SPLIT_CONTIGUOUS) return match == next;
    return behavior == SPLIT_WITH_PREVIOUS ? !match && next : behavior == SPLIT_WITH_NEXT && match && !next;
}

Status splitter_next(Splitter *s, const uint8_t *text, int64_t length, int64_t from, int64_t *begin,
                     int64_t *end) {
    Stretch here, next;
    if (s->behavior == SPLIT_ISOLATED) { /* nearly always: a match, or the text before it */
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
