/* base/random. */
#include "base/random.h"
#include "tests/support/expect.h"

#include <math.h>
#include <stdlib.h>

/* The known answers that Random123 publishes for philox4x32-10. */
static void philox_matches_known_answers(void **state) {
    (void)state;
    static const struct {
        RandomBlock counter;
        uint32_t key[2];
        RandomBlock answer;
    } known[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        RandomBlock block = random_philox(known[i].counter, known[i].key[0], known[i].key[1]);
        assert_memory_equal(&block, &known[i].answer, sizeof block);
    }
    RandomBlock block = random_block(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88);
    assert_memory_equal(&block, &known[2].answer, sizeof block);
}

static void numbers_are_distributed_as_named(void **state) {
    (void)state;
    enum { COUNT = 100000, CELLS = 10 };
    double sum = 0, squares = 0, fourth = 0, product = 0, cells[CELLS] = {0}, fair[7] = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = random_uniform(1, 2, i), z = random_normal(1, 3, i);
        assert_true(0 <= u && u < 1);
        cells[(int)(CELLS * u)]++;
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
        product += z * random_normal(1, 3, i + 1);
        fair[random_below(1, 4, i, 7)]++;
    }
    /* Each bound is about five standard deviations. */
    assert_true(fabs(sum / COUNT) < 0.016 && fabs(squares / COUNT - 1) < 0.023);
    assert_true(fabs(fourth / COUNT - 3) < 0.16 && fabs(product / COUNT) < 0.016);
    for (int i = 0; i < CELLS; i++) assert_true(fabs(cells[i] - COUNT / 10.0) < 475);
    for (int i = 0; i < 7; i++) assert_true(fabs(fair[i] - COUNT / 7.0) < 555);
    float many[9];
    for (uint64_t first = 0; first < 2; first++) {
        random_normals(1, 3, first, 0.5f, many, 9);
        for (uint64_t i = 0; i < 9; i++)
            assert_true(many[i] == (float)(0.5 * random_normal(1, 3, first + i)));
    }
    float *all = malloc(30001 * sizeof *all); /* enough for several threads */
    random_normals(1, 3, 7, 1, all, 30001);
    for (uint64_t i = 0; i < 30001; i++) assert_true(all[i] == (float)random_normal(1, 3, 7 + i));
    free(all);
    assert_int_equal(random_below(1, 1, 1, 1), 0);
    for (uint64_t i = 0; i < 100; i++) assert_true(random_below(1, 5, i, UINT64_MAX - 1) < UINT64_MAX - 1);
    assert_true(random_uniform(1, 2, 3) != random_uniform(2, 2, 3));
    assert_true(random_uniform(1, 2, 3) != random_uniform(1, 3, 3));
}

static void permutations_visit_each_once(void **state) {
    (void)state;
    const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 64, 65, 100, 1000, 4096, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s], fixed = 0, other = 0;
        bool *seen = calloc((size_t)n, sizeof *seen);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = random_permute(7, 0, n, i);
            assert_true(0 <= at && at < n && !seen[at]);
            seen[at] = true;
            fixed += at == i;
            other += at == random_permute(7, 1, n, i);
        }
        if (n >= 64) assert_true(fixed < 10 && other < 10); /* a random permutation has one on average */
        free(seen);
    }
    int64_t large = (int64_t)1 << 62;
    assert_true(random_permute(1, 1, large, 5) < large);
    /* The position of the first item over many epochs: each equally often. */
    double places[5] = {0};
    for (uint64_t epoch = 0; epoch < 10000; epoch++) places[random_permute(3, epoch, 5, 0)]++;
    for (int i = 0; i < 5; i++) assert_true(fabs(places[i] - 2000) < 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_matches_known_answers),
        cmocka_unit_test(numbers_are_distributed_as_named),
        cmocka_unit_test(permutations_visit_each_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
