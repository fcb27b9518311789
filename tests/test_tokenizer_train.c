/* Training a tokenizer: the fixtures are the results of Hugging Face's tokenizers for the saved file
 * (fixtures/make_trained.py). */
#include "base/memory.h"
#include "data/tokenizer.h"
#include "tests/support/expect.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define FOLDER "tests/fixtures/trained"

static Tokenizer *train_on(int count, const char *const *paths, int64_t vocab) {
    PathList texts = {(char **)(uintptr_t)paths, count, 0};
    Tokenizer *tokenizer;
    expect_ok(tokenizer_train(&texts, vocab, &tokenizer));
    return tokenizer;
}

static Tokenizer *train_text(const char *folder, const char *text, int64_t vocab) {
    const char *path = inside(folder, "text.txt");
    write_text_file(path, text);
    return train_on(1, &path, vocab);
}

static void expect_token(const Tokenizer *tokenizer, int32_t id, const char *text) {
    int64_t length;
    const uint8_t *bytes = tokenizer_decode(tokenizer, id, &length);
    assert_int_equal(length, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

static void check_ids(Tokenizer *tokenizer) {
    json_t *cases = json_load_file(FOLDER "/texts.json", JSON_ALLOW_NUL, NULL), *one;
    assert_true(json_array_size(cases) > 15);
    size_t i;
    json_array_foreach(cases, i, one) {
        const json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
        TokenList list = {0};
        expect_ok(
            tokenizer_encode(tokenizer, json_string_value(text), (int64_t)json_string_length(text), &list));
        assert_int_equal(list.count, json_array_size(ids));
        for (int64_t j = 0; j < list.count; j++)
            assert_int_equal(list.ids[j], json_integer_value(json_array_get(ids, (size_t)j)));
        token_list_free(&list);
    }
    json_decref(cases);
}

static void the_saved_file_is_hugging_faces(void **state) {
    static const char *const texts[] = {FOLDER "/source.txt", FOLDER "/target.txt"};
    static const char *const turned[] = {FOLDER "/target.txt", FOLDER "/source.txt"};
    Tokenizer *trained = train_on(2, texts, 600), *again = train_on(2, turned, 600), *saved;
    assert_true(tokenizer_hash(trained) == tokenizer_hash(again)); /* in any order */
    check_ids(trained);
    expect_ok(tokenizer_save(trained, *state));
    expect_ok(tokenizer_open(*state, &saved));
    assert_true(tokenizer_hash(saved) == tokenizer_hash(trained));
    check_ids(saved);
    tokenizer_free(again);
    expect_ok(tokenizer_open(FOLDER, &again)); /* the committed one, which Hugging Face has read */
    assert_true(tokenizer_hash(again) == tokenizer_hash(trained));
    const Tokenizer *both[] = {trained, saved};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tokenizer_special(both[i], TOKEN_PAD), 0);
        assert_int_equal(tokenizer_special(both[i], TOKEN_BEGIN), 1);
        assert_int_equal(tokenizer_special(both[i], TOKEN_END), 2);
        assert_int_equal(tokenizer_special(both[i], TOKEN_MASK), 3);
        assert_int_equal(tokenizer_end_of_text(both[i]), 2);
        expect_token(both[i], 0, "<pad>");
        expect_token(both[i], 1, "<s>");
        expect_token(both[i], 4 + 'a' - '!', "a");
        for (int32_t id = 4; id < tokenizer_vocab(both[i]); id++) { /* no other is spelled like these */
            int64_t length;
            const char *bytes = (const char *)tokenizer_decode(both[i], id, &length);
            assert_false(length == 3 && memcmp(bytes, "<s>", 3) == 0);
        }
    }
    tokenizer_free(trained);
    tokenizer_free(again);
    tokenizer_free(saved);
}

/* Worked by hand. Words: " ab" 2, "ab" 1, " abc" 3, "bc" 2. ab: 6, " a": 5, bc: 5. First ab; then " "+ab: 5,
 * ab+c: 3, b+c: 2; then " ab"+c: 3; then b+c: 2. No pair occurs twice any more. */
static void the_most_frequent_pair_first(void **state) {
    Tokenizer *tokenizer = train_text(*state, "ab ab ab abc abc abc\nbc\nbc", 1000);
    static const char *const merges[] = {"ab", " ab", " abc", "bc"};
    assert_int_equal(tokenizer_vocab(tokenizer), 260 + 4);
    for (int i = 0; i < 4; i++) expect_token(tokenizer, 260 + i, merges[i]);
    tokenizer_free(tokenizer);
    tokenizer = train_text(*state, "ba ab", 1000); /* no pair occurs twice */
    assert_int_equal(tokenizer_vocab(tokenizer), 260);
    tokenizer_free(tokenizer);
    tokenizer = train_text(*state, "ba,ab,ba,ab", 1000); /* among equals the lowest ids */
    expect_token(tokenizer, 260, "ab");
    expect_token(tokenizer, 261, "ba");
    tokenizer_free(tokenizer);
    tokenizer = train_text(*state, "aaaa", 1000); /* "aa" occurs once */
    expect_token(tokenizer, 260, "aa");
    assert_int_equal(tokenizer_vocab(tokenizer), 261);
    tokenizer_free(tokenizer);
    tokenizer = train_text(*state, "", 1000);
    assert_int_equal(tokenizer_vocab(tokenizer), 260);
    tokenizer_free(tokenizer);
}

/* In a word of a hundred thousand letters tokens double in length up to the maximum. */
static void tokens_stay_short(void **state) {
    enum { LETTERS = 100000 };
    char *text = memory_allocate(LETTERS + 1);
    memset(text, 'z', LETTERS);
    Tokenizer *tokenizer = train_text(*state, text, 2000);
    memory_free(text);
    int64_t length, longest = 0;
    for (int32_t id = 0; id < tokenizer_vocab(tokenizer); id++) {
        tokenizer_decode(tokenizer, id, &length);
        longest = length > longest ? length : longest;
    }
    assert_in_range(longest, 128, 256);
    expect_ok(tokenizer_save(tokenizer, *state));
    tokenizer_free(tokenizer);
}

static void wrong_sizes_are_refused(void **state) {
    const char *path = inside(*state, "text.txt");
    write_text_file(path, "text");
    PathList texts = {(char *[]){(char *)(uintptr_t)path}, 1, 0};
    Tokenizer *tokenizer;
    static const int64_t wrong[] = {TRAINED_LEAST - 1, 0, -1, 1 << 21, INT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(tokenizer_train(&texts, wrong[i], &tokenizer), ERROR_USAGE, "260 to 1048576");
    texts.paths = (char *[]){(char *)(uintptr_t) "/does/not/exist"};
    expect_error(tokenizer_train(&texts, 300, &tokenizer), ERROR_FILE, "/does/not/exist");
    assert_null(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_saved_file_is_hugging_faces, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(the_most_frequent_pair_first, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(tokens_stay_short, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(wrong_sizes_are_refused, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
