/* data/tokens. */
#include "base/directories.h"
#include "base/memory.h"
#include "data/shard.h"
#include "data/tokens.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static Tokenizer *open_tokenizer(const char *path) {
    Tokenizer *tokenizer;
    expect_ok(tokenizer_open(path, &tokenizer));
    return tokenizer;
}

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

static void expect_tokens(const TokenSource *source, const int32_t *expected, int64_t count) {
    int32_t got[4096];
    assert_int_equal(tokens_count(source), count);
    expect_ok(tokens_read(source, 0, count, got));
    assert_memory_equal(got, expected, (size_t)count * sizeof *got);
}

static void expect_text_tokens(const TokenSource *source, const char *text) {
    int32_t expected[4096];
    for (size_t i = 0; text[i]; i++) expected[i] = (uint8_t)text[i];
    expect_tokens(source, expected, (int64_t)strlen(text));
}

static void shards_follow_each_other(void **state) {
    write_shard(inside(*state, "b.bin"), 5, 103);
    write_shard(inside(*state, "a.bin"), 3, 100);
    write_shard(inside(*state, "ab.bin"), 0, 0);
    const TokenOptions options = {.vocab = 50257};
    const char *paths[] = {inside(*state, "*.bin"), *state};
    for (int p = 0; p < 2; p++) {
        TokenSource *source = open_tokens(paths[p], &options);
        expect_tokens(source, (int32_t[]){100, 101, 102, 103, 104, 105, 106, 107}, 8);
        assert_int_equal(tokens_text_bytes(source), -1);
        int32_t out[8];
        for (int64_t from = 0; from < 8; from++)
            for (int64_t count = 0; from + count <= 8; count++) {
                expect_ok(tokens_read(source, from, count, out));
                for (int64_t i = 0; i < count; i++) assert_int_equal(out[i], 100 + from + i);
            }
        expect_error(tokens_read(source, 5, 4, out), ERROR_INTERNAL, "of 8");
        expect_error(tokens_read(source, -1, 1, out), ERROR_INTERNAL, "of 8");
        expect_error(tokens_read(source, INT64_MAX, 1, out), ERROR_INTERNAL, "of 8");
        tokens_close(source);
    }
    TokenSource *one = open_tokens(inside(*state, "b.bin"), &options);
    assert_int_equal(tokens_count(one), 5);
    tokens_close(one);
    tokens_close(NULL);
}

/* Ids above 16 bits, next to a shard of 16-bit ids. */
static void wide_shards(void **state) {
    const int32_t ids[] = {70000, 3, 151642, 65536};
    uint8_t bytes[1024 + sizeof ids] = {0};
    memcpy(bytes, (int32_t[]){SHARD_MAGIC_WIDE, SHARD_VERSION_WIDE, 4}, 12);
    memcpy(bytes + 1024, ids, sizeof ids);
    write_bytes(inside(*state, "b.bin"), bytes, sizeof bytes);
    write_shard(inside(*state, "a.bin"), 2, 100);
    TokenSource *source = open_tokens(inside(*state, "*.bin"), &(TokenOptions){.vocab = 151643});
    expect_tokens(source, (int32_t[]){100, 101, 70000, 3, 151642, 65536}, 6);
    tokens_close(source);
    int32_t out[4];
    source = open_tokens(inside(*state, "b.bin"), &(TokenOptions){.vocab = 151642});
    expect_error(tokens_read(source, 0, 4, out), ERROR_FORMAT, "token 2 is 151642, outside the vocabulary");
    tokens_close(source);
}

/* With a tokenizer of more than 65536 tokens, the text is cached in a shard of 32-bit ids. */
static void texts_of_large_vocabularies(void **state) {
    enum { WORDS = 70000 };
    const int32_t expected[] = {69999, 7, 65536};
    FILE *file = fopen(inside(*state, "vocab.txt"), "w");
    fprintf(file, "[UNK]\n");
    for (int i = 1; i < WORDS; i++) fprintf(file, "w%d\n", i);
    fclose(file);
    Tokenizer *words = open_tokenizer(*state);
    write_text_file(inside(*state, "text"), "w69999 w7 w65536");
    char *cache = strdup(inside(*state, "cache")), *path = strdup(inside(*state, "text"));
    const TokenOptions options[] = {{.tokenizer = words}, {.tokenizer = words, .cache = cache}};
    for (int i = 0; i < 3; i++) { /* in memory; written; read */
        TokenSource *source = open_tokens(path, &options[i > 0]);
        expect_tokens(source, expected, 3);
        tokens_close(source);
    }
    free(cache);
    free(path);
    tokenizer_free(words);
}

static void tokens_outside_the_vocabulary(void **state) {
    write_shard(inside(*state, "a.bin"), 4, 0);
    write_shard(inside(*state, "b.bin"), 300, 0);
    TokenSource *source = open_tokens(inside(*state, "*.bin"), &(TokenOptions){.vocab = 256});
    int32_t out[304];
    expect_ok(tokens_read(source, 0, 260, out));
    expect_error(tokens_read(source, 0, 304, out), ERROR_FORMAT,
                 "b.bin: token 256 is 256, outside the vocabulary");
    tokens_close(source);
    Tokenizer *bytes = open_tokenizer(NULL); /* by default the tokenizer's vocabulary is the limit */
    source = open_tokens(inside(*state, "b.bin"), &(TokenOptions){.tokenizer = bytes});
    expect_error(tokens_read(source, 256, 1, out), ERROR_FORMAT, "vocabulary of 256");
    tokens_close(source);
    tokenizer_free(bytes);
}

static void malformed_shards(void **state) {
    static const struct {
        int32_t magic, version, count;
        size_t bytes;
        const char *part;
    } cases[] = {
        {SHARD_MAGIC, 1, 4, 0, "the file has 0"},
        {SHARD_MAGIC, 1, 4, 12, "1024 bytes of header"},
        {SHARD_MAGIC, 1, 0, 1023, "1024 bytes of header"},
        {20240521, 1, 4, 1032, "not a token shard"},
        {SHARD_MAGIC, 2, 4, 1032, "version 2"},
        {SHARD_MAGIC, 1, 5, 1032, "promises 5 tokens"},
        {SHARD_MAGIC, 1, 3, 1032, "promises 3 tokens"},
        {SHARD_MAGIC, 1, 4, 1031, "1032 bytes in all"},
        {SHARD_MAGIC, 1, -1, 1022 + 1, "1024"},
        {SHARD_MAGIC, 1, -1, 1024, "promises -1"},
        {SHARD_MAGIC, 1, INT32_MAX, 1032, "promises 2147"},
        {SHARD_MAGIC_WIDE, 1, 2, 1032, "version 1 of the shard format cannot be read, only 7"},
        {SHARD_MAGIC, 7, 4, 1032, "version 7"},
        {SHARD_MAGIC_WIDE, 7, 4, 1032, "promises 4 tokens, 1040 bytes"},
        {SHARD_MAGIC, 1, INT32_MIN, 1032, "promises -2147"},
    };
    const char *path = inside(*state, "bad.bin");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t data[260] = {cases[i].magic, cases[i].version, cases[i].count};
        write_bytes(path, data, cases[i].bytes);
        TokenSource *source = (TokenSource *)1;
        expect_error(tokens_open(path, &(TokenOptions){0}, &source), ERROR_FORMAT, cases[i].part);
        assert_null(source);
    }
}

static void sources_that_cannot_be(void **state) {
    TokenSource *source;
    Tokenizer *bytes = open_tokenizer(NULL);
    const TokenOptions options = {.tokenizer = bytes};
    expect_error(tokens_open(inside(*state, "none.txt"), &options, &source), ERROR_FILE, "no such file");
    expect_error(tokens_open(inside(*state, "*.none"), &options, &source), ERROR_FILE, "no such file");
    expect_error(tokens_open(*state, &options, &source), ERROR_FILE, "the folder holds no files");
    write_text_file(inside(*state, "a.txt"), "text");
    expect_error(tokens_open(inside(*state, "a.txt"), &(TokenOptions){0}, &source), ERROR_USAGE,
                 "which a tokenizer reads");
    write_shard(inside(*state, "b.bin"), 4, 0);
    expect_error(tokens_open(*state, &options, &source), ERROR_USAGE, "both");
    write_text_file(inside(*state, "[x].txt"), "odd");
    source = open_tokens(inside(*state, "[x].txt"), &options);
    expect_text_tokens(source, "odd");
    tokens_close(source);
    tokenizer_free(bytes);
}

/* The tokenized text in `folder`: there is one. */
static char *kept_shard(const char *folder) {
    PathList list;
    expect_ok(directory_list(folder, &list));
    assert_int_equal(list.count, 1);
    char *path = strdup(list.paths[0]);
    path_list_free(&list);
    return path;
}

static void texts_are_kept_as_shards(void **state) {
    Tokenizer *bytes = open_tokenizer(NULL), *pairs = open_tokenizer("tests/fixtures/tokenizer/plain");
    char *cache = strdup(inside(*state, "run/cache")), *path = strdup(inside(*state, "words.txt"));
    const TokenOptions options = {.tokenizer = bytes, .cache = cache};
    write_text_file(path, "the box and the door");
    for (int round = 0; round < 2; round++) {
        TokenSource *source = open_tokens(path, &options);
        expect_text_tokens(source, "the box and the door");
        assert_int_equal(tokens_text_bytes(source), 20);
        tokens_close(source);
    }
    char *kept = kept_shard(cache);
    assert_non_null(strstr(kept, "/words.txt."));
    struct stat first, second;
    stat(kept, &first);
    tokens_close(open_tokens(path, &options));
    stat(kept, &second);
    assert_true(first.st_ino == second.st_ino); /* read, not written again */
    /* A shard whose header, size or hash is damaged is written again. */
    for (int spoil = 0; spoil < 3; spoil++) {
        FileWriter *writer;
        int32_t header[256] = {SHARD_MAGIC, SHARD_VERSION + (spoil == 0), 20};
        expect_ok(file_writer_open(kept, &writer));
        expect_ok(file_writer_append(writer, header, sizeof header));
        expect_ok(file_writer_append(writer, header, spoil == 1 ? 39 : 40));
        expect_ok(file_writer_close(writer));
        TokenSource *source = open_tokens(path, &options);
        expect_text_tokens(source, "the box and the door");
        tokens_close(source);
    }
    /* A changed token in the cached shard is detected, too. */
    char *shard;
    int64_t size;
    expect_ok(file_read(kept, 1 << 20, &shard, &size));
    shard[size - 2] ^= 1;
    write_bytes(kept, shard, (size_t)size);
    memory_free(shard);
    TokenSource *again = open_tokens(path, &options);
    expect_text_tokens(again, "the box and the door");
    tokens_close(again);
    free(kept);
    /* Another text or another tokenizer has its own shard. */
    write_text_file(path, "the box and the Door");
    TokenSource *source = open_tokens(path, &options);
    expect_text_tokens(source, "the box and the Door");
    tokens_close(source);
    source = open_tokens(path, &(TokenOptions){.tokenizer = pairs, .cache = cache});
    assert_true(tokens_count(source) < 20);
    tokens_close(source);
    PathList list;
    expect_ok(directory_list(cache, &list));
    assert_int_equal(list.count, 3);
    path_list_free(&list);
    write_text_file(inside(*state, "file"), "");
    expect_error(
        tokens_open(path, &(TokenOptions){.tokenizer = bytes, .cache = inside(*state, "file")}, &source),
        ERROR_FILE, "file");
    free(cache);
    free(path);
    tokenizer_free(pairs);
    tokenizer_free(bytes);
}

static void texts_of_json_lines(void **state) {
    Tokenizer *bytes = open_tokenizer(NULL);
    char *path = strdup(inside(*state, "texts.jsonl")), *cache = strdup(inside(*state, "cache"));
    TokenOptions options = {.tokenizer = bytes, .field = "text"};
    TokenSource *source;
    write_text_file(path, "{\"text\": \"one\", \"id\": 1}\n\n{\"id\": 2, \"text\": \"t\\nwo\"}\r\n");
    for (int kept = 0; kept < 2; kept++) {
        options.cache = kept ? cache : NULL;
        source = open_tokens(path, &options);
        expect_text_tokens(source, "one\nt\nwo");
        assert_int_equal(tokens_text_bytes(source), -1);
        tokens_close(source);
    }
    options.field = "id";
    expect_error(tokens_open(path, &options, &source), ERROR_FORMAT,
                 "line 1: the object has no text under \"id\"");
    write_text_file(path, "{\"text\": \"one\"}\n[]\n");
    options.field = "text";
    expect_error(tokens_open(path, &options, &source), ERROR_FORMAT, "line 2: not a JSON object");
    write_text_file(path, "{\"text\": \"one\"");
    expect_error(tokens_open(path, &options, &source), ERROR_FORMAT,
                 "texts.jsonl, line 1: not valid JSON at column 14: ");
    free(path);
    free(cache);
    tokenizer_free(bytes);
}

static void documents_are_separated(void **state) {
    Tokenizer *bytes = open_tokenizer(NULL), *pairs = open_tokenizer("tests/fixtures/tokenizer/plain");
    write_text_file(inside(*state, "1.txt"), "one");
    write_text_file(inside(*state, "2.txt"), "");
    write_text_file(inside(*state, "3.txt"), "two");
    TokenSource *source = open_tokens(inside(*state, "*.txt"), &(TokenOptions){.tokenizer = bytes});
    expect_text_tokens(source, "one\n\ntwo");
    assert_int_equal(tokens_text_bytes(source), 6);
    tokens_close(source);
    char both[600];
    snprintf(both, sizeof both, "%s,%s", inside(*state, "3.txt"), inside(*state, "1*"));
    source = open_tokens(both, &(TokenOptions){.tokenizer = bytes});
    expect_text_tokens(source, "two\none");
    tokens_close(source);
    expect_error(tokens_open(",", &(TokenOptions){.tokenizer = bytes}, &source), ERROR_FILE, "no data at");
    source = open_tokens(*state, &(TokenOptions){.tokenizer = pairs, .cache = inside(*state, "cache")});
    TokenList list = {0};
    expect_ok(tokenizer_encode(pairs, "one", 3, &list));
    int32_t got[20];
    expect_ok(tokens_read(source, 0, list.count + 2, got));
    assert_memory_equal(got, list.ids, (size_t)list.count * sizeof *got);
    assert_int_equal(got[list.count], 756);
    assert_int_equal(got[list.count + 1], 756);
    token_list_free(&list);
    tokens_close(source);
    char *paths[] = {(char *)(uintptr_t)inside(*state, "3.txt"), (char *)(uintptr_t)inside(*state, "1.txt")};
    expect_ok(tokens_open_texts(&(PathList){paths, 2, 0}, "built-in", &(TokenOptions){.tokenizer = bytes},
                                &source));
    expect_text_tokens(source, "two\none");
    tokens_close(source);
    tokenizer_free(pairs);
    tokenizer_free(bytes);
}

/* More tokens than are written at a time, cached and in memory. */
static void long_texts(void **state) {
    Tokenizer *pairs = open_tokenizer("tests/fixtures/tokenizer/plain");
    size_t length = 1500000;
    char *text = malloc(length);
    for (size_t i = 0; i < length; i++) text[i] = "the box \n~"[i * i % 11 % 10];
    write_bytes(inside(*state, "long"), text, length);
    TokenList list = {0};
    expect_ok(tokenizer_encode(pairs, text, (int64_t)length, &list));
    int32_t *got = malloc((size_t)list.count * sizeof *got);
    for (int kept = 0; kept < 2; kept++) {
        TokenOptions options = {.tokenizer = pairs, .cache = kept ? inside(*state, "cache") : NULL};
        TokenSource *source = open_tokens(inside(*state, "long"), &options);
        assert_int_equal(tokens_count(source), list.count);
        expect_ok(tokens_read(source, 0, list.count, got));
        assert_memory_equal(got, list.ids, (size_t)list.count * sizeof *got);
        tokens_close(source);
    }
    free(got);
    token_list_free(&list);
    free(text);
    tokenizer_free(pairs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shards_follow_each_other, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(tokens_outside_the_vocabulary, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(wide_shards, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(texts_of_large_vocabularies, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(malformed_shards, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(sources_that_cannot_be, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(texts_are_kept_as_shards, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(documents_are_separated, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(texts_of_json_lines, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(long_texts, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
