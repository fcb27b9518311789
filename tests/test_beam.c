/* Beam search against the simplest search by its definition, which sorts all continuations. */
#include "base/random.h"
#include "tasks/pairs/beam.h"
#include "tests/support/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 23, STRIDE = 32, BEGIN = 1, END = 2, MOST = 9, WIDEST = 8 };

/* The model: logits that follow from all tokens so far. A sentence in three ends early. */
static void fill_logits(uint64_t sentence, const int32_t *tokens, int64_t length, float *logits) {
    uint64_t stream = sentence;
    for (int64_t i = 0; i < length; i++) stream = stream * 1000003 + (uint64_t)tokens[i] + 1;
    for (int v = 0; v < STRIDE; v++)
        logits[v] = v < VOCAB ? (float)(2 * random_normal(7, stream, (uint64_t)v)) : 1e30f; /* never read */
    logits[END] += sentence % 3 == 0 ? 3 : -1;
}

typedef struct {
    double score;
    int32_t tokens[MOST + 1];
    int64_t length, rank; // rank: row, then token
} Hypothesis;

static int compare(const void *left, const void *right) {
    const Hypothesis *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static double counts(double score, int64_t length, double penalty) {
    return score / pow((5.0 + (double)length) / 6.0, penalty);
}

/* One step: all continuations of the open hypotheses, sorted; returns how many stay open. */
static int search_step(uint64_t sentence, int width, Hypothesis *open, int count, Hypothesis *all) {
    int n = 0;
    for (int row = 0; row < count; row++) {
        float logits[STRIDE];
        double sum = 0;
        fill_logits(sentence, open[row].tokens, open[row].length, logits);
        for (int v = 0; v < VOCAB; v++) sum += exp((double)logits[v]);
        for (int v = 0; v < VOCAB; v++, n++) {
            all[n] = open[row];
            all[n].tokens[all[n].length++] = v;
            all[n].score += (double)logits[v] - log(sum);
            all[n].rank = row * VOCAB + v;
        }
    }
    qsort(all, (size_t)n, sizeof *all, compare);
    int kept = 0;
    for (int i = 0; i < n && kept < width; i++)
        if (all[i].tokens[all[i].length - 1] != END) open[kept++] = all[i];
    return kept;
}

static Hypothesis search(uint64_t sentence, int width, double penalty) {
    static Hypothesis all[WIDEST * VOCAB];
    Hypothesis open[WIDEST] = {{.tokens = {BEGIN}, .length = 1}}, best = {.score = -INFINITY};
    int count = 1, finished = 0;
    while (finished < width && open[0].length <= MOST) {
        count = search_step(sentence, width, open, count, all);
        for (int i = 0; i < width; i++) {
            if (all[i].tokens[all[i].length - 1] != END) continue;
            double value = counts(all[i].score, all[i].length - 1, penalty);
            finished++;
            if (value <= best.score) continue;
            best = all[i];
            best.score = value;
            best.length--;
        }
    }
    for (int i = 0; i < count && finished < width; i++) {
        double value = counts(open[i].score, open[i].length - 1, penalty);
        if (value <= best.score) continue;
        best = open[i];
        best.score = value;
    }
    return best;
}

static void check(int width, double penalty, uint64_t first) {
    enum { SENTENCES = 6 };
    BeamOptions options = {.sentences = SENTENCES,
                           .width = width,
                           .penalty = penalty,
                           .begin = BEGIN,
                           .end = END,
                           .most = MOST,
                           .vocab = VOCAB};
    Beams *beams;
    float logits[SENTENCES * WIDEST * STRIDE];
    int32_t tokens[SENTENCES * WIDEST], parents[SENTENCES * WIDEST];
    int32_t histories[SENTENCES * WIDEST][MOST + 2], before[SENTENCES * WIDEST][MOST + 2];
    expect_ok(beams_open(&options, &beams));
    for (int again = 0; again < 2; again++) { /* the second time in the same memory */
        int rows = SENTENCES * width, steps = 0;
        beams_start(beams);
        for (int row = 0; row < rows; row++) histories[row][0] = BEGIN;
        for (int64_t length = 1; !beams_done(beams); length++, steps++) {
            assert_int_equal(beams_length(beams), length);
            for (int row = 0; row < rows; row++)
                fill_logits(first + (uint64_t)(row / width), histories[row], length, logits + row * STRIDE);
            expect_ok(beams_advance(beams, logits, STRIDE, tokens, parents));
            memcpy(before, histories, sizeof before);
            int64_t stride;
            const int32_t *inside = beams_rows(beams, &stride);
            for (int row = 0; row < rows; row++) {
                assert_int_equal(parents[row] / width, row / width);
                memcpy(histories[row], before[parents[row]], sizeof histories[row]);
                histories[row][length] = tokens[row];
                assert_memory_equal(inside + row * stride, histories[row], (size_t)(length + 1) * 4);
            }
        }
        assert_in_range(steps, 1, MOST);
        for (int s = 0; s < SENTENCES; s++) {
            int64_t length;
            double score;
            const int32_t *best = beams_best(beams, s, &length, &score);
            Hypothesis expected = search(first + (uint64_t)s, width, penalty);
            assert_int_equal(length, expected.length - 1);
            assert_memory_equal(best, expected.tokens + 1, (size_t)length * 4);
            assert_true(fabs(score - expected.score) < 1e-6);
        }
    }
    beams_close(beams);
}

static void finds_what_a_plain_search_finds(void **state) {
    (void)state;
    static const double penalties[] = {0, 0.6, 1, 3};
    for (int width = 1; width <= WIDEST; width++)
        for (int p = 0; p < 4; p++)
            for (uint64_t first = 0; first < 60; first += 6) check(width, penalties[p], first);
}

/* No translation ends before the minimum length, even if the end is likeliest from the start. */
static void the_least_length_is_kept(void **state) {
    (void)state;
    for (int64_t least = 0; least <= 4; least++) {
        BeamOptions options = {.sentences = 1,
                               .width = 2,
                               .begin = BEGIN,
                               .end = END,
                               .least = least,
                               .most = 4,
                               .vocab = VOCAB};
        Beams *beams;
        float logits[2 * STRIDE] = {0};
        int32_t tokens[2], parents[2];
        logits[END] = logits[STRIDE + END] = 9;
        expect_ok(beams_open(&options, &beams));
        beams_start(beams);
        while (!beams_done(beams)) expect_ok(beams_advance(beams, logits, STRIDE, tokens, parents));
        int64_t length;
        double score;
        beams_best(beams, 0, &length, &score);
        assert_int_equal(length, least > 1 ? least - 1 : 0);
        beams_close(beams);
    }
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    BeamOptions good = {
        .sentences = 2, .width = 3, .penalty = 0.6, .begin = 1, .end = 2, .most = 4, .vocab = 8};
    Beams *beams;
    BeamOptions bad[] = {good, good, good, good, good, good, good};
    bad[0].width = 0;
    bad[1].width = 5; /* more than half the vocabulary */
    bad[2].penalty = -1;
    bad[3].penalty = NAN;
    bad[4].sentences = INT64_MAX;
    bad[5].most = 0;
    bad[6].most = INT32_MAX;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_error(beams_open(&bad[i], &beams), ERROR_USAGE, "");
    expect_ok(beams_open(&good, &beams));
    float logits[6 * 8] = {0};
    int32_t tokens[6], parents[6];
    beams_start(beams);
    logits[3 * 8 + 5] = NAN;
    expect_error(beams_advance(beams, logits, 8, tokens, parents), ERROR_NONFINITE, "1 of 6 hypotheses");
    beams_close(beams);
    beams_close(NULL);
}

/* Equal logits everywhere: the first tokens win, and are not the end. */
static void ties_go_to_the_lower_row_and_token(void **state) {
    (void)state;
    BeamOptions options = {.sentences = 1, .width = 2, .begin = 1, .end = 2, .most = 2, .vocab = 8};
    Beams *beams;
    float logits[2 * 8] = {0};
    int32_t tokens[2], parents[2];
    expect_ok(beams_open(&options, &beams));
    beams_start(beams);
    expect_ok(beams_advance(beams, logits, 8, tokens, parents));
    assert_int_equal(tokens[0], 0);
    assert_int_equal(tokens[1], 1);
    expect_ok(beams_advance(beams, logits, 8, tokens, parents));
    assert_int_equal(parents[1], 0);
    assert_true(beams_done(beams));
    int64_t length;
    double score;
    const int32_t *best = beams_best(beams, 0, &length, &score);
    assert_int_equal(length, 2);
    assert_int_equal(best[0], 0);
    assert_int_equal(best[1], 0);
    assert_true(fabs(score + 2 * log(8)) < 1e-12);
    beams_close(beams);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_a_plain_search_finds),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(the_least_length_is_kept),
        cmocka_unit_test(ties_go_to_the_lower_row_and_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
