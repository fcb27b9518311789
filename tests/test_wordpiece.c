/* WordPiece: the fixtures come from Hugging Face's tokenizers (fixtures/make_wordpiece.py). */
#include "base/memory.h"
#include "base/random.h"
#include "data/text_stream.h"
#include "data/tokenizer.h"
#include "tests/support/expect.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define LOWER "tests/fixtures/wordpiece/lower"
#define CASED "tests/fixtures/wordpiece/cased"

static Tokenizer *open_tokenizer(const char *path) {
    Tokenizer *tokenizer;
    expect_ok(tokenizer_open(path, &tokenizer));
    return tokenizer;
}

static void check_texts(Tokenizer *tokenizer, const char *kind) {
    json_t *all = json_load_file("tests/fixtures/wordpiece/texts.json", JSON_ALLOW_NUL, NULL), *one;
    const json_t *cases = json_object_get(all, kind);
    assert_true(json_array_size(cases) > 20);
    size_t i;
    json_array_foreach(cases, i, one) {
        const json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
        for (int repeat = 0; repeat < 2; repeat++) { /* the second time pieces come from the cache */
            TokenList list = {0};
            expect_ok(tokenizer_encode(tokenizer, json_string_value(text), (int64_t)json_string_length(text),
                                       &list));
            for (int64_t j = 0; j < list.count && j < (int64_t)json_array_size(ids); j++)
                if (list.ids[j] != json_integer_value(json_array_get(ids, (size_t)j)))
                    fail_msg("%s: token %d of \"%s\"", kind, (int)j, json_string_value(text));
            assert_int_equal(list.count, json_array_size(ids));
            token_list_free(&list);
        }
    }
    json_decref(all);
}

static void ids_are_the_originals(void **state) {
    static const char *const folders[] = {LOWER, CASED}, *const kinds[] = {"lower", "cased"};
    for (int i = 0; i < 2; i++) {
        Tokenizer *tokenizer = open_tokenizer(folders[i]);
        assert_string_equal(tokenizer_name(tokenizer), "wordpiece");
        check_texts(tokenizer, kinds[i]);
        assert_int_equal(tokenizer_special(tokenizer, TOKEN_PAD), 0);
        assert_int_equal(tokenizer_special(tokenizer, TOKEN_UNKNOWN), 1);
        assert_int_equal(tokenizer_special(tokenizer, TOKEN_BEGIN), 2);
        assert_int_equal(tokenizer_special(tokenizer, TOKEN_END), 3);
        assert_int_equal(tokenizer_special(tokenizer, TOKEN_MASK), 4);
        assert_int_equal(tokenizer_end_of_text(tokenizer), 3);
        int64_t length;
        assert_memory_equal(tokenizer_decode(tokenizer, 4, &length), "[MASK]", 6);
        assert_int_equal(length, 6);
        expect_ok(tokenizer_save(tokenizer, *state));
        Tokenizer *saved = open_tokenizer(*state);
        assert_true(tokenizer_hash(saved) == tokenizer_hash(tokenizer));
        check_texts(saved, kinds[i]);
        bool present;
        expect_ok(tokenizer_present(*state, &present));
        assert_true(present);
        tokenizer_free(saved);
        tokenizer_free(tokenizer);
    }
}

static void expect_ids(Tokenizer *tokenizer, const char *text, bool special, const int32_t *ids,
                       int64_t count) {
    TokenList list = {0};
    EncodeCursor cursor = {.text = text, .length = (int64_t)strlen(text), .special = special};
    expect_ok(tokenizer_encode_step(tokenizer, &cursor, 1000, &list));
    for (int64_t i = 0; i < count && i < list.count; i++) assert_int_equal(list.ids[i], ids[i]);
    assert_int_equal(list.count, count);
    token_list_free(&list);
}

/* Added tokens, some of which are searched in the lower-cased text; the ids are those of Hugging Face's
 * tokenizers. */
static void added_tokens_are_found(void **state) {
    static const char added[] =
        "[{\"id\": 420, \"content\": \"Café\", \"normalized\": true},"
        "{\"id\": 421, \"content\": \"<tool>\", \"rstrip\": true, \"normalized\": false},"
        "{\"id\": 422, \"content\": \"box door\", \"normalized\": true}]";
    static const char text[] = "a<tool>  CAFÉs [MASK] the box\tdoor cafes Cafe";
    json_t *root = json_load_file(CASED "/tokenizer.json", 0, NULL), *more = json_loads(added, 0, NULL);
    assert_non_null(root);
    json_array_extend(json_object_get(root, "added_tokens"), more);
    json_object_set_new(json_object_get(root, "normalizer"), "lowercase", json_true());
    json_object_set_new(json_object_get(root, "normalizer"), "strip_accents", json_null());
    json_dump_file(root, inside(*state, "tokenizer.json"), 0);
    json_decref(more);
    json_decref(root);
    Tokenizer *tokenizer;
    expect_ok(tokenizer_open(*state, &tokenizer));
    expect_ids(tokenizer, text, false,
               (int32_t[]){25, 421, 420, 42, 1, 298, 173, 172, 1, 274, 422, 420, 42, 420}, 14);
    expect_ids(tokenizer, text, true, (int32_t[]){25, 421, 420, 42, 4, 274, 422, 420, 42, 420}, 10);
    tokenizer_free(tokenizer);
    expect_ok(tokenizer_open(LOWER, &tokenizer)); /* a vocab.txt's special tokens are known by their names */
    int32_t mask = tokenizer_special(tokenizer, TOKEN_MASK);
    expect_ids(tokenizer, "[MASK][MASK]", true, (int32_t[]){mask, mask}, 2);
    tokenizer_free(tokenizer);
}

/* Any bytes can be encoded, to ids of the vocabulary, in steps or at once. */
/* A decoder-only model with such a vocabulary writes words, without "##". */
static void pieces_become_words(void **state) {
    write_text_file(inside(*state, "vocab.txt"),
                    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n,\nwe\n.\n");
    Tokenizer *tokenizer = open_tokenizer(*state);
    const int32_t ids[] = {2, 5, 6, 7, 8, 9, 10, 3};
    TextStream stream = {0};
    Bytes text = {0};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) tokenizer_stream(tokenizer, &stream, ids[i], &text);
    tokenizer_stream_end(&stream, &text);
    assert_int_equal(text.count, strlen("unaffable, we."));
    assert_memory_equal(text.bytes, "unaffable, we.", strlen("unaffable, we."));
    memory_free(text.bytes);
    tokenizer_free(tokenizer);
}

static void any_bytes_encode(void **state) {
    (void)state;
    Tokenizer *tokenizer = open_tokenizer(LOWER);
    for (uint64_t round = 0; round < 200; round++) {
        uint8_t bytes[400];
        TokenList whole = {0}, steps = {0};
        for (uint64_t i = 0; i < sizeof bytes; i++)
            bytes[i] = random_below(1, round, i, 3) ? (uint8_t)random_below(2, round, i, 256) : ' ';
        expect_ok(tokenizer_encode(tokenizer, bytes, sizeof bytes, &whole));
        EncodeCursor cursor = {.text = bytes, .length = sizeof bytes};
        while (cursor.offset < cursor.length) expect_ok(tokenizer_encode_step(tokenizer, &cursor, 3, &steps));
        assert_int_equal(whole.count, steps.count);
        for (int64_t i = 0; i < whole.count; i++) {
            assert_int_equal(whole.ids[i], steps.ids[i]);
            assert_in_range(whole.ids[i], 0, tokenizer_vocab(tokenizer) - 1);
        }
        token_list_free(&whole);
        token_list_free(&steps);
    }
    tokenizer_free(tokenizer);
}

/* A word longer than the longest piece is cut. */
static void long_texts(void **state) {
    (void)state;
    enum { BYTES = 10 << 20 };
    Tokenizer *tokenizer = open_tokenizer(LOWER);
    char *text = memory_allocate(BYTES);
    TokenList list = {0};
    memset(text, 'x', BYTES);
    expect_ok(tokenizer_encode(tokenizer, text, BYTES, &list));
    assert_int_equal(list.count, 3); /* pieces of 4, 4 and 2 MiB, each an unknown word */
    token_list_free(&list);
    memory_free(text);
    tokenizer_free(tokenizer);
}

static void bad_vocabularies_are_refused(void **state) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"[PAD]\na\nb\n", "no [UNK]"},
        {"[UNK]\na\nb\na\n", "tokens 1 and 3 are both \"a\""},
        {"", "no [UNK]"},
    };
    Tokenizer *tokenizer;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text_file(inside(*state, "vocab.txt"), cases[i].text);
        expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, cases[i].part);
        assert_null(tokenizer);
    }
    write_bytes(inside(*state, "vocab.txt"), "[UNK]\na\0b\n", 10);
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, "line 2 contains a zero byte");
    char line[5100];
    memset(line, 'a', sizeof line);
    memcpy(line, "[UNK]\n", 6);
    write_bytes(inside(*state, "vocab.txt"), line, sizeof line);
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, "at most 4096");
    write_text_file(inside(*state, "vocab.txt"), "[UNK]\r\r\na\r\nb"); /* other line ends, none at the end */
    expect_ok(tokenizer_open(*state, &tokenizer));
    assert_int_equal(tokenizer_vocab(tokenizer), 3);
    tokenizer_free(tokenizer);
    write_text_file(inside(*state, "tokenizer_config.json"), /* as transformers writes it */
                    "{\"do_lower_case\": false, \"model_max_length\": 1000000000000000019884624838656}");
    expect_ok(tokenizer_open(*state, &tokenizer));
    tokenizer_free(tokenizer);
    write_text_file(inside(*state, "tokenizer_config.json"), "{\"do_lower_case\": 3}");
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, "do_lower_case");
}

static void bad_json_is_refused(void **state) {
    static const struct {
        const char *path, *value, *part; // its place in the fixture
    } cases[] = {
        {"normalizer", "null", "BertNormalizer"},
        {"normalizer.clean_text", "false", "clean_text"},
        {"normalizer.lowercase", "\"yes\"", "lowercase"},
        {"pre_tokenizer.type", "\"Whitespace\"", "BertPreTokenizer"},
        {"model.continuing_subword_prefix", "\"@@\"", "continuing_subword_prefix"},
        {"model.max_input_chars_per_word", "50", "max_input_chars_per_word"},
        {"model.unk_token", "\"<unk>\"", "unk_token"},
        {"model.vocab.a", "-1", "has id -1"},
        {"model.vocab.a", "100000", "has id 100000"},
        {"model.vocab.a", "1", "the same id 1"},
        {"model.vocab.a", "\"x\"", "lacks"},
        {"model.vocab", "{\"a\": 7}", "ids are 0 to 5"},
        {"added_tokens", "[{\"id\": 3}]", "lacks"},
        {"added_tokens", "[{\"id\": 3, \"content\": \"q\"}]", "the same id 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = json_load_file(CASED "/tokenizer.json", 0, NULL), *at = root;
        assert_non_null(root);
        char path[64], *key, *rest = path;
        snprintf(path, sizeof path, "%s", cases[i].path);
        while (key = strsep(&rest, "."), rest) at = json_object_get(at, key);
        json_object_set_new(at, key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        json_dump_file(root, inside(*state, "tokenizer.json"), 0);
        json_decref(root);
        Tokenizer *tokenizer;
        expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, cases[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ids_are_the_originals, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(added_tokens_are_found, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(pieces_become_words, scratch_setup, scratch_teardown),
        cmocka_unit_test(any_bytes_encode),
        cmocka_unit_test(long_texts),
        cmocka_unit_test_setup_teardown(bad_vocabularies_are_refused, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(bad_json_is_refused, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
