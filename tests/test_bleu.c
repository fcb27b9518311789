/* BLEU against sacreBLEU's scores (fixtures/make_bleu.py). */
#include "tasks/pairs/bleu.h"
#include "tests/support/expect.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void add(Bleu *bleu, const json_t *translation, const json_t *reference) {
    bleu_add(bleu, json_string_value(translation), (int64_t)json_string_length(translation),
             json_string_value(reference), (int64_t)json_string_length(reference));
}

static void scores_are_sacrebleus(void **state) {
    (void)state;
    json_t *cases = json_load_file("tests/fixtures/bleu.json", 0, NULL), *one;
    assert_true(json_array_size(cases) > 30);
    size_t i, j;
    json_array_foreach(cases, i, one) {
        const json_t *references = json_object_get(one, "references");
        json_t *translations = json_object_get(one, "translations"), *translation;
        double expected = json_number_value(json_object_get(one, "score"));
        Bleu bleu = {0};
        json_array_foreach(translations, j, translation)
            add(&bleu, translation, json_array_get(references, j));
        /* Both programs add logarithms of the same counts, in different orders. */
        if (fabs(bleu_score(&bleu) - expected) > 1e-9)
            fail_msg("corpus %zu: %.12f, but sacreBLEU says %.12f", i, bleu_score(&bleu), expected);
    }
    json_decref(cases);
}

/* Papineni et al. 2002, example 2: "the" seven times against a reference that has it twice. */
static void counts_are_clipped(void **state) {
    (void)state;
    static const char translation[] = "the the the the the the the", reference[] = "the cat is on the mat";
    Bleu bleu = {0};
    bleu_add(&bleu, translation, sizeof translation - 1, reference, sizeof reference - 1);
    assert_int_equal(bleu.matched[0], 2);
    assert_int_equal(bleu.total[0], 7);
    assert_int_equal(bleu.matched[1], 0);
    assert_int_equal(bleu.total[1], 6);
    assert_true(bleu_brevity(&bleu) == 1);
    assert_true(fabs(bleu_precision(&bleu, 1) - 200.0 / 7) < 1e-12);
    assert_true(fabs(bleu_precision(&bleu, 2) - 50.0 / 6) < 1e-12);
    assert_true(fabs(bleu_precision(&bleu, 3) - 25.0 / 5) < 1e-12);
    Bleu none = {0};
    assert_true(bleu_score(&none) == 0 && bleu_brevity(&none) == 1);
}

/* A line grows most if every character is separated by spaces; no byte beyond is written. */
static void any_text_is_counted(void **state) {
    (void)state;
    static const char *const bits[] = {"1-", "a.", ".a", "{", "&amp;", ".,", "\xE2\x80", "\xC2\xA0", "9.-"};
    for (size_t b = 0; b < sizeof bits / sizeof *bits; b++) {
        char text[4096];
        size_t length = 0, size = strlen(bits[b]);
        for (; length + size <= sizeof text; length += size) memcpy(text + length, bits[b], size);
        Bleu bleu = {0};
        bleu_add(&bleu, text, (int64_t)length, text, (int64_t)length);
        assert_true(bleu.matched[0] == bleu.total[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_sacrebleus),
        cmocka_unit_test(counts_are_clipped),
        cmocka_unit_test(any_text_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
