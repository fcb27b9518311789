/* tasks/pairs/pairs, and the loader's batches of pairs and of masked tokens. */
#include "base/memory.h"
#include "data/buckets.h"
#include "tasks/masked/masked.h"
#include "tasks/pairs/pairs.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* BYTE: the id of a letter less the letter */
enum { PAIRS = 103, PAD = 0, BEGIN = 1, END = 2, BYTE = 4 - '!' };

/* The trained tokenizer of the smallest vocabulary: a byte is a token. */
static Tokenizer *byte_pairs(const char *folder) {
    const char *path = inside(folder, "letters.txt");
    write_text_file(path, "a b c");
    Tokenizer *tokenizer;
    PathList texts = {(char *[]){(char *)(uintptr_t)path}, 1, 0};
    expect_ok(tokenizer_train(&texts, TRAINED_LEAST, &tokenizer));
    assert_int_equal(tokenizer_vocab(tokenizer), TRAINED_LEAST);
    return tokenizer;
}

/* Pair i: a source of 1 + 7i % 23 letters, a target of 1 + 5i % 17 letters; both begin with i in letters. */
static int length_of(int side, int i) {
    return 3 + (side ? 5 * i % 17 : 7 * i % 23);
}

static void write_side(const char *path, int side, int pairs) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < pairs; i++) {
        char line[64];
        memset(line, side ? 't' : 's', sizeof line);
        int wide = snprintf(line, sizeof line, "%03d", i);
        line[wide] = side ? 't' : 's';
        fprintf(file, "%.*s%s", length_of(side, i), line, i + 1 < pairs || side ? "\n" : "");
    }
    fclose(file);
}

static PairSource *open_pairs(const char *folder, int64_t seq) {
    Tokenizer *tokenizer = byte_pairs(folder);
    PairOptions options = {inside(folder, "source"), inside(folder, "target"), tokenizer, seq};
    write_side(options.source, 0, PAIRS);
    write_side(options.target, 1, PAIRS);
    PairSource *pairs;
    expect_ok(pairs_open(&options, &pairs));
    tokenizer_free(tokenizer); /* the pairs no longer need it */
    return pairs;
}

/* ---- reading ---- */

static void lines_become_pairs(void **state) {
    PairSource *pairs = open_pairs(*state, 64);
    assert_int_equal(pairs_count(pairs), PAIRS);
    assert_int_equal(pairs_left_out(pairs), 0);
    for (int i = 0; i < PAIRS; i++)
        for (int side = 0; side < 2; side++) {
            int64_t length;
            const int32_t *ids = pairs_sentence(pairs, side, i, &length);
            assert_int_equal(length, length_of(side, i));
            assert_int_equal(100 * (ids[0] - BYTE - '0') + 10 * (ids[1] - BYTE - '0') + ids[2] - BYTE - '0',
                             i);
            if (length > 3) assert_int_equal(ids[3], BYTE + (side ? 't' : 's'));
        }
    pairs_close(pairs);
    pairs = open_pairs(*state, 12); /* at most 11 on each side */
    int fit = 0;
    for (int i = 0; i < PAIRS; i++) fit += length_of(0, i) <= 11 && length_of(1, i) <= 11;
    assert_int_equal(pairs_count(pairs), fit);
    assert_int_equal(pairs_left_out(pairs), PAIRS - fit);
    pairs_close(pairs);
    pairs_close(NULL);
}

static void what_is_wrong_is_named(void **state) {
    Tokenizer *tokenizer = byte_pairs(*state), *bytes;
    PairSource *pairs;
    const char *source = inside(*state, "a"), *target = inside(*state, "b");
    PairOptions options = {source, target, tokenizer, 8};
    write_text_file(source, "one\ntwo\nthree\n");
    write_text_file(target, "eins\nzwei");
    expect_error(pairs_open(&options, &pairs), ERROR_FORMAT, "has 3 lines and");
    assert_null(pairs);
    write_text_file(target, "eins\nzwei\n\n"); /* an empty line counts as a line, and its pair is skipped */
    expect_ok(pairs_open(&options, &pairs));
    assert_int_equal(pairs_count(pairs), 2);
    assert_int_equal(pairs_left_out(pairs), 1);
    pairs_close(pairs);
    write_text_file(target, "much too long\n\nmuch too long too\n");
    expect_error(pairs_open(&options, &pairs), ERROR_FORMAT, "none of 3 pairs of lines has 1 to 7 tokens");
    options.target = inside(*state, "missing");
    expect_error(pairs_open(&options, &pairs), ERROR_FILE, "missing");
    expect_ok(tokenizer_open("bytes", &bytes));
    options.tokenizer = bytes;
    expect_error(pairs_open(&options, &pairs), ERROR_USAGE, "--train-tokenizer");
    tokenizer_free(bytes);
    tokenizer_free(tokenizer);
    char *one, *other;
    static const char *const wrong[] = {"", "a", ",", "a,", ",b", "a,b,c"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(pairs_split_names(wrong[i], &one, &other), ERROR_USAGE, "SOURCE,TARGET");
    expect_ok(pairs_split_names("x y,z", &one, &other));
    assert_string_equal(one, "x y");
    assert_string_equal(other, "z");
    memory_free(one);
    memory_free(other);
}

/* ---- batches ---- */

/* Checks each row of a batch against the pair that it names, and counts the pair. */
static void check_rows(const Batch *b, int64_t rows, int *seen) {
    int64_t longest[2] = {0, 0}, counted = 0;
    for (int64_t row = 0; row < rows; row++) {
        const int32_t *source = b->source + row * b->source_seq, *in = b->inputs + row * b->seq;
        const int32_t *out = b->targets + row * b->seq;
        int64_t S = b->source_lengths[row], T = b->lengths[row];
        for (int64_t i = S; i < b->source_seq; i++) assert_int_equal(source[i], PAD);
        for (int64_t i = T; i < b->seq; i++) {
            assert_int_equal(in[i], PAD);
            assert_int_equal(out[i], -1);
        }
        counted += T;
        longest[0] = S > longest[0] ? S : longest[0];
        longest[1] = T > longest[1] ? T : longest[1];
        if (S == 0) {
            assert_int_equal(T, 0);
            continue;
        }
        int pair = 100 * (source[0] - BYTE - '0') + 10 * (source[1] - BYTE - '0') + source[2] - BYTE - '0';
        assert_in_range(pair, 0, PAIRS - 1);
        seen[pair]++;
        assert_int_equal(S, length_of(0, pair) + 1);
        assert_int_equal(T, length_of(1, pair) + 1);
        assert_int_equal(source[S - 1], END);
        assert_int_equal(in[0], BEGIN);
        assert_int_equal(out[T - 1], END);
        assert_memory_equal(in + 1, out, (size_t)(T - 1) * sizeof *in);
        assert_int_equal(out[0], source[0]); /* the same digits */
    }
    assert_int_equal(b->tokens, counted);
    assert_int_equal(b->source_seq, (longest[0] + BUCKET_STEP - 1) / BUCKET_STEP * BUCKET_STEP);
    assert_int_equal(b->seq, (longest[1] + BUCKET_STEP - 1) / BUCKET_STEP * BUCKET_STEP);
}

static uint64_t sum_of(const Batch *b, int64_t rows) {
    uint64_t sum = (uint64_t)b->seq * 31 + (uint64_t)b->source_seq;
    for (int64_t i = 0; i < rows * b->source_seq; i++) sum = sum * 1000003 + (uint32_t)b->source[i];
    for (int64_t i = 0; i < rows * b->seq; i++) sum = sum * 1000003 + (uint32_t)b->inputs[i];
    return sum;
}

static void an_epoch_has_each_pair_once(void **state) {
    PairSource *pairs = open_pairs(*state, 64);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        LoaderOptions options = {.batch = 10, .seq = 64, .shuffle = shuffle, .seed = 5, .workers = shuffle};
        Loader *loader;
        uint64_t sums[2] = {0}, widths[2] = {0};
        expect_ok(loader_open_pairs(&options, pairs, &loader));
        assert_int_equal(loader_windows(loader), 110);
        for (int epoch = 0; epoch < 2; epoch++) {
            int seen[PAIRS] = {0};
            for (int i = 0; i < 11; i++) {
                Batch batch;
                expect_ok(loader_next(loader, &batch));
                assert_int_equal(batch.position, 110 * epoch + 10 * i);
                check_rows(&batch, 10, seen);
                sums[epoch] = sums[epoch] * 31 + sum_of(&batch, 10);
                widths[epoch] = widths[epoch] * 64 + (uint64_t)(batch.seq + batch.source_seq);
            }
            for (int i = 0; i < PAIRS; i++) assert_int_equal(seen[i], 1);
        }
        assert_true((sums[0] == sums[1]) == !shuffle);     /* other batches in every shuffled epoch */
        assert_true((widths[0] == widths[1]) == !shuffle); /* and short and long ones in another order */
        loader_close(loader);
    }
    pairs_close(pairs);
}

static void padding_is_that_of_the_batches(void **state) {
    static const int64_t seqs[] = {64, 27}; /* at 27 rows of 26 tokens end before a multiple of BUCKET_STEP */
    for (size_t i = 0; i < sizeof seqs / sizeof *seqs; i++) {
        PairSource *pairs = open_pairs(*state, seqs[i]);
        LoaderOptions options = {.batch = 10, .seq = seqs[i], .shuffle = true, .seed = 5};
        Loader *loader;
        Batch batch;
        PairPadding padding;
        int64_t slots = 0, tokens = 0;
        expect_ok(loader_open_pairs(&options, pairs, &loader));
        for (int64_t left = loader_windows(loader); left > 0; left -= 10) {
            expect_ok(loader_next(loader, &batch));
            slots += 10 * (batch.seq + batch.source_seq);
            for (int row = 0; row < 10; row++) tokens += batch.lengths[row] + batch.source_lengths[row];
        }
        expect_ok(pairs_padding(pairs, 10, 5, &padding));
        assert_int_equal(padding.padded, slots);
        assert_int_equal(padding.tokens, tokens);
        assert_true(tokens > slots * 6 / 10); /* sorted by length; unsorted, about half would be padding */
        loader_close(loader);
        pairs_close(pairs);
    }
}

static void the_position_is_all_state(void **state) {
    PairSource *pairs = open_pairs(*state, 64);
    uint64_t sums[40];
    for (int workers = 0; workers < 4; workers++) {
        LoaderOptions options = {.batch = 8, .seq = 64, .shuffle = true, .seed = 9, .workers = workers};
        Loader *loader;
        Batch batch;
        int64_t targets;
        expect_ok(loader_open_pairs(&options, pairs, &loader));
        expect_ok(loader_targets(loader, 40, &targets));
        for (int i = 0; i < 40; i++) {
            expect_ok(loader_next(loader, &batch));
            targets -= batch.tokens;
            if (workers == 0) sums[i] = sum_of(&batch, 8);
            assert_true(sums[i] == sum_of(&batch, 8));
        }
        assert_int_equal(targets, 0);
        for (int i = 33; i > 0; i -= 7) { /* back, into other epochs */
            expect_ok(loader_seek(loader, 8 * i));
            expect_ok(loader_next(loader, &batch));
            assert_true(sums[i] == sum_of(&batch, 8));
        }
        loader_close(loader);
        options.seed = 10;
        expect_ok(loader_open_pairs(&options, pairs, &loader));
        expect_ok(loader_next(loader, &batch));
        assert_true(sums[0] != sum_of(&batch, 8));
        loader_close(loader);
    }
    pairs_close(pairs);
}

static void parts_of_the_pairs(void **state) {
    PairSource *pairs = open_pairs(*state, 64);
    LoaderOptions options = {.first = 90, .batch = 4, .seq = 64};
    Loader *loader;
    Batch batch;
    expect_ok(loader_open_pairs(&options, pairs, &loader));
    assert_int_equal(loader_windows(loader), 16);
    int seen[PAIRS] = {0};
    for (int i = 0; i < 4; i++) {
        expect_ok(loader_next(loader, &batch));
        check_rows(&batch, 4, seen);
    }
    for (int i = 0; i < PAIRS; i++) assert_int_equal(seen[i], i >= 90);
    loader_close(loader);
    static const int64_t wrong[][2] = {{-1, 0}, {0, PAIRS + 1}, {PAIRS, 0}, {1, INT64_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.first = wrong[i][0];
        options.length = wrong[i][1];
        expect_error(loader_open_pairs(&options, pairs, &loader), ERROR_INTERNAL, "is out of range");
    }
    options.batch = 0;
    expect_error(loader_open_pairs(&options, pairs, &loader), ERROR_USAGE, "out of range");
    pairs_close(pairs);
}

/* ---- masked tokens ---- */

static TokenSource *open_text(const char *folder, Tokenizer *tokenizer) {
    char text[5001] = {0};
    for (int i = 0; i < 5000; i++) text[i] = (char)('a' + i % 26);
    write_text_file(inside(folder, "text.txt"), text);
    TokenSource *source;
    expect_ok(tokens_open(inside(folder, "text.txt"), &(TokenOptions){.tokenizer = tokenizer}, &source));
    return source;
}

/* A random replacement may be any token of the vocabulary, including the last. */
static void random_tokens_are_of_the_whole_vocabulary(void **state) {
    enum { VOCAB = 8, SEQ = 42, ROWS = 125 };
    Tokenizer *tokenizer;
    Loader *loader;
    Batch batch;
    int seen[VOCAB] = {0};
    expect_ok(tokenizer_open("bytes", &tokenizer));
    TokenSource *source = open_text(*state, tokenizer);
    MaskRule rule = {.begin = 300, .end = 301, .mask = 302, .vocab = VOCAB};
    LoaderOptions options = {.batch = ROWS, .seq = SEQ, .seed = 3};
    expect_ok(loader_open_masked(&options, source, &rule, &loader));
    expect_ok(loader_next(loader, &batch));
    for (int i = 0; i < ROWS * SEQ; i++) {
        if (batch.targets[i] < 0 || batch.inputs[i] == 302 || batch.inputs[i] == batch.targets[i]) continue;
        assert_in_range(batch.inputs[i], 0, VOCAB - 1);
        seen[batch.inputs[i]]++;
    }
    for (int i = 0; i < VOCAB; i++) assert_true(seen[i] > 0); /* each token is expected about 9 times */
    loader_close(loader);
    tokens_close(source);
    tokenizer_free(tokenizer);
}

enum { MASKED_SEQ = 42, MASKED = 6 }; // 0.15 * 40

typedef struct {
    int masked, kept, random, places[MASKED_SEQ];
} MaskCounts;

/* Counts how the tokens of a row, between its begin and end tokens, were masked. */
static void count_masks(const int32_t *in, const int32_t *out, MaskCounts *m) {
    int hidden = 0, phase = -1, last = MASKED_SEQ - 1;
    assert_int_equal(in[0], 300);
    assert_int_equal(in[last], 301);
    assert_int_equal(out[0], -1);
    assert_int_equal(out[last], -1);
    for (int i = 1; i < last; i++) {
        int32_t was = out[i] < 0 ? in[i] : out[i];
        if (phase < 0) phase = (was - 'a' + 26 - i % 26) % 26;
        assert_int_equal(was, 'a' + (phase + i) % 26);
        if (out[i] < 0) continue;
        hidden++;
        m->places[i]++;
        m->masked += in[i] == 302;
        m->kept += in[i] == was;
        m->random += in[i] != 302 && in[i] != was;
        assert_in_range(in[i], 0, 302);
    }
    assert_int_equal(hidden, MASKED);
}

static void masks_follow_the_rule(void **state) {
    Tokenizer *tokenizer;
    expect_ok(tokenizer_open("bytes", &tokenizer));
    TokenSource *source = open_text(*state, tokenizer);
    enum { ROWS = 125 };
    MaskRule rule = {.begin = 300, .end = 301, .mask = 302, .vocab = 303};
    LoaderOptions options = {.batch = ROWS, .seq = MASKED_SEQ, .seed = 3, .shuffle = true};
    Loader *loader;
    Batch batch;
    MaskCounts m = {0};
    expect_ok(loader_open_masked(&options, source, &rule, &loader));
    assert_int_equal(loader_windows(loader), ROWS);
    int64_t targets;
    expect_ok(loader_targets(loader, 20, &targets));
    assert_int_equal(targets, 20 * ROWS * MASKED);
    for (int epoch = 0; epoch < 20; epoch++) {
        expect_ok(loader_next(loader, &batch));
        assert_int_equal(batch.tokens, ROWS * MASKED);
        assert_null(batch.lengths);
        for (int row = 0; row < ROWS; row++)
            count_masks(batch.inputs + row * MASKED_SEQ, batch.targets + row * MASKED_SEQ, &m);
    }
    /* 15000 draws: five standard deviations are 245 for 12000 and 184 for 1500; a random token is sometimes
     * the original or the mask. */
    assert_in_range(m.masked, 12000 - 245, 12000 + 245 + 30);
    assert_in_range(m.kept, 1500 - 184, 1500 + 184 + 30);
    assert_in_range(m.random, 1500 - 184 - 60, 1500 + 184);
    for (int i = 1; i < MASKED_SEQ - 1; i++) assert_in_range(m.places[i], 375 - 100, 375 + 100);
    Loader *again;
    Batch same;
    options.workers = 2;
    expect_ok(loader_open_masked(&options, source, &rule, &again));
    expect_ok(loader_seek(again, 19 * ROWS));
    expect_ok(loader_next(again, &same));
    assert_memory_equal(same.inputs, batch.inputs, ROWS * MASKED_SEQ * sizeof(int32_t));
    assert_memory_equal(same.targets, batch.targets, ROWS * MASKED_SEQ * sizeof(int32_t));
    loader_close(again);
    loader_close(loader);
    options.seq = 2;
    expect_error(loader_open_masked(&options, source, &rule, &loader), ERROR_USAGE, "the minimum is 3");
    options.seq = 3; /* one token, always hidden */
    options.batch = 1;
    expect_ok(loader_open_masked(&options, source, &rule, &loader));
    expect_ok(loader_next(loader, &batch));
    assert_int_equal(batch.tokens, 1);
    assert_true(batch.targets[1] >= 'a');
    loader_close(loader);
    options.seq = 6000;
    expect_error(loader_open_masked(&options, source, &rule, &loader), ERROR_FORMAT, "too few tokens (5000)");
    tokens_close(source);
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_become_pairs, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(an_epoch_has_each_pair_once, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(padding_is_that_of_the_batches, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(the_position_is_all_state, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(parts_of_the_pairs, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(masks_follow_the_rule, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(random_tokens_are_of_the_whole_vocabulary, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
