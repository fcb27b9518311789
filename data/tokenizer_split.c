/* Cuts text into pieces by GPT-2's pattern, through PCRE2. */
#include "base/memory.h"
#include "data/tokenizer_internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

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
    if (!s) return fail(ERROR_MEMORY, "no memory left for the tokenizer's pattern");
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

/* Which bytes may follow which: Unicode 15, table 3-7. */
int utf8_character(const uint8_t *at, int64_t left) {
    if (at[0] < 0x80) return 1;
    int bytes = at[0] >= 0xC2 && at[0] <= 0xDF   ? 2
                : at[0] >= 0xE0 && at[0] <= 0xEF ? 3
                : at[0] >= 0xF0 && at[0] <= 0xF4 ? 4
                                                 : 0;
    if (!bytes || left < bytes) return 0;
    uint8_t low = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < low || at[1] > high) return 0;
    for (int i = 2; i < bytes; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    return bytes;
}

int64_t utf8_valid_end(const uint8_t *text, int64_t from, int64_t length) {
    while (from < length) {
        uint64_t eight;
        if (length - from >= 8) {
            memcpy(&eight, text + from, 8);
            if (!(eight & 0x8080808080808080)) { /* ASCII, the common case */
                from += 8;
                continue;
            }
        }
        int bytes = utf8_character(text + from, length - from);
        if (!bytes) break;
        from += bytes;
    }
    return from;
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
