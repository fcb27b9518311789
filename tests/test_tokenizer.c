/* data/tokenizer: the fixtures come from transformers (fixtures/make_tokenizer.py). If FUSEBOX_GPT2_TOKENIZER
 * names a folder with GPT-2's vocab.json and merges.txt, these are tested, too. */
#include "base/files.h"
#include "base/random.h"
#include "data/tokenizer.h"
#include "tests/support/expect.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN "tests/fixtures/tokenizer/plain"
#define WHOLE "tests/fixtures/tokenizer/whole"

static Tokenizer *open_tokenizer(const char *path) {
    Tokenizer *tokenizer;
    expect_ok(tokenizer_open(path, &tokenizer));
    return tokenizer;
}

static void expect_ids(Tokenizer *tokenizer, const char *text, size_t length, const int32_t *ids,
                       size_t count) {
    TokenList list = {0};
    expect_ok(tokenizer_encode(tokenizer, text, (int64_t)length, &list));
    for (size_t i = 0; i < count && i < (size_t)list.count; i++)
        if (list.ids[i] != ids[i])
            fail_msg("token %zu of \"%s\" is %d, not %d", i, text, list.ids[i], ids[i]);
    assert_int_equal(list.count, count);
    token_list_free(&list);
}

static void expect_round_trip(Tokenizer *tokenizer, const uint8_t *text, int64_t length) {
    TokenList list = {0};
    expect_ok(tokenizer_encode(tokenizer, text, length, &list));
    assert_true(list.count <= length);
    int64_t at = 0, bytes;
    for (int64_t i = 0; i < list.count; i++, at += bytes) {
        const uint8_t *token = tokenizer_decode(tokenizer, list.ids[i], &bytes);
        assert_true(bytes > 0 && at + bytes <= length);
        assert_memory_equal(token, text + at, bytes);
    }
    assert_int_equal(at, length);
    token_list_free(&list);
}

/* ---- the byte tokenizer ---- */

static void bytes_are_their_own_ids(void **state) {
    const char *names[] = {NULL, "bytes"};
    for (int i = 0; i < 2; i++) {
        Tokenizer *tokenizer = open_tokenizer(names[i]);
        assert_int_equal(tokenizer_vocab(tokenizer), 256);
        assert_int_equal(tokenizer_end_of_text(tokenizer), -1);
        expect_ids(tokenizer, "a\0\xff", 3, (int32_t[]){'a', 0, 255}, 3);
        expect_ids(tokenizer, "", 0, NULL, 0);
        int64_t length;
        assert_null(tokenizer_decode(tokenizer, 256, &length));
        assert_null(tokenizer_decode(tokenizer, -1, &length));
        assert_int_equal(length, 0);
        bool present;
        expect_ok(tokenizer_present(*state, &present));
        assert_true(present == (i > 0)); /* the first round has saved it */
        expect_ok(tokenizer_save(tokenizer, *state));
        Tokenizer *again = open_tokenizer(*state);
        assert_true(tokenizer_hash(again) == tokenizer_hash(tokenizer));
        assert_string_equal(tokenizer_name(again), "bytes");
        tokenizer_free(again);
        tokenizer_free(tokenizer);
    }
    tokenizer_free(NULL);
}

/* ---- against transformers ---- */

static void check_fixture(Tokenizer *tokenizer) {
    json_t *cases = json_load_file("tests/fixtures/tokenizer/texts.json", JSON_ALLOW_NUL, NULL), *one;
    assert_true(json_array_size(cases) > 20);
    size_t i;
    json_array_foreach(cases, i, one) {
        const json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
        int32_t expected[1024];
        assert_in_range(json_array_size(ids), 0, 1024);
        for (size_t j = 0; j < json_array_size(ids); j++)
            expected[j] = (int32_t)json_integer_value(json_array_get(ids, j));
        for (int repeat = 0; repeat < 2; repeat++) /* the second time pieces come from the cache */
            expect_ids(tokenizer, json_string_value(text), json_string_length(text), expected,
                       json_array_size(ids));
        expect_round_trip(tokenizer, (const uint8_t *)json_string_value(text),
                          (int64_t)json_string_length(text));
    }
    json_decref(cases);
}

static void ids_are_the_originals(void **state) {
    Tokenizer *plain = open_tokenizer(PLAIN), *whole = open_tokenizer(WHOLE);
    assert_int_equal(tokenizer_vocab(plain), 757);
    assert_int_equal(tokenizer_end_of_text(plain), 756);
    assert_int_equal(tokenizer_end_of_text(whole), 756);
    assert_true(tokenizer_hash(plain) == tokenizer_hash(whole));
    check_fixture(plain);
    check_fixture(whole);
    int64_t length;
    assert_memory_equal(tokenizer_decode(plain, 756, &length), "<|endoftext|>", 13);
    assert_int_equal(length, 13);
    expect_ok(tokenizer_save(whole, *state));
    Tokenizer *saved = open_tokenizer(*state);
    assert_true(tokenizer_hash(plain) == tokenizer_hash(saved));
    check_fixture(saved);
    tokenizer_free(saved);
    tokenizer_free(whole);
    tokenizer_free(plain);
}

static void steps_give_the_same_ids(void **state) {
    (void)state;
    Tokenizer *tokenizer = open_tokenizer(PLAIN);
    const char *text = "The fuse \xff\xfe is  in the box;\n we'll see \xe7\x8c\xab\xe7\x8c its light.  ";
    TokenList whole = {0}, steps = {0};
    EncodeCursor cursor = {.text = text, .length = (int64_t)strlen(text)};
    expect_ok(tokenizer_encode(tokenizer, text, cursor.length, &whole));
    while (cursor.offset < cursor.length) {
        int64_t before = cursor.offset;
        expect_ok(tokenizer_encode_step(tokenizer, &cursor, 1, &steps));
        assert_true(cursor.offset > before);
    }
    assert_int_equal(steps.count, whole.count);
    assert_memory_equal(steps.ids, whole.ids, (size_t)whole.count * sizeof *whole.ids);
    token_list_free(&steps);
    token_list_free(&whole);
    tokenizer_free(tokenizer);
}

static void any_bytes_come_back(void **state) {
    (void)state;
    const char *names[] = {"bytes", PLAIN};
    static const char *parts[] = {
        "the ",        "\xff",         "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xe7\x8c",    "\xf0\x9f\x91", "\x80",     "猫",           "\xe2\x80\x8d",
        " ",           "\n",           "'s",       "\xc2",         "e\xcc\x81",
        "\xef\xbf\xbf"};
    for (int n = 0; n < 2; n++) {
        Tokenizer *tokenizer = open_tokenizer(names[n]);
        uint8_t text[4000];
        for (uint64_t round = 0; round < 50; round++) {
            int64_t length = (int64_t)random_below(1, round, 0, 2000);
            for (int64_t i = 0; i < length; i++) text[i] = (uint8_t)random_below(2, round, (uint64_t)i, 256);
            expect_round_trip(tokenizer, text, length);
            length = 0;
            for (uint64_t i = 0; i < 500; i++) {
                const char *part = parts[random_below(3, round, i, sizeof parts / sizeof *parts)];
                if (i % 50 == 0) text[length++] = 0;
                memcpy(text + length, part, strlen(part));
                length += (int64_t)strlen(part);
            }
            expect_round_trip(tokenizer, text, length);
        }
        tokenizer_free(tokenizer);
    }
}

/* A piece of over 4 MiB is cut, but not inside a character. */
static void huge_pieces_are_cut(void **state) {
    (void)state;
    Tokenizer *tokenizer = open_tokenizer(PLAIN);
    int64_t length = 2, room = 4400000;
    uint8_t *text = malloc((size_t)room + 8);
    for (memset(text, 'x', 2); length < room; length += 3) memcpy(text + length, "猫", 3);
    expect_round_trip(tokenizer, text, length);
    TokenList list = {0};
    EncodeCursor cursor = {.text = text, .length = length};
    expect_ok(tokenizer_encode_step(tokenizer, &cursor, 1, &list));
    assert_int_equal(cursor.offset, (4 << 20) - 2);
    assert_int_equal(text[cursor.offset], 0xe7);
    token_list_free(&list);
    memset(text, 0xff, (size_t)length);
    expect_round_trip(tokenizer, text, length);
    free(text);
    tokenizer_free(tokenizer);
}

static void gpt2_itself(void **state) {
    (void)state;
    const char *folder = getenv("FUSEBOX_GPT2_TOKENIZER");
    if (!folder) skip();
    Tokenizer *tokenizer = open_tokenizer(folder);
    assert_int_equal(tokenizer_vocab(tokenizer), 50257);
    assert_int_equal(tokenizer_end_of_text(tokenizer), 50256);
    const char *text = "Hello, world! I'm a fuse.";
    expect_ids(tokenizer, text, strlen(text), (int32_t[]){15496, 11, 995, 0, 314, 1101, 257, 32738, 13}, 9);
    text = "猫 1999\n\n  x";
    expect_ids(tokenizer, text, strlen(text), (int32_t[]){163, 234, 104, 7358, 628, 220, 2124}, 7);
    tokenizer_free(tokenizer);
}

/* ---- hostile files ---- */

/* Writes `json` as the folder's file, and frees it. */
static void write_json(const char *folder, const char *name, json_t *json) {
    assert_int_equal(json_dump_file(json, inside(folder, name), 0), 0);
    json_decref(json);
}

static json_t *fixture(const char *path) {
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

static void expect_refused(const char *folder, const char *part) {
    Tokenizer *tokenizer = (Tokenizer *)1;
    expect_error(tokenizer_open(folder, &tokenizer), ERROR_FORMAT, part);
    assert_null(tokenizer);
}

static void missing_files(void **state) {
    Tokenizer *tokenizer;
    expect_error(tokenizer_open(inside(*state, "none"), &tokenizer), ERROR_FILE, "no tokenizer in");
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FILE, "vocab.json and merges.txt");
    write_text_file(inside(*state, "merges.txt"), "");
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FILE, "no tokenizer in");
}

static void hostile_vocabularies(void **state) {
    static const struct {
        const char *token;
        const char *id; // JSON; the token gets it
        const char *part;
    } changes[] = {
        {"a", "5", "have the same id"},     {"a", "-1", "ids are 0 to 756"},
        {"a", "757", "ids are 0 to 756"},   {"a", "9223372036854775807", "ids are 0 to"},
        {"a", "1.5", "is not an integer"},  {"a", "\"64\"", "is not an integer"},
        {"a", "null", "is not an integer"}, {"more", "7570000", "ids are 0 to 757"},
        {"", "757", "has 0 bytes"},
    };
    write_text_file(inside(*state, "merges.txt"), "#version: 0.2\nt h\n");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        json_t *vocab = fixture(PLAIN "/vocab.json");
        json_object_set_new(vocab, changes[i].token, json_loads(changes[i].id, JSON_DECODE_ANY, NULL));
        write_json(*state, "vocab.json", vocab);
        expect_refused(*state, changes[i].part);
    }
    json_t *vocab = fixture(PLAIN "/vocab.json");
    json_object_del(vocab, "a");
    json_object_set_new(vocab, "instead", json_integer(66)); /* the position of "a", if it exists */
    write_json(*state, "vocab.json", vocab);
    expect_refused(*state, "");
    char *large = malloc(5001);
    memset(large, 'x', 5000);
    large[5000] = 0;
    vocab = fixture(PLAIN "/vocab.json");
    json_object_set_new(vocab, large, json_integer(757));
    write_json(*state, "vocab.json", vocab);
    expect_refused(*state, "has 5000 bytes");
    free(large);
    static const char *texts[][2] = {
        {"", "vocab.json: line"},       {"[]", "not a JSON object"},
        {"{", "vocab.json: line"},      {"{\"a\": 0, \"a\": 1}", "duplicate"},
        {"{\"\xff\": 0}", "line 1"},    {"{}", "no token for the byte"},
        {"{\"\\ud800\": 0}", "line 1"}, {"{\"\\u0000\": 0}", "line 1"},
        {"{\"x\": 0}", "for the byte"}, {"{\"x\": 99999999999999999999}", "too big"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text_file(inside(*state, "vocab.json"), texts[i][0]);
        expect_refused(*state, texts[i][1]);
    }
}

static void hostile_merges(void **state) {
    static const char *texts[][2] = {
        {"#version: 0.2\nth\n", "not two tokens"},
        {"#version: 0.2\n t h\n", "not two tokens"},
        {"#version: 0.2\nt h e\n", "not two tokens"},
        {"#version: 0.2\nt \n", "not two tokens"},
        {"h e\nh e\n", "repeats merge 0"},
        {"Q Q\n", "\"QQ\" is not in the vocabulary"},
        {"QQ x\n", "\"QQ\" is not in the vocabulary"},
        {"t h\r\r\n", "not in the vocabulary"},
        {"# Q\n", "\"#Q\" is not in the vocabulary"},
    };
    write_json(*state, "vocab.json", fixture(PLAIN "/vocab.json"));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text_file(inside(*state, "merges.txt"), texts[i][0]);
        expect_refused(*state, texts[i][1]);
    }
    write_bytes(inside(*state, "merges.txt"), "t h\0x\n", 6);
    expect_refused(*state, "not two tokens");
    char *large = malloc(20003);
    memset(large, 'x', 20002);
    large[10000] = ' ';
    large[20002] = 0;
    write_text_file(inside(*state, "merges.txt"), large);
    expect_refused(*state, "longer than any token");
    free(large);
    /* Other line ends are fine, too. */
    write_text_file(inside(*state, "merges.txt"), "#version: 0.2\r\nh e\r\n");
    Tokenizer *lines = open_tokenizer(*state);
    TokenList list = {0};
    expect_ok(tokenizer_encode(lines, "he", 2, &list));
    assert_int_equal(list.count, 1);
    token_list_free(&list);
    tokenizer_free(lines);
    /* A tokenizer may have no merges: every byte is a token. */
    write_text_file(inside(*state, "merges.txt"), "");
    Tokenizer *tokenizer = open_tokenizer(*state);
    expect_round_trip(tokenizer, (const uint8_t *)"the box", 7);
    tokenizer_free(tokenizer);
}

/* Sets root[outer][inner] (or root[outer], without `inner`) of the fixture to the JSON text, and writes
 * it. */
static void change_whole(const char *folder, const char *outer, const char *inner, const char *text) {
    json_t *root = fixture(WHOLE "/tokenizer.json"), *value = json_loads(text, JSON_DECODE_ANY, NULL);
    json_object_set_new(inner ? json_object_get(root, outer) : root, inner ? inner : outer, value);
    write_json(folder, "tokenizer.json", root);
}

#define BYTE_LEVEL        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define SEQUENCE(members) "{\"type\": \"Sequence\", \"pretokenizers\": [" members "]}"
#define SPLIT(pattern, behavior)                                                                             \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern "\"}, \"behavior\": \"" behavior "\"}"

static void other_kinds_of_tokenizer(void **state) {
    static const char *changes[][4] = {
        {"model", "type", "\"Unigram\"", "model.type is neither BPE nor WordPiece"},
        {"model", NULL, "[]", "model.type"},
        {"model", "vocab", "[]", "not a JSON object"},
        {"model", "merges", "{}", "model.merges is not an array"},
        {"model", "merges", "[3]", "neither"},
        {"model", "merges", "[[\"t\"]]", "neither"},
        {"model", "merges", "[[\"t\", 1]]", "neither"},
        {"model", "merges", "[\"h e\", [\"h\", \"e\"]]", "repeats merge"},
        {"model", "byte_fallback", "true", "byte_fallback"},
        {"model", "ignore_merges", "3", "ignore_merges is neither true nor false"},
        {"model", "dropout", "0.1", "model.dropout is not supported"},
        {"model", "surprise", "1", "model has a key \"surprise\""},
        {"surprise", NULL, "1", "the tokenizer has a key \"surprise\""},
        {"model", "unk_token", "\"<unknown>\"", "unk_token is no token"},
        {"model", "end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
        {"pre_tokenizer", NULL, "{\"type\": \"Whitespace\"}", "pre_tokenizer.type \"Whitespace\""},
        {"pre_tokenizer", NULL, "null", "decoder.type \"ByteLevel\""},
        {"pre_tokenizer", "trim", "true", "pre_tokenizer ByteLevel has a key \"trim\""},
        {"pre_tokenizer", NULL, SEQUENCE(BYTE_LEVEL ", " BYTE_LEVEL), "after ByteLevel"},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("\\\\w+", "Isolated")), "\\w is not supported"},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("[a-z&&[^b]]", "Isolated")), "&& in a class"},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("[a[b]]", "Isolated")), "a class in a class"},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("a{2}+", "Isolated")), "}+ is not supported"},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("^a", "Isolated")), "^ is not supported"},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("(?m:a)", "Isolated")), "the group \"(?m:\""},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("(a", "Isolated")), "parenthesis"},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("a*", "Isolated")), "it matches nothing at all"},
        {"pre_tokenizer", NULL, SEQUENCE(SPLIT("a", "Sideways")), "no supported behavior"},
        {"normalizer", NULL, "{\"type\": \"NFKC\"}", "normalizer.type \"NFKC\""},
        {"normalizer", NULL, "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"\"}",
         "Replace"},
        {"decoder", NULL, "{\"type\": \"CTC\"}", "decoder.type \"CTC\""},
        {"post_processor", NULL, "{\"type\": \"Other\"}", "post_processor.type \"Other\""},
        {"post_processor", NULL, "{\"type\": \"BertProcessing\", \"cls\": [\"a\", 999]}", "does not exist"},
        {"added_tokens", NULL, "[{\"id\": 756}]", "lacks its content"},
        {"added_tokens", NULL, "[{\"id\": 756, \"content\": \"<x>\", \"lstrip\": 1}]", "lstrip is neither"},
        {"added_tokens", NULL, "[{\"id\": 756, \"content\": \"<x>\", \"left\": 1}]", "has a key \"left\""},
        {"added_tokens", NULL, "[{\"id\": 999, \"content\": \"<x>\"}]", "ids are 0 to 756"},
        {"added_tokens", NULL, "[{\"id\": 9, \"content\": \"a\"}]", "two ids"},
        {"added_tokens", NULL, "[{\"id\": 756, \"content\": \"<x>\"}, {\"id\": 757, \"content\": \"<x>\"}]",
         "added twice"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        change_whole(*state, changes[i][0], changes[i][1], changes[i][2]);
        expect_refused(*state, changes[i][3]);
    }
    write_text_file(inside(*state, "tokenizer_config.json"), "{\"fusebox_tokenizer\": \"words\"}");
    expect_refused(*state, "can only be \"bytes\"");
    write_text_file(inside(*state, "tokenizer_config.json"), "{\"fusebox_tokenizer\": ");
    expect_refused(*state, "tokenizer_config.json: line");
}

/* merges as "a b", as older files have them; and an added token spelled in foreign letters. */
static void older_files_and_added_tokens(void **state) {
    json_t *root = fixture(WHOLE "/tokenizer.json"), *pair;
    json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    size_t i;
    json_array_foreach(merges, i, pair) {
        char line[200];
        snprintf(line, sizeof line, "%s %s", json_string_value(json_array_get(pair, 0)),
                 json_string_value(json_array_get(pair, 1)));
        json_array_set_new(merges, i, json_string(line));
    }
    json_t *added = json_loads("{\"id\": 757, \"content\": \"<a \\\"\\\\\\u0007猫>\"}", 0, NULL);
    json_array_append_new(json_object_get(root, "added_tokens"), added);
    write_json(*state, "tokenizer.json", root);
    Tokenizer *tokenizer = open_tokenizer(*state);
    check_fixture(tokenizer);
    expect_ok(tokenizer_save(tokenizer, *state));
    Tokenizer *saved = open_tokenizer(*state);
    assert_true(tokenizer_hash(saved) == tokenizer_hash(tokenizer));
    int64_t length;
    const uint8_t *bytes = tokenizer_decode(saved, 757, &length);
    assert_int_equal(length, 10);
    assert_memory_equal(bytes, "<a \"\\\x07猫>", 10);
    tokenizer_free(saved);
    tokenizer_free(tokenizer);
}

/* A text ends with the config's token or "<|endoftext|>", which may differ from the end token: saving
 * preserves both, and the separator of texts is part of the hash. */
static void the_end_of_a_text_is_kept(void **state) {
    const int32_t next = 757;
    json_t *root = fixture(WHOLE "/tokenizer.json");
    json_array_append_new(json_object_get(root, "added_tokens"),
                          json_pack("{sisssb}", "id", next, "content", "</s>", "special", 1));
    write_json(*state, "tokenizer.json", root);
    Tokenizer *first = open_tokenizer(*state), *saved, *configured;
    assert_int_equal(tokenizer_special(first, TOKEN_END), next);
    assert_int_equal(tokenizer_end_of_text(first), next - 1);
    expect_ok(tokenizer_save(first, *state));
    saved = open_tokenizer(*state);
    assert_int_equal(tokenizer_special(saved, TOKEN_END), next);
    assert_int_equal(tokenizer_end_of_text(saved), next - 1);
    assert_true(tokenizer_hash(saved) == tokenizer_hash(first));
    write_json(*state, "tokenizer_config.json", json_pack("{ss}", "eos_token", "</s>"));
    configured = open_tokenizer(*state);
    assert_int_equal(tokenizer_end_of_text(configured), next);
    assert_true(tokenizer_hash(configured) != tokenizer_hash(first));
    tokenizer_free(first);
    tokenizer_free(saved);
    tokenizer_free(configured);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_are_their_own_ids, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(ids_are_the_originals, scratch_setup, scratch_teardown),
        cmocka_unit_test(steps_give_the_same_ids),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(huge_pieces_are_cut),
        cmocka_unit_test(gpt2_itself),
        cmocka_unit_test_setup_teardown(missing_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(hostile_vocabularies, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(hostile_merges, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(other_kinds_of_tokenizer, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(older_files_and_added_tokens, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(the_end_of_a_text_is_kept, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
