/* Packing items into rows: each item once, no row too full, nearly the minimum number of rows. */
#include "tasks/chat/packing.h"

#include "base/random.h"
#include "tests/support/expect.h"

#include <stdlib.h>

static void expect_packed(const int64_t *lengths, int64_t count, int64_t room, int64_t most) {
    Packing p = pack_rows(lengths, count, room);
    bool *seen = calloc((size_t)count + 1, sizeof *seen);
    int64_t before = -1;
    assert_true(p.rows <= most && p.starts[0] == 0 && p.starts[p.rows] == count);
    for (int64_t row = 0; row < p.rows; row++) {
        int64_t held = 0;
        assert_true(p.starts[row] < p.starts[row + 1] && p.items[p.starts[row]] > before);
        before = p.items[p.starts[row]];
        for (int64_t i = p.starts[row]; i < p.starts[row + 1]; i++) {
            assert_true(i == p.starts[row] || p.items[i] > p.items[i - 1]);
            assert_false(seen[p.items[i]]);
            seen[p.items[i]] = true;
            held += lengths[p.items[i]];
        }
        assert_true(held <= room);
    }
    free(seen);
    packing_free(&p);
}

static void rows_are_full(void **state) {
    (void)state;
    expect_packed((const int64_t[]){5}, 1, 5, 1);
    expect_packed((const int64_t[]){1, 1, 1, 1}, 4, 4, 1);
    expect_packed((const int64_t[]){6, 4, 5, 5, 9, 1, 10}, 7, 10, 4); // no space is left
    expect_packed((const int64_t[]){3, 3, 3}, 3, 5, 3);
    expect_packed(NULL, 0, 7, 0);
}

static void many_lengths(void **state) {
    enum { COUNT = 3000, ROOM = 257 };
    int64_t lengths[COUNT];
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed++) {
        int64_t all = 0;
        for (int i = 0; i < COUNT; i++) {
            lengths[i] = 1 + (int64_t)(random_uniform(seed, 0, (uint64_t)i) * ROOM);
            if (lengths[i] > ROOM) lengths[i] = ROOM;
            all += lengths[i];
        }
        int64_t least = (all + ROOM - 1) / ROOM;
        expect_packed(lengths, COUNT, ROOM,
                      least * 11 / 9 + 1); // Johnson 1973: the worst case
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_full), cmocka_unit_test(many_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
