#include "tasks/pairs/bleu.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* ---- words ---- */

/* A text under construction, in sufficient memory. */
typedef struct {
    char *text;
    int64_t length;
} Line;

static void put(Line *line, const char *text, size_t length) {
    memcpy(line->text + line->length, text, length);
    line->length += (int64_t)length;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_stop(char c) {
    return c == '.' || c == ',';
}

/* ASCII's punctuation except ' - . and , */
static bool is_mark(char c) {
    return (c >= '!' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
           (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/* Removes "<skipped>", replaces entities, and adds a space at either end. */
static void unescape(const char *text, int64_t length, Line *out) {
    static const char *const entities[][2] = {
        {"<skipped>", ""}, {"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}};
    put(out, " ", 1);
    put(out, text, (size_t)length);
    /* Entities are replaced in sequence: &amp;lt; becomes <. */
    for (size_t e = 0; e < sizeof entities / sizeof *entities; e++) {
        size_t size = strlen(entities[e][0]);
        int64_t kept = 0, end = out->length;
        for (int64_t at = 0; at < end;) {
            bool here = end - at >= (int64_t)size && memcmp(out->text + at, entities[e][0], size) == 0;
            if (!here) {
                out->text[kept++] = out->text[at++];
                continue;
            }
            if (*entities[e][1]) out->text[kept++] = *entities[e][1];
            at += (int64_t)size;
        }
        out->length = kept;
    }
    put(out, " ", 1);
}

/* The four rules of mteval-v13a, each applied to the whole line: put spaces around punctuation; around a
 * period or comma after a non-digit; around one before a non-digit; and after a dash that follows a digit.
 * Matches of a rule do not overlap. */
static void apply(int rule, const Line *in, Line *out) {
    out->length = 0;
    for (int64_t i = 0; i < in->length; i++) {
        char c = in->text[i], next = i + 1 < in->length ? in->text[i + 1] : 0;
        bool pair = i + 1 < in->length;
        if (rule == 0 && is_mark(c)) {
            put(out, (char[]){' ', c, ' '}, 3);
        } else if (rule == 1 && pair && !is_digit(c) && is_stop(next)) {
            put(out, (char[]){c, ' ', next, ' '}, 4);
            i++;
        } else if (rule == 2 && pair && is_stop(c) && !is_digit(next)) {
            put(out, (char[]){' ', c, ' ', next}, 4);
            i++;
        } else if (rule == 3 && pair && is_digit(c) && next == '-') {
            put(out, (char[]){c, ' ', '-', ' '}, 4);
            i++;
        } else {
            put(out, &c, 1);
        }
    }
}

/* The length of the space at `at`, or 0: ASCII's and Unicode's spaces, as in Python's str.split. */
static int space_at(const char *text, int64_t left) {
    static const char *const wide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8",
                                       "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
    if (*text == ' ' || (*text >= '\t' && *text <= '\r') || (*text >= 0x1C && *text <= 0x1F)) return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        size_t size = strlen(wide[i]);
        if (left >= (int64_t)size && memcmp(text, wide[i], size) == 0) return (int)size;
    }
    bool en_to_hair = left >= 3 && memcmp(text, "\xE2\x80", 2) == 0 && (uint8_t)text[2] >= 0x80 &&
                      (uint8_t)text[2] <= 0x8A; /* U+2000 to U+200A */
    return en_to_hair ? 3 : 0;
}

typedef struct {
    const char *text;
    int64_t length;
} Word;

static int64_t split(const Line *line, Word *words) {
    int64_t count = 0, start = 0;
    for (int64_t at = 0; at < line->length;) {
        int space = space_at(line->text + at, line->length - at);
        if (space && at > start) words[count++] = (Word){line->text + start, at - start};
        at += space ? space : 1;
        if (space) start = at;
    }
    if (line->length > start) words[count++] = (Word){line->text + start, line->length - start};
    return count;
}

/* The words of a text. `memory` contains the words, and two lines of scratch. */
static void tokenize(const char *text, int64_t length, void **memory, Word **words, int64_t *count) {
    /* Each of the four rules adds at most two spaces next to a character. */
    int64_t room = 9 * (length + 4);
    *memory = memory_allocate((size_t)(room * (int64_t)(2 + sizeof(Word))));
    *words = *memory;
    Line lines[2] = {{.text = (char *)(*words + room)}, {.text = (char *)(*words + room) + room}};
    unescape(text, length, &lines[0]);
    for (int rule = 0; rule < 4; rule++) apply(rule, &lines[rule % 2], &lines[(rule + 1) % 2]);
    *count = split(&lines[0], *words);
}

/* ---- counting ---- */

/* Equal words get equal numbers: the index of the first. */
static void number_words(const Word *words, int64_t count, const int32_t *known, const Word *known_words,
                         int64_t known_count, int32_t *numbers) {
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = -1;
        for (int64_t j = 0; j < known_count + i && numbers[i] < 0; j++) {
            const Word *other = j < known_count ? &known_words[j] : &words[j - known_count];
            if (other->length == words[i].length &&
                memcmp(other->text, words[i].text, (size_t)other->length) == 0)
                numbers[i] = j < known_count ? known[j] : numbers[j - known_count];
        }
        if (numbers[i] < 0) numbers[i] = (int32_t)(known_count + i);
    }
}

/* Counts how many n-grams match one in the reference, where each n-gram of the reference matches once
 * ("clipped counts"). */
static int64_t matches(const int32_t *words, int64_t count, const int32_t *reference, int64_t reference_count,
                       int n, bool *used) {
    int64_t found = 0;
    memset(used, 0, (size_t)reference_count);
    for (int64_t i = 0; i + n <= count; i++)
        for (int64_t j = 0; j + n <= reference_count; j++) {
            if (used[j] || memcmp(words + i, reference + j, (size_t)n * sizeof *words) != 0) continue;
            used[j] = true;
            found++;
            break;
        }
    return found;
}

static void count_ngrams(Bleu *bleu, const Word *words, int64_t count, const Word *reference,
                         int64_t reference_count) {
    OWNED int32_t *numbers =
        memory_array((size_t)(count + reference_count) + 1, sizeof *numbers + sizeof(bool));
    int32_t *others = numbers + count;
    bool *used = (bool *)(others + reference_count);
    number_words(words, count, NULL, NULL, 0, numbers);
    number_words(reference, reference_count, numbers, words, count, others);
    for (int n = 1; n <= BLEU_ORDERS; n++) {
        bleu->matched[n - 1] += matches(numbers, count, others, reference_count, n, used);
        if (count >= n) bleu->total[n - 1] += count - n + 1;
    }
    bleu->words += count;
    bleu->reference_words += reference_count;
}

void bleu_add(Bleu *bleu, const char *translation, int64_t length, const char *reference,
              int64_t reference_length) {
    void *memory[2];
    Word *words[2];
    int64_t count[2];
    tokenize(translation, length, &memory[0], &words[0], &count[0]);
    tokenize(reference, reference_length, &memory[1], &words[1], &count[1]);
    count_ngrams(bleu, words[0], count[0], words[1], count[1]);
    memory_free(memory[0]);
    memory_free(memory[1]);
}

/* ---- the score ---- */

double bleu_brevity(const Bleu *bleu) {
    if (bleu->words >= bleu->reference_words) return 1;
    return bleu->words ? exp(1 - (double)bleu->reference_words / (double)bleu->words) : 0;
}

double bleu_precision(const Bleu *bleu, int order) {
    double half = 1;
    for (int n = 1; n <= order; n++) {
        if (bleu->total[n - 1] == 0) return 0;
        if (bleu->matched[n - 1] == 0) half /= 2;
    }
    double matched = bleu->matched[order - 1] ? (double)bleu->matched[order - 1] : half;
    return 100 * matched / (double)bleu->total[order - 1];
}

double bleu_score(const Bleu *bleu) {
    double sum = 0;
    if (bleu->matched[0] == 0) return 0; /* if no word matches, no longer n-gram matches */
    for (int order = 1; order <= BLEU_ORDERS; order++) {
        double precision = bleu_precision(bleu, order);
        if (precision == 0) return 0; /* no sentence has that many words */
        sum += log(precision);
    }
    return bleu_brevity(bleu) * exp(sum / BLEU_ORDERS);
}
