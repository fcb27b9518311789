/* data/tokenizer: the chains of a tokenizer.json, added tokens, and text that streams out. The fixtures come
 * from tokenizers (fixtures/make_chains.py); tests/peers/tokens.py compares many more texts. */
#include "base/directories.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/text_stream.h"
#include "data/tokenizer.h"
#include "tests/support/expect.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define CHAINS "tests/fixtures/chains/"

static const char *const kinds[] = {"llama3",  "qwen2",     "smollm2", "spaced", "digits-spaced",
                                    "removed", "previous",  "next",    "llama2", "crossing",
                                    "mistral", "metaspace", "unfused", "gemma"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static Tokenizer *open_tokenizer(const char *path) {
    Tokenizer *tokenizer;
    expect_ok(tokenizer_open(path, &tokenizer));
    return tokenizer;
}

static Tokenizer *open_kind(const char *kind) {
    char path[128];
    snprintf(path, sizeof path, CHAINS "%s", kind);
    return open_tokenizer(path);
}

/* The ids of a text: at once, or in steps of `step` ids if that is not 0. */
static TokenList encode(Tokenizer *tokenizer, const json_t *text, bool special, int64_t step) {
    EncodeCursor cursor = {
        .text = json_string_value(text), .length = (int64_t)json_string_length(text), .special = special};
    TokenList list = {0};
    if (step == 0)
        expect_ok((special ? tokenizer_encode_special : tokenizer_encode)(tokenizer, cursor.text,
                                                                          cursor.length, &list));
    while (step && cursor.offset < cursor.length)
        expect_ok(tokenizer_encode_step(tokenizer, &cursor, step, &list));
    return list;
}

static void expect_ids(Tokenizer *tokenizer, const char *kind, const json_t *text, const json_t *ids,
                       bool special) {
    for (int64_t step = 0; step < 3; step++) {
        TokenList list = encode(tokenizer, text, special, step);
        for (int64_t i = 0; i < list.count && i < (int64_t)json_array_size(ids); i++)
            if (list.ids[i] != json_integer_value(json_array_get(ids, (size_t)i)))
                fail_msg("%s: token %d of \"%s\" is %d", kind, (int)i, json_string_value(text), list.ids[i]);
        assert_int_equal(list.count, json_array_size(ids));
        token_list_free(&list);
    }
}

static void check_fixture(Tokenizer *tokenizer, const char *kind) {
    json_t *cases = json_load_file(CHAINS "texts.json", JSON_ALLOW_NUL, NULL);
    const json_t *texts = json_object_get(cases, "texts"), *ids = json_object_get(cases, kind);
    const json_t *plain = json_object_get(ids, "plain"), *special = json_object_get(ids, "special");
    size_t count = json_array_size(texts), first = count - json_array_size(special);
    assert_true(json_array_size(plain) == count && count > 25 && first < count);
    for (size_t i = 0; i < count; i++)
        expect_ids(tokenizer, kind, json_array_get(texts, i), json_array_get(plain, i), false);
    for (size_t i = first; i < count; i++) /* the last of them */
        expect_ids(tokenizer, kind, json_array_get(texts, i), json_array_get(special, i - first), true);
    json_decref(cases);
}

static void expect_same_file(const char *one, const char *other) {
    char *texts[2];
    int64_t lengths[2];
    expect_ok(file_read(one, 1 << 20, &texts[0], &lengths[0]));
    expect_ok(file_read(other, 1 << 20, &texts[1], &lengths[1]));
    assert_int_equal(lengths[0], lengths[1]);
    assert_memory_equal(texts[0], texts[1], (size_t)lengths[0]);
    memory_free(texts[0]);
    memory_free(texts[1]);
}

static void ids_are_the_originals(void **state) {
    for (int i = 0; i < KINDS; i++) {
        char path[128];
        Tokenizer *tokenizer = open_kind(kinds[i]);
        check_fixture(tokenizer, kinds[i]);
        expect_ok(tokenizer_save(tokenizer, *state));
        snprintf(path, sizeof path, CHAINS "%s/tokenizer.json", kinds[i]);
        expect_same_file(path, inside(*state, "tokenizer.json"));
        Tokenizer *saved = open_tokenizer(*state);
        assert_true(tokenizer_hash(saved) == tokenizer_hash(tokenizer));
        assert_int_equal(tokenizer_before(saved)->count, 1); /* its template begins with a token */
        assert_int_equal(tokenizer_after(saved)->count, 0);
        tokenizer_free(saved);
        tokenizer_free(tokenizer);
    }
}

/* If a merge creates a pair of lower rank than its own, that pair comes before the others of its rank, in
 * short pieces and in long ones (which use a heap). The ids are those of tokenizers. */
static void merges_out_of_order(void **state) {
    char text[201] = "";
    json_t *root = json_load_file(CHAINS "smollm2/tokenizer.json", 0, NULL);
    assert_non_null(root);
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    json_object_set_new(vocab, "qz", json_integer(710));
    json_object_set_new(vocab, "qzq", json_integer(711));
    json_object_set_new(model, "merges", json_loads("[[\"qz\", \"q\"], [\"q\", \"z\"]]", 0, NULL));
    json_dump_file(root, inside(*state, "tokenizer.json"), 0);
    json_decref(root);
    Tokenizer *tokenizer = open_tokenizer(*state);
    for (int i = 0; i < 50; i++) strcat(text, "qzqz");
    for (int64_t length = 4; length <= 200; length += 196) {
        TokenList list = {0};
        expect_ok(tokenizer_encode(tokenizer, text, length, &list));
        assert_int_equal(list.count, length / 2);
        for (int64_t i = 0; i < list.count; i++) assert_int_equal(list.ids[i], i % 2 ? 89 : 711);
        token_list_free(&list);
    }
    tokenizer_free(tokenizer);
}

/* Tokenizers that give other ids have other hashes, which identify cached shards. */
static void hashes_differ(void **state) {
    (void)state;
    uint64_t hashes[KINDS];
    for (int i = 0; i < KINDS; i++) {
        Tokenizer *tokenizer = open_kind(kinds[i]);
        hashes[i] = tokenizer_hash(tokenizer);
        for (int j = 0; j < i; j++) assert_true(hashes[i] != hashes[j]);
        tokenizer_free(tokenizer);
    }
}

/* Without a normalizer and without inserted spaces any bytes are restored, including invalid UTF-8. */
static void any_bytes_come_back(void **state) {
    (void)state;
    static const char *const lossless[] = {"llama3", "smollm2", "gemma"};
    for (int k = 0; k < 3; k++) {
        Tokenizer *tokenizer = open_kind(lossless[k]);
        for (uint64_t round = 0; round < 100; round++) {
            uint8_t text[300];
            TokenList list = {0};
            int64_t at = 0, bytes;
            for (uint64_t i = 0; i < sizeof text; i++)
                text[i] = (uint8_t)(round % 2 ? random_below(1, round, i, 256)
                                              : 'a' + random_below(2, round, i, 3));
            expect_ok(tokenizer_encode(tokenizer, text, sizeof text, &list));
            for (int64_t i = 0; i < list.count; i++, at += bytes) {
                const uint8_t *token = tokenizer_decode(tokenizer, list.ids[i], &bytes);
                assert_true(at + bytes <= (int64_t)sizeof text);
                assert_memory_equal(token, text + at, bytes);
            }
            assert_int_equal(at, sizeof text);
            token_list_free(&list);
        }
        tokenizer_free(tokenizer);
    }
}

/* A text of 6 MB without added tokens is encoded in stretches, with the same ids as its lines. */
static void long_texts_are_taken_by_stretches(void **state) {
    (void)state;
    static const char line[] = "The fuse is in the box behind the door, and it melts";
    enum { LINES = 110000 };
    Tokenizer *tokenizer = open_kind("llama2");
    TokenList one = {0}, all = {0};
    Bytes text = {0};
    for (int i = 0; i < LINES; i++) {
        if (i) bytes_put(&text, " ", 1);
        bytes_put(&text, line, sizeof line - 1);
    }
    expect_ok(tokenizer_encode(tokenizer, line, sizeof line - 1, &one));
    expect_ok(tokenizer_encode(tokenizer, text.bytes, text.count, &all));
    assert_int_equal(all.count, LINES * one.count);
    for (int64_t i = 0; i < all.count; i++) assert_int_equal(all.ids[i], one.ids[i % one.count]);
    token_list_free(&one);
    token_list_free(&all);
    memory_free(text.bytes);
    tokenizer_free(tokenizer);
}

/* ---- special tokens ---- */

static Status encode_with_pattern(const char *folder, const char *pattern, TokenList *list) {
    enum { LENGTH = 20000 };
    char text[LENGTH];
    memset(text, 'a', sizeof text);
    json_t *root = json_load_file(CHAINS "qwen2/tokenizer.json", JSON_ALLOW_NUL, NULL);
    json_t *split =
        json_array_get(json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers"), 0);
    assert_int_equal(json_object_set_new(json_object_get(split, "pattern"), "Regex", json_string(pattern)),
                     0);
    assert_int_equal(json_dump_file(root, inside(folder, "tokenizer.json"), 0), 0);
    json_decref(root);
    Tokenizer *tokenizer = open_tokenizer(folder);
    Status status = tokenizer_encode(tokenizer, text, sizeof text, list);
    tokenizer_free(tokenizer);
    return status;
}

/* Patterns come from files: a pattern that would backtrack forever is an error of the file; one that needs
 * more memory than the JIT's stack gets it. */
static void costly_patterns_end(void **state) {
    TokenList deep = {0}, costly = {0};
    expect_ok(encode_with_pattern(*state, "(?:(?:a|b)c?)+", &deep));
    assert_true(deep.count > 0);
    expect_error(encode_with_pattern(*state, "(?:a+)+b", &costly), ERROR_FORMAT, "too many steps");
    token_list_free(&deep);
    token_list_free(&costly);
}

static int32_t find_token(const Tokenizer *tokenizer, const char *text) {
    for (int32_t id = 0; id < tokenizer_vocab(tokenizer); id++) {
        int64_t length;
        const uint8_t *bytes = tokenizer_decode(tokenizer, id, &length);
        if (length == (int64_t)strlen(text) && memcmp(bytes, text, (size_t)length) == 0) return id;
    }
    fail_msg("no token %s", text);
    return -1;
}

static void special_tokens_in_plain_data_are_said(void **state) {
    (void)state;
    Tokenizer *tokenizer = open_kind("smollm2");
    TokenList list = {0};
    const char *text = "a <tool> b<|im_end|><|im_start|>";
    expect_ok(tokenizer_encode_special(tokenizer, text, (int64_t)strlen(text), &list));
    assert_null(tokenizer_passed(tokenizer));
    assert_int_equal(list.ids[list.count - 1], find_token(tokenizer, "<|im_start|>"));
    list.count = 0;
    expect_ok(tokenizer_encode(tokenizer, "<|im_ <tool>", 12, &list));
    assert_null(tokenizer_passed(tokenizer));
    expect_ok(tokenizer_encode(tokenizer, text, (int64_t)strlen(text), &list));
    assert_string_equal(tokenizer_passed(tokenizer), "<|im_end|>");
    find_token(tokenizer, "caf\xc3\xa9"); /* an added token's letters are no stand-ins for bytes */
    token_list_free(&list);
    tokenizer_free(tokenizer);
}

/* The config names the tokens for beginning, end and padding; map and template are saved with it. */
static void configs_name_special_tokens(void **state) {
    char folder[] = CHAINS "smollm2", saved[256];
    Tokenizer *fixture = open_tokenizer(folder);
    expect_ok(tokenizer_save(fixture, *state));
    tokenizer_free(fixture);
    write_text_file(
        inside(*state, "tokenizer_config.json"),
        "{\"bos_token\": \"<|im_start|>\", \"eos_token\": {\"content\": \"<|im_end|>\", \"lstrip\": false}}");
    write_text_file(inside(*state, "special_tokens_map.json"),
                    "{\"pad_token\": \"<mask>\", \"eos_token\": \"<mask>\"}");
    write_text_file(inside(*state, "chat_template.jinja"), "{{ messages }}");
    Tokenizer *tokenizer = open_tokenizer(*state);
    assert_int_equal(tokenizer_special(tokenizer, TOKEN_BEGIN), find_token(tokenizer, "<|im_start|>"));
    assert_int_equal(tokenizer_special(tokenizer, TOKEN_END), find_token(tokenizer, "<|im_end|>"));
    assert_int_equal(tokenizer_special(tokenizer, TOKEN_PAD), find_token(tokenizer, "<mask>"));
    assert_int_equal(tokenizer_end_of_text(tokenizer), find_token(tokenizer, "<|im_end|>"));
    snprintf(saved, sizeof saved, "%s/saved", (const char *)*state);
    expect_ok(directory_make(saved));
    expect_ok(tokenizer_save(tokenizer, saved));
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "chat_template.jinja"};
    for (int i = 0; i < 4; i++) {
        char one[300], other[300];
        snprintf(one, sizeof one, "%s/%s", (const char *)*state, names[i]);
        snprintf(other, sizeof other, "%s/%s", saved, names[i]);
        expect_same_file(one, other);
    }
    tokenizer_free(tokenizer);
}

/* Beside GPT-2's own files the config adds tokens, and says whether a text begins with a space. */
static void gpt2_files_with_a_config(void **state) {
    Tokenizer *plain = open_tokenizer("tests/fixtures/tokenizer/plain");
    int32_t end = tokenizer_end_of_text(plain), vocab = tokenizer_vocab(plain);
    TokenList spaced = {0}, list = {0};
    expect_ok(tokenizer_encode(plain, " The fuse", 9, &spaced));
    expect_ok(tokenizer_encode_special(plain, "<|endoftext|>", 13, &list)); /* known without a config */
    assert_int_equal(list.count, 1);
    assert_int_equal(list.ids[0], end);
    expect_ok(tokenizer_save(plain, *state));
    tokenizer_free(plain);
    char config[300];
    snprintf(config, sizeof config,
             "{\"add_prefix_space\": true, \"pad_token\": \"[PAD]\", \"added_tokens_decoder\": {\"%d\": "
             "{\"content\": "
             "\"<|endoftext|>\", \"special\": true}, \"%d\": {\"content\": \"[PAD]\", \"special\": false}}}",
             end, vocab);
    write_text_file(inside(*state, "tokenizer_config.json"), config);
    Tokenizer *tokenizer = open_tokenizer(*state);
    assert_int_equal(tokenizer_vocab(tokenizer), vocab + 1);
    assert_int_equal(tokenizer_special(tokenizer, TOKEN_PAD), vocab);
    list.count = 0;
    expect_ok(tokenizer_encode(tokenizer, "The fuse[PAD]", 13, &list));
    assert_int_equal(list.count, spaced.count + 1);
    assert_memory_equal(list.ids, spaced.ids, (size_t)spaced.count * sizeof *spaced.ids);
    assert_int_equal(list.ids[list.count - 1], vocab);
    token_list_free(&list);
    token_list_free(&spaced);
    tokenizer_free(tokenizer);
    write_text_file(inside(*state, "tokenizer_config.json"), "{\"added_tokens_decoder\": {\"x\": {}}}");
    expect_error(tokenizer_open(*state, &tokenizer), ERROR_FORMAT, "added_tokens_decoder.x");
}

/* ---- text that streams out ---- */

static void stream_all(const Tokenizer *tokenizer, TextStream *stream, const int32_t *ids, int64_t count,
                       Bytes *out) {
    for (int64_t i = 0; i < count; i++) tokenizer_stream(tokenizer, stream, ids[i], out);
}

static void expect_streamed(const Tokenizer *tokenizer, const char *bytes, const char *before,
                            const char *whole) {
    TextStream stream = {0};
    Bytes out = {0};
    for (const char *at = bytes; *at; at++) tokenizer_stream(tokenizer, &stream, (uint8_t)*at, &out);
    assert_int_equal(out.count, strlen(before));
    assert_memory_equal(out.bytes, before, strlen(before));
    tokenizer_stream_end(&stream, &out);
    assert_int_equal(out.count, strlen(whole));
    assert_memory_equal(out.bytes, whole, strlen(whole));
    memory_free(out.bytes);
}

#define LOST "\xef\xbf\xbd"

static void characters_come_whole(void **state) {
    (void)state;
    Tokenizer *bytes = open_tokenizer("bytes");
    expect_streamed(bytes, "a\xc3\xa9z", "a\xc3\xa9z", "a\xc3\xa9z");
    expect_streamed(bytes, "a\xe7\x8c", "a", "a" LOST);
    expect_streamed(bytes, "a\xf0\x9f\x91", "a", "a" LOST);
    expect_streamed(bytes, "\xe7\x8cz", LOST "z", LOST "z");
    expect_streamed(bytes, "\xff\x80z\xc3", LOST LOST "z", LOST LOST "z" LOST);
    expect_streamed(bytes, "\xed\xa0\x80", LOST LOST LOST, LOST LOST LOST); /* a surrogate */
    expect_streamed(bytes, "\xf0\x9f\xe7\x8c\xab", LOST "\xe7\x8c\xab", LOST "\xe7\x8c\xab");
    tokenizer_free(bytes);
}

/* Encoded text streams out again; Llama's first space is not part of the text. */
static void streams_give_the_text_back(void **state) {
    (void)state;
    static const char *const whole[] = {"llama3", "smollm2", "llama2", "mistral", "gemma"};
    static const char text[] = "The house \xe7\x8c\xab is\n in the \xf0\x9f\x91\xa9 box";
    for (int k = 0; k < 5; k++) {
        Tokenizer *tokenizer = open_kind(whole[k]);
        TokenList list = {0};
        TextStream stream = {0};
        Bytes out = {0};
        for (int64_t i = 0; i < tokenizer_before(tokenizer)->count; i++)
            token_list_add(&list, tokenizer_before(tokenizer)->ids[i]); /* has no text */
        expect_ok(tokenizer_encode(tokenizer, text, sizeof text - 1, &list));
        stream_all(tokenizer, &stream, list.ids, list.count, &out);
        tokenizer_stream_end(&stream, &out);
        assert_int_equal(out.count, sizeof text - 1);
        assert_memory_equal(out.bytes, text, sizeof text - 1);
        memory_free(out.bytes);
        token_list_free(&list);
        tokenizer_free(tokenizer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ids_are_the_originals, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(merges_out_of_order, scratch_setup, scratch_teardown),
        cmocka_unit_test(hashes_differ),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(long_texts_are_taken_by_stretches),
        cmocka_unit_test_setup_teardown(costly_patterns_end, scratch_setup, scratch_teardown),
        cmocka_unit_test(special_tokens_in_plain_data_are_said),
        cmocka_unit_test_setup_teardown(configs_name_special_tokens, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(gpt2_files_with_a_config, scratch_setup, scratch_teardown),
        cmocka_unit_test(characters_come_whole),
        cmocka_unit_test(streams_give_the_text_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
