/* Cuts text into pieces by GPT-2's pattern, through PCRE2. */
#include "base/memory.h"
#include "data/bpe.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct Splitter {
    pcre2_code *code;
    pcre2_match_data *match;
    bool compiled; // to machine code
};

/* Unicode's White_Space. PCRE2's own \s differs from it by U+180E, which Unicode took out in 2013. */
#define SPACES                                                                                               \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
    "3000}"

/* Contractions; letters, numbers or other marks with at most one space before; spaces, of which the last is
 * left to the word that follows. (Radford et al. 2019, the released code's pattern.) */
static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES
                              "\\p{L}\\p{N}]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+";

Status splitter_open(Splitter **splitter) {
    *splitter = NULL;
    Splitter *s = memory_allocate(sizeof *s);
    int error = 0;
    PCRE2_SIZE where = 0;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED;
    s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &where, NULL);
    if (s->code) s->match = pcre2_match_data_create(1, NULL);
    if (!s->match) {
        splitter_free(s);
        return fail(ERROR_INTERNAL, "PCRE2 (with Unicode) is needed for GPT-2's pattern: error %d", error);
    }
    s->compiled = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
    *splitter = s;
    return OK;
}

void splitter_free(Splitter *splitter) {
    if (!splitter) return;
    pcre2_match_data_free(splitter->match);
    pcre2_code_free(splitter->code);
    memory_free(splitter);
}

Status splitter_next(Splitter *splitter, const uint8_t *text, int64_t length, int64_t from, int64_t *end) {
    /* The caller has checked the UTF-8. */
    int found = splitter->compiled ? pcre2_jit_match(splitter->code, text, (size_t)length, (size_t)from, 0,
                                                     splitter->match, NULL)
                                   : pcre2_match(splitter->code, text, (size_t)length, (size_t)from,
                                                 PCRE2_NO_UTF_CHECK, splitter->match, NULL);
    *end = (int64_t)pcre2_get_ovector_pointer(splitter->match)[1];
    /* With one pair of offsets and no groups, 1 is the only success; the pattern matches at any character. */
    if (found != 1 || *end <= from) return fail(ERROR_INTERNAL, "GPT-2's pattern: PCRE2 answers %d", found);
    return OK;
}
