/* data/loader. */
#include "tasks/text/windows.h"
#include "data/shard.h"
#include "data/tokens.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A shard of `count` tokens first, first + 1, .. */
static void write_shard(const char *path, int count, int first) {
    int32_t header[256] = {SHARD_MAGIC, SHARD_VERSION, count};
    uint8_t *bytes = malloc(sizeof header + 2 * (size_t)count);
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < count; i++)
        memcpy(bytes + sizeof header + 2 * i, &(uint16_t){(uint16_t)(first + i)}, 2);
    write_bytes(path, bytes, sizeof header + 2 * (size_t)count);
    free(bytes);
}

static TokenSource *open_tokens(const char *path, const TokenOptions *options) {
    TokenSource *source;
    expect_ok(tokens_open(path, options, &source));
    return source;
}

/* Tokens 0..count-1: each token equals its position. */
static TokenSource *open_numbers(const char *folder, int count) {
    write_shard(inside(folder, "numbers.bin"), count, 0);
    return open_tokens(inside(folder, "numbers.bin"), &(TokenOptions){0});
}

static Loader *open_loader(const TokenSource *source, const LoaderOptions *options) {
    Loader *loader;
    expect_ok(loader_open_windows(options, source, &loader));
    return loader;
}

static void expect_batch(Loader *loader, const int32_t *first_inputs, int64_t batch, int64_t seq) {
    Batch got;
    int64_t before = loader_position(loader);
    expect_ok(loader_next(loader, &got));
    assert_int_equal(got.position, before);
    assert_int_equal(loader_position(loader), before + batch);
    for (int64_t row = 0; row < batch; row++)
        for (int64_t i = 0; i < seq; i++) {
            assert_int_equal(got.inputs[row * seq + i], first_inputs[row] + i);
            assert_int_equal(got.targets[row * seq + i], first_inputs[row] + i + 1);
        }
}

static void windows_in_the_rows_order(void **state) {
    TokenSource *source = open_numbers(*state, 24); /* 23 / 5: four windows, and three tokens left over */
    for (int workers = 0; workers < 3; workers++) {
        Loader *loader = open_loader(source, &(LoaderOptions){.batch = 3, .seq = 5, .workers = workers});
        assert_int_equal(loader_windows(loader), 4);
        expect_batch(loader, (int32_t[]){0, 5, 10}, 3, 5);
        expect_batch(loader, (int32_t[]){15, 0, 5}, 3, 5);
        expect_batch(loader, (int32_t[]){10, 15, 0}, 3, 5);
        expect_ok(loader_seek(loader, 7));
        expect_batch(loader, (int32_t[]){15, 0, 5}, 3, 5);
        loader_close(loader);
    }
    tokens_close(source);
    loader_close(NULL);
}

static void windows_of_a_part(void **state) {
    TokenSource *source = open_numbers(*state, 24);
    LoaderOptions options = {.first = 8, .length = 11, .batch = 2, .seq = 5, .workers = 1};
    Loader *loader = open_loader(source, &options);
    assert_int_equal(loader_windows(loader), 2);
    expect_batch(loader, (int32_t[]){8, 13}, 2, 5);
    loader_close(loader);
    options.length = 0; /* to the end */
    loader = open_loader(source, &options);
    assert_int_equal(loader_windows(loader), 3);
    loader_close(loader);
    static const int64_t wrong[][2] = {{-1, 0}, {8, 17}, {25, 0}, {0, -1}, {0, INT64_MAX}, {INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.first = wrong[i][0];
        options.length = wrong[i][1];
        expect_error(loader_open_windows(&options, source, &loader), ERROR_INTERNAL, "is out of range");
    }
    options.first = 20;
    options.length = 0;
    expect_error(loader_open_windows(&options, source, &loader), ERROR_FORMAT, "too few tokens (4)");
    tokens_close(source);
}

/* Sources with exactly one window, and one token too few. */
static void sources_that_are_too_short(void **state) {
    Loader *loader;
    TokenSource *source = open_numbers(*state, 9);
    loader = open_loader(source, &(LoaderOptions){.batch = 2, .seq = 8, .shuffle = true, .workers = 1});
    expect_batch(loader, (int32_t[]){0, 0}, 2, 8);
    loader_close(loader);
    expect_error(loader_open_windows(&(LoaderOptions){.batch = 1, .seq = 9}, source, &loader), ERROR_FORMAT,
                 "too few tokens (9): one window of --seq=9 needs 10");
    assert_null(loader);
    for (int64_t length = 8; length <= 9;
         length++) { /* two windows of 4 need a token more for the last target */
        loader = open_loader(source, &(LoaderOptions){.length = length, .batch = 1, .seq = 4});
        assert_int_equal(loader_windows(loader), length - 7);
        loader_close(loader);
    }
    static const LoaderOptions wrong[] = {{.batch = 0, .seq = 1},
                                          {.batch = 1, .seq = 0},
                                          {.batch = INT64_MAX / 2, .seq = 8},
                                          {.batch = 1, .seq = 1, .workers = 65},
                                          {.batch = 1, .seq = 1, .workers = -1},
                                          {.batch = 1, .seq = 1, .hold = 65},
                                          {.batch = 1, .seq = 1, .delay_us = -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        LoaderOptions options = wrong[i];
        expect_error(loader_open_windows(&options, source, &loader), ERROR_USAGE, "");
    }
    loader = open_loader(source, &(LoaderOptions){.batch = 1, .seq = 8});
    expect_error(loader_seek(loader, -1), ERROR_FORMAT, "no window -1");
    expect_error(loader_seek(loader, INT64_MAX), ERROR_FORMAT, "no window");
    loader_close(loader);
    tokens_close(source);
}

static void epochs_visit_each_window_once(void **state) {
    enum { WINDOWS = 100, SEQ = 4 };
    TokenSource *source = open_numbers(*state, WINDOWS * SEQ + 1);
    LoaderOptions options = {.batch = 10, .seq = SEQ, .shuffle = true, .seed = 5, .workers = 2};
    int order[3][WINDOWS], same = 0, in_place = 0;
    for (int run = 0; run < 2; run++) {
        Loader *loader = open_loader(source, &options);
        for (int epoch = 0; epoch < 2; epoch++) {
            bool seen[WINDOWS] = {0};
            for (int i = 0; i < WINDOWS; i += 10) {
                Batch batch;
                expect_ok(loader_next(loader, &batch));
                for (int row = 0; row < 10; row++) {
                    int window = batch.inputs[row * SEQ] / SEQ;
                    assert_false(seen[window]);
                    seen[window] = true;
                    order[run ? 2 : epoch][i + row] = window;
                }
            }
            if (run) break;
        }
        loader_close(loader);
        options.seed = 6;
    }
    for (int i = 0; i < WINDOWS; i++) {
        same += (order[0][i] == order[1][i]) + (order[0][i] == order[2][i]);
        in_place += order[0][i] == i;
    }
    assert_true(same < 15 && in_place < 10);
    tokens_close(source);
}

/* The inputs of `batches` batches from a position on. */
static void collect(const TokenSource *source, LoaderOptions options, int workers, int64_t position,
                    int batches, int32_t *out) {
    options.workers = workers;
    Loader *loader = open_loader(source, &options);
    if (position) expect_ok(loader_seek(loader, position));
    size_t tokens = (size_t)(options.batch * options.seq);
    for (int i = 0; i < batches; i++) {
        Batch batch;
        expect_ok(loader_next(loader, &batch));
        memcpy(out + (size_t)i * tokens, batch.inputs, tokens * sizeof *out);
    }
    loader_close(loader);
}

static void order_depends_on_position_alone(void **state) {
    enum { BATCHES = 60, BATCH = 3, SEQ = 7, TOKENS = BATCH * SEQ };
    TokenSource *source = open_numbers(*state, 50 * SEQ + 3);
    LoaderOptions options = {.batch = BATCH, .seq = SEQ, .shuffle = true, .seed = 9};
    static int32_t expected[BATCHES * TOKENS], got[BATCHES * TOKENS];
    collect(source, options, 0, 0, BATCHES, expected);
    const int workers[] = {1, 4};
    for (int w = 0; w < 2; w++) {
        collect(source, options, workers[w], 0, BATCHES, got);
        assert_memory_equal(got, expected, sizeof got);
    }
    for (int from = 1; from < 40; from += 13)
        for (int w = 0; w < 5; w += 4) {
            collect(source, options, w, (int64_t)from * BATCH, BATCHES - from, got);
            assert_memory_equal(got, expected + from * TOKENS,
                                (size_t)(BATCHES - from) * TOKENS * sizeof *got);
        }
    /* Seeks forwards and backwards while workers are busy. */
    options.workers = 4;
    options.delay_us = 300;
    Loader *loader = open_loader(source, &options);
    for (int i = 0; i < 200; i++) {
        int64_t number = i * 7 % 50;
        Batch batch;
        if (i % 3 == 0)
            expect_ok(loader_seek(loader, number * BATCH));
        else
            number = loader_position(loader) / BATCH;
        expect_ok(loader_next(loader, &batch));
        assert_memory_equal(batch.inputs, expected + number * TOKENS, TOKENS * sizeof *expected);
    }
    loader_close(loader);
    tokens_close(source);
}

/* Prefetched batches are listed until they are handed out, including those in progress. */
static void what_is_read_ahead_is_told(void **state) {
    TokenSource *source = open_numbers(*state, 400);
    LoaderOptions options = {.batch = 2, .seq = 5, .workers = 2, .delay_us = 1000};
    Loader *loader = open_loader(source, &options);
    Batch ahead[LOADER_AHEAD], batch;
    int count = 0;
    for (int done = 0; done < 4;) { // as many as fit
        count = loader_ahead(loader, ahead);
        assert_true(count <= 4);
        done = 0;
        for (int i = 0; i < count; i++) {
            assert_true(ahead[i].worker >= 1 && ahead[i].worker <= 2 && ahead[i].begun > 0);
            assert_true(ahead[i].done >= ahead[i].begun);
            done += ahead[i].done >= ahead[i].begun + 1e-3;
        }
    }
    expect_ok(loader_next(loader, &batch));
    assert_true(batch.done - batch.begun >= 1e-3);
    count = loader_ahead(loader, ahead);
    assert_true(count >= 2);
    for (int i = 0; i < count; i++) assert_true(ahead[i].begun != batch.begun);
    loader_close(loader);
    options.workers = 0;
    loader = open_loader(source, &options);
    assert_int_equal(loader_ahead(loader, ahead), 0);
    loader_close(loader);
    tokens_close(source);
}

/* Three loaders that share steps of six batches return together what a single loader does, whatever the
 * number of workers, also after a seek; each counts the targets of all shares. */
static void shares_are_one_loaders_batches(void **state) {
    enum { SHARES = 3, RUN = 2, STEPS = 4 };
    TokenSource *source = open_numbers(*state, 400);
    LoaderOptions options = {.batch = 2, .seq = 5, .shuffle = true, .seed = 3, .hold = 1};
    Loader *whole = open_loader(source, &options), *shares[SHARES];
    for (int r = 0; r < SHARES; r++) {
        options.share = (LoaderShare){r, SHARES, RUN};
        options.workers = r;
        shares[r] = open_loader(source, &options);
        expect_ok(loader_seek(shares[r], 4));
    }
    expect_ok(loader_seek(whole, 4));
    for (int i = 0; i < STEPS * SHARES * RUN; i++) {
        Batch one, other;
        int64_t targets, all;
        expect_ok(loader_targets(shares[0], SHARES * RUN, &targets));
        expect_ok(loader_targets(whole, SHARES * RUN, &all));
        assert_int_equal(targets, all);
        expect_ok(loader_next(whole, &one));
        expect_ok(loader_next(shares[i / RUN % SHARES], &other));
        assert_int_equal(one.position, other.position);
        assert_memory_equal(one.inputs, other.inputs, 2 * 5 * sizeof *one.inputs);
    }
    for (int r = 0; r < SHARES; r++) {
        assert_int_equal(loader_position(shares[r]), loader_position(whole));
        loader_close(shares[r]);
    }
    loader_close(whole);
    tokens_close(source);
}

static void batches_stay_while_held(void **state) {
    TokenSource *source = open_numbers(*state, 1001);
    for (int workers = 0; workers < 5; workers += 2) {
        LoaderOptions options = {.batch = 1, .seq = 10, .workers = workers, .hold = 3};
        Loader *loader = open_loader(source, &options);
        Batch batches[50];
        for (int i = 0; i < 50; i++) {
            expect_ok(loader_next(loader, &batches[i]));
            for (int back = 0; back < 3 && back <= i; back++)
                assert_int_equal(batches[i - back].inputs[0], 10 * (i - back));
        }
        loader_close(loader);
    }
    tokens_close(source);
}

/* ---- buffers, errors, time ---- */

typedef struct {
    int allowed, live;
} Budget;

static void *budget_allocate(void *context, size_t bytes) {
    Budget *budget = context;
    if (budget->allowed-- == 0) return NULL;
    budget->live++;
    return malloc(bytes);
}

static void budget_release(void *context, void *pointer) {
    ((Budget *)context)->live--;
    free(pointer);
}

static void buffers_come_from_the_caller(void **state) {
    TokenSource *source = open_numbers(*state, 100);
    for (int allowed = 0; allowed < 5; allowed++) {
        Budget budget = {allowed, 0};
        LoaderOptions options = {
            .batch = 2, .seq = 4, .workers = 2, .buffers = {budget_allocate, budget_release, &budget}};
        Loader *loader;
        Status status = loader_open_windows(&options, source, &loader);
        if (allowed < 4) {
            expect_error(status, ERROR_MEMORY, "no memory left for");
        } else {
            expect_ok(status);
            expect_batch(loader, (int32_t[]){0, 4}, 2, 4);
            loader_close(loader);
        }
        assert_int_equal(budget.live, 0);
    }
    tokens_close(source);
}

static void errors_come_in_their_turn(void **state) {
    write_shard(inside(*state, "numbers.bin"), 101, 0);
    TokenSource *source = open_tokens(*state, &(TokenOptions){.vocab = 55});
    for (int workers = 0; workers < 4; workers++) {
        Batch batch;
        Loader *loader = open_loader(source, &(LoaderOptions){.batch = 1, .seq = 10, .workers = workers});
        for (int i = 0; i < 5; i++) expect_ok(loader_next(loader, &batch));
        for (int again = 0; again < 3; again++)
            expect_error(loader_next(loader, &batch), ERROR_FORMAT, "numbers.bin: token 55 is 55");
        assert_int_equal(loader_position(loader), 5);
        expect_ok(loader_seek(loader, 4));
        expect_ok(loader_next(loader, &batch));
        loader_close(loader);
    }
    tokens_close(source);
}

static void waiting_is_measured(void **state) {
    TokenSource *source = open_numbers(*state, 100);
    for (int workers = 0; workers < 2; workers++) {
        LoaderOptions options = {.batch = 1, .seq = 4, .workers = workers, .delay_us = 20000};
        Loader *loader = open_loader(source, &options);
        Batch batch;
        for (int i = 0; i < 3; i++) expect_ok(loader_next(loader, &batch));
        double before = loader_waited_ms(loader);
        expect_ok(loader_next(loader, &batch));
        assert_true(loader_waited_ms(loader) > 40 && loader_waited_ms(loader) - before > 5 && before > 0);
        loader_close(loader); /* while a worker is at a batch */
    }
    tokens_close(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(windows_in_the_rows_order, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(windows_of_a_part, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(sources_that_are_too_short, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(epochs_visit_each_window_once, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(order_depends_on_position_alone, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(what_is_read_ahead_is_told, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(shares_are_one_loaders_batches, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(batches_stay_while_held, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(buffers_come_from_the_caller, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(errors_come_in_their_turn, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(waiting_is_measured, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
