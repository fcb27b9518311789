/* Sampling the next token: greedy, the distribution, top-k and top-p, invalid rows. */
#include "run/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 6, DRAWS = 20000 };

static Sampler *open_sampler(int64_t vocab, SamplerOptions options) {
    Sampler *sampler;
    assert_null(sampler_open(vocab, &options, &sampler));
    return sampler;
}

static int32_t draw(Sampler *sampler, const float *logits, int64_t index) {
    int32_t token = -1;
    assert_null(sampler_next(sampler, logits, index, &token));
    return token;
}

static void count_draws(SamplerOptions options, const float *logits, int counts[VOCAB]) {
    Sampler *sampler = open_sampler(VOCAB, options);
    memset(counts, 0, VOCAB * sizeof *counts);
    for (int64_t i = 0; i < DRAWS; i++) {
        int32_t token = draw(sampler, logits, i);
        assert_in_range(token, 0, VOCAB - 1);
        counts[token]++;
    }
    sampler_close(sampler);
}

/* Pearson's statistic of the draws against the softmax over `members`, with as many degrees of freedom as
 * members less one. Only members may have been drawn. */
static double chi_square(const int counts[VOCAB], const float *logits, double temperature,
                         const bool members[VOCAB]) {
    double total = 0, statistic = 0;
    for (int i = 0; i < VOCAB; i++) total += members[i] ? exp(logits[i] / temperature) : 0;
    for (int i = 0; i < VOCAB; i++) {
        if (!members[i]) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        double expected = DRAWS * exp(logits[i] / temperature) / total;
        statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return statistic;
}

static void test_greedy(void **state) {
    (void)state;
    const float logits[VOCAB] = {-1, 3, 2, 3, -INFINITY, 3};
    for (int i = 0; i < 3; i++) {
        SamplerOptions options[] = {{.temperature = 0, .top_p = 1, .seed = 5},
                                    {.temperature = 2, .top_p = 1, .top_k = 1, .seed = 5},
                                    {.temperature = 1, .top_p = 1e-9, .seed = 5}};
        Sampler *sampler = open_sampler(VOCAB, options[i]);
        for (int64_t index = 0; index < 100; index++) assert_int_equal(draw(sampler, logits, index), 1);
        sampler_close(sampler);
    }
}

/* Padding comes after the vocabulary; the sampler does not read it. */
static void test_padding(void **state) {
    (void)state;
    const float logits[VOCAB] = {0, 0, 0, 0, NAN, 100};
    Sampler *sampler = open_sampler(4, (SamplerOptions){.temperature = 1, .top_p = 1});
    for (int64_t i = 0; i < 1000; i++) assert_in_range(draw(sampler, logits, i), 0, 3);
    sampler_close(sampler);
}

static void test_distribution(void **state) {
    (void)state;
    const float logits[VOCAB] = {0.5f, -0.3f, 1.2f, 0, -1, 0.7f};
    const bool all[VOCAB] = {true, true, true, true, true, true};
    const double temperatures[] = {0.5, 1, 3};
    int counts[VOCAB];
    for (uint64_t seed = 0; seed < 3; seed++) {
        SamplerOptions options = {.temperature = temperatures[seed], .top_p = 1, .seed = seed};
        count_draws(options, logits, counts);
        /* 25.7: exceeded by chance once in 10,000 at 5 degrees of freedom. */
        assert_true(chi_square(counts, logits, options.temperature, all) < 25.7);
        if (options.temperature == 1) assert_true(chi_square(counts, logits, 1.3, all) > 100);
    }
}

static void test_support(void **state) {
    (void)state;
    /* Probabilities 0.4, 0.05, 0.2, 0.2, 0.1, 0.05. */
    const double shares[VOCAB] = {0.4, 0.05, 0.2, 0.2, 0.1, 0.05};
    float logits[VOCAB];
    for (int i = 0; i < VOCAB; i++) logits[i] = (float)log(shares[i]);
    const struct {
        int64_t top_k;
        double top_p;
        bool members[VOCAB];
        double min_p;
    } cases[] = {
        {2, 1, {true, false, true}, 0}, /* the lower id of the two with 0.2 */
        {3, 1, {true, false, true, true}, 0},
        {5, 1, {true, true, true, true, true}, 0}, /* and of the two with 0.05 */
        {6, 1, {true, true, true, true, true, true}, 0},
        {600, 1, {true, true, true, true, true, true}, 0},
        {0, 0.39, {true}, 0}, /* the first alone suffices */
        {0, 0.41, {true, false, true}, 0},
        {0, 0.79, {true, false, true, true}, 0},
        {0, 0.81, {true, false, true, true, true}, 0},
        {0, 0.96, {true, true, true, true, true, true}, 0},
        {3, 0.74, {true, false, true}, 0}, /* of the renormalized 0.5, 0.25, 0.25 */
        {3, 0.76, {true, false, true, true}, 0},
        {0, 1, {true, false, true, true, true}, 0.2},
        {0, 1, {true, false, true, true}, 0.3},
        {0, 1, {true}, 1},
        {2, 1, {true, false, true}, 0.3},
        {5, 1, {true, false, true, true}, 0.3}, /* fewer than k are left */
        {0, 0.74, {true, false, true}, 0.3},    /* of the renormalized 0.5, 0.25, 0.25 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int counts[VOCAB];
        SamplerOptions options = {.temperature = 1,
                                  .top_k = cases[i].top_k,
                                  .top_p = cases[i].top_p,
                                  .min_p = cases[i].min_p,
                                  .seed = i};
        count_draws(options, logits, counts);
        for (int t = 0; t < VOCAB; t++)
            if ((counts[t] > 0) != cases[i].members[t])
                fail_msg("case %zu, token %d: %d draws", i, t, counts[t]);
        assert_true(chi_square(counts, logits, 1, cases[i].members) < 25.7);
    }
}

/* Large rows: the heap agrees with counting how many logits are larger. */
static void test_large(void **state) {
    (void)state;
    enum { LARGE = 5003, KEPT = 37 };
    static float logits[LARGE];
    for (int i = 0; i < LARGE; i++) logits[i] = (float)((i * 7919) % 101) / 10;
    Sampler *sampler = open_sampler(LARGE, (SamplerOptions){.temperature = 5, .top_k = KEPT, .top_p = 1});
    for (int64_t index = 0; index < 500; index++) {
        int32_t token = draw(sampler, logits, index);
        int rank = 0;
        for (int i = 0; i < LARGE; i++)
            rank += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
        assert_true(rank < KEPT);
    }
    sampler_close(sampler);
}

static void test_limits(void **state) {
    (void)state;
    const float logits[VOCAB] = {0, -INFINITY, 1, 0.999f, -3e38f, 0.5f};
    const bool finite[VOCAB] = {true, false, true, true, false, true};
    const double cold[] = {1e-3 / 50, 1e-300, 5e-324};
    int counts[VOCAB];
    for (int i = 0; i < 3; i++) {
        count_draws((SamplerOptions){.temperature = cold[i], .top_p = 1}, logits, counts);
        assert_int_equal(counts[2], DRAWS);
    }
    count_draws((SamplerOptions){.temperature = 1e6, .top_p = 1}, logits, counts);
    assert_true(chi_square(counts, logits, 1e6, finite) < 25.7);
    count_draws((SamplerOptions){.temperature = 1e6, .top_p = 0.999999, .top_k = 5}, logits, counts);
    assert_int_equal(counts[1], 0);
}

/* Applied once for each distinct token of the text. */
static void test_penalty(void **state) {
    (void)state;
    float logits[VOCAB] = {3, -1, 0.5f, -INFINITY, 3, 0};
    const float expected[VOCAB] = {1.5f, -2, 0.5f, -INFINITY, 3, 0};
    const int32_t text[] = {0, 1, 0, 3, 5, 0};
    SamplerOptions options = {.temperature = 0, .top_p = 1, .repeat_penalty = 2};
    Sampler *sampler = open_sampler(VOCAB, options);
    assert_true(sampler_penalizes(sampler));
    assert_int_equal(draw(sampler, logits, 0), 0);
    sampler_penalize(sampler, text, 6, logits);
    assert_memory_equal(logits, expected, sizeof logits);
    assert_int_equal(draw(sampler, logits, 0), 4);
    sampler_penalize(sampler, text, 1, logits); /* earlier tokens have no effect */
    assert_true(logits[0] == 0.75f);
    sampler_close(sampler);
    for (int i = 0; i < 2; i++) {
        options.repeat_penalty = i;
        sampler = open_sampler(VOCAB, options);
        assert_false(sampler_penalizes(sampler));
        sampler_close(sampler);
    }
}

static void test_reproducible(void **state) {
    (void)state;
    const float logits[VOCAB] = {0, 0, 0, 0, 0, 0};
    SamplerOptions options = {.temperature = 1, .top_p = 1, .seed = 9};
    Sampler *one = open_sampler(VOCAB, options), *two = open_sampler(VOCAB, options);
    options.sequence = 1;
    Sampler *other = open_sampler(VOCAB, options);
    int same = 0;
    for (int64_t i = 0; i < 200; i++) {
        int32_t token = draw(one, logits, i);
        assert_int_equal(draw(two, logits, i), token);
        same += draw(other, logits, i) == token;
    }
    assert_int_equal(draw(one, logits, 3), draw(two, logits, 3)); /* independent of draws in between */
    assert_in_range(same, 10, 70);
    sampler_close(one);
    sampler_close(two);
    sampler_close(other);
}

static void expect(Status status, ErrorCode code, const char *message) {
    assert_non_null(status);
    assert_string_equal(status_message(status), message);
    assert_int_equal(status_code(status), code);
    status_free(status);
}

static void test_bad(void **state) {
    (void)state;
    int32_t token;
    Sampler *sampler = open_sampler(3, (SamplerOptions){.temperature = 0, .top_p = 1});
    expect(sampler_next(sampler, (const float[]){1, NAN, 2}, 7, &token), ERROR_NONFINITE,
           "the logit of token 1 at position 7 is not a number");
    expect(sampler_next(sampler, (const float[]){1, 2, INFINITY}, 7, &token), ERROR_NONFINITE,
           "the logit of token 2 at position 7 is infinite");
    expect(sampler_next(sampler, (const float[]){-INFINITY, -INFINITY, -INFINITY}, 7, &token),
           ERROR_NONFINITE, "every logit at position 7 is -inf");
    sampler_close(sampler);
    const SamplerOptions bad[] = {{.temperature = -1, .top_p = 1},
                                  {.temperature = NAN, .top_p = 1},
                                  {.temperature = INFINITY, .top_p = 1},
                                  {.temperature = 1, .top_p = 0},
                                  {.temperature = 1, .top_p = 1.01},
                                  {.temperature = 1, .top_p = NAN},
                                  {.temperature = 1, .top_p = 1, .top_k = -1},
                                  {.temperature = 1, .top_p = 1, .min_p = 1.01},
                                  {.temperature = 1, .top_p = 1, .min_p = NAN},
                                  {.temperature = 1, .top_p = 1, .repeat_penalty = -1},
                                  {.temperature = 1, .top_p = 1, .repeat_penalty = INFINITY}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Status status = sampler_open(3, &bad[i], &sampler);
        assert_int_equal(status_code(status), ERROR_USAGE);
        assert_null(sampler);
        status_free(status);
    }
    expect(sampler_open(0, &bad[0], &sampler), ERROR_USAGE, "cannot sample from 0 tokens");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),       cmocka_unit_test(test_padding),
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_support),
        cmocka_unit_test(test_large),        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_reproducible), cmocka_unit_test(test_bad),
        cmocka_unit_test(test_penalty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
