/* data/tokenizer: the cost of untrusted tokenizer files and texts. The files are small, but naive code would
 * take quadratic or unbounded time. Each is refused, or takes time proportional to the text's length. */
#include "base/memory.h"
#include "data/tokenizer.h"
#include "tests/support/expect.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WHOLE "tests/fixtures/tokenizer/whole"

enum { LONG = 1 << 20 }; // bytes of a long text
static const double MOST_SECONDS =
    20; // seconds of CPU time, also under sanitizers; an ordinary text takes 0.1

static double core_seconds(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

/* The fixture's tokenizer.json with root[key] replaced. */
static void write_changed(const char *folder, const char *key, json_t *value) {
    json_t *root = json_load_file(WHOLE "/tokenizer.json", 0, NULL);
    assert_non_null(root);
    assert_non_null(value);
    json_object_set_new(root, key, value);
    assert_int_equal(json_dump_file(root, inside(folder, "tokenizer.json"), JSON_ENSURE_ASCII), 0);
    json_decref(root);
}

/* The unit repeated. */
static char *repeat(const char *unit, int64_t length) {
    int64_t width = (int64_t)strlen(unit);
    char *text = memory_allocate((size_t)length + 1);
    for (int64_t at = 0; at + width <= length; at += width) memcpy(text + at, unit, (size_t)width);
    return text;
}

/* Encodes the repeated unit within the time limit; an error that contains `part` is allowed. */
static void costs_little(Tokenizer *tokenizer, const char *unit, int64_t length, const char *part) {
    TokenList list = {0};
    char *text = repeat(unit, length);
    double before = core_seconds();
    Status status = tokenizer_encode(tokenizer, text, (int64_t)strlen(text), &list);
    double seconds = core_seconds() - before;
    if (part)
        expect_error(status, ERROR_FORMAT, part);
    else
        expect_ok(status);
    if (seconds > MOST_SECONDS)
        fail_msg("\"%.20s\" over %.0f bytes took %.1f s", unit, (double)length, seconds);
    token_list_free(&list);
    memory_free(text);
}

static Tokenizer *open_changed(const char *folder, const char *key, json_t *value) {
    Tokenizer *tokenizer;
    write_changed(folder, key, value);
    expect_ok(tokenizer_open(folder, &tokenizer));
    return tokenizer;
}

static json_t *replacement(const char *from, int times) {
    char *to = repeat(from, times * (int64_t)strlen(from));
    json_t *step = json_pack("{sss{ss}ss}", "type", "Replace", "pattern", "String", from, "content", to);
    memory_free(to);
    return step;
}

static void normalizers_make_a_multiple_at_most(void **state) {
    Tokenizer *tokenizer;
    json_t *steps = json_array();
    for (int i = 0; i < 2; i++) json_array_append_new(steps, replacement("e", 9));
    write_changed(*state, "normalizer", json_pack("{ssso}", "type", "Sequence", "normalizers", steps));
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, "over 64 times as long");
    write_changed(*state, "normalizer",
                  json_pack("{ssss}", "type", "Prepend", "prepend",
                            "0123456789012345678901234567890123456789"
                            "0123456789012345678901234567890123456789"));
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, "over 64 times as long");
    tokenizer = open_changed(*state, "normalizer", replacement("e", 64));
    costs_little(tokenizer, "e", 1 << 14, NULL);
    tokenizer_free(tokenizer);
}

static json_t *pattern(const char *regex) {
    return json_pack("{sss[{sss{ss}ss}{sssb}]}", "type", "Sequence", "pretokenizers", "type", "Split",
                     "pattern", "Regex", regex, "behavior", "Isolated", "type", "ByteLevel", "use_regex", 0);
}

/* A match is tried at each character, so a limit per match does not bound a text. */
static void patterns_have_a_budget(void **state) {
    static const struct {
        const char *regex, *unit, *part;
    } cases[] = {
        {"[^\\x{1}]{0,200}[^\\x{1}]{0,200}[^\\x{1}]{0,200}\\x{1}|(?:.|\\n)", "a", "too many steps"},
        {"[^\\x{1}]*\\x{1}|(?:.|\\n)", "a", "too many steps"},
        {"(?:(?=[^\\x{1}]*)a)*b|(?:.|\\n)", "a", "too many steps"},
        {"(?:a|a)*b|(?:.|\\n)", "a", "too many steps"},
        /* Patterns in use: long runs of one kind, and long texts without a match. */
        {"[\\p{Lu}\\p{Lo}]*[\\p{Ll}\\p{Lo}]+|[\\p{Lu}\\p{Lo}]+[\\p{Ll}\\p{Lo}]*|\\p{N}{1,3}|\\s+(?!\\S)|\\s+|"
         ".",
         "ACGT", NULL},
        {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         " ", NULL},
        {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
         "-=", NULL},
        {"\\p{N}", "word and word ", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tokenizer *tokenizer = open_changed(*state, "pre_tokenizer", pattern(cases[i].regex));
        costs_little(tokenizer, cases[i].unit, LONG, cases[i].part);
        tokenizer_free(tokenizer);
    }
    Tokenizer *tokenizer;
    write_changed(*state, "pre_tokenizer", pattern("[^a]{3000}b|."));
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, "over 256 repetitions");
}

/* Tokens that nearly match at every byte of the text. */
static void added_tokens_are_short(void **state) {
    json_t *added = json_array();
    char *text = repeat("a", 257);
    json_array_append_new(added, json_pack("{siss}", "id", 756, "content", text));
    Tokenizer *tokenizer;
    write_changed(*state, "added_tokens", added);
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, "an added token of 257 bytes");
    added = json_pack("[{siss}]", "id", 756, "content", "<|endoftext|>");
    for (int i = 0; i < 24; i++) {
        text[255] = (char)('b' + i);
        text[256] = 0;
        json_array_append_new(added, json_pack("{siss}", "id", 757 + i, "content", text));
    }
    tokenizer = open_changed(*state, "added_tokens", added);
    costs_little(tokenizer, "a", LONG, NULL);
    tokenizer_free(tokenizer);
    memory_free(text);
}

/* Combining marks in an order with the higher class first. */
#define MARKS "\xcc\x81\xcc\x96"

static void runs_of_marks_take_linear_time(void **state) {
    Tokenizer *tokenizer = open_changed(*state, "normalizer", json_pack("{ss}", "type", "NFC")), *bert;
    costs_little(tokenizer, MARKS, LONG, NULL);
    tokenizer_free(tokenizer);
    expect_ok(tokenizer_open("tests/fixtures/wordpiece/lower", &bert));
    costs_little(bert, MARKS, LONG, NULL);
    tokenizer_free(bert);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(normalizers_make_a_multiple_at_most, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(patterns_have_a_budget, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(added_tokens_are_short, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(runs_of_marks_take_linear_time, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
