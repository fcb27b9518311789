/* data/safetensors: reading and writing well-formed files, and shards. The files here are handwritten from
 * the format's specification, so that an error common to reader and writer is found. */
#include "base/directories.h"
#include "base/files.h"
#include "base/memory.h"
#include "data/safetensors.h"
#include "tests/support/expect.h"
#include "tests/support/tensors.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- well-formed ---- */

static void a_file_is_read(void **state) {
    (void)state;
    const char *header =
        "{" TENSOR("second", "F32", "2, 1", 5, 13) ",\"__metadata__\":{\"a\":\"b\",\"c\":\"\"}," TENSOR(
            "first", "U8", "5", 0, 5) "," TENSOR("none", "F64", "0,7", 5, 5) "," TENSOR("scalar", "I64", "",
                                                                                        13, 21) "}   ";
    int64_t size;
    uint8_t *file = tensors_file(header, strlen(header), 21, &size);
    Safetensors *parsed;
    expect_ok(safetensors_parse(file, size, "x", &parsed));
    assert_int_equal(safetensors_count(parsed), 4);
    assert_string_equal(safetensors_entry(parsed, 0)->name, "first");
    assert_string_equal(safetensors_entry(parsed, 3)->name, "second");
    const SafetensorsEntry *entry = safetensors_find(parsed, "second");
    assert_int_equal(entry->type, SAFE_F32);
    assert_int_equal(entry->rank, 2);
    assert_int_equal(entry->d[0], 2);
    assert_int_equal(entry->d[1], 1);
    assert_int_equal(entry->count, 2);
    assert_int_equal(entry->bytes, 8);
    assert_int_equal(entry->data[0], 5);
    entry = safetensors_find(parsed, "scalar");
    assert_int_equal(entry->rank, 0);
    assert_int_equal(entry->count, 1);
    assert_int_equal(entry->data[0], 13);
    assert_int_equal(safetensors_find(parsed, "none")->count, 0);
    assert_null(safetensors_find(parsed, "third"));
    assert_null(safetensors_find(parsed, "__metadata__"));
    assert_int_equal(safetensors_note_count(parsed), 2);
    assert_string_equal(safetensors_note_value(parsed, "a"), "b");
    assert_string_equal(safetensors_note_value(parsed, "c"), "");
    assert_null(safetensors_note_value(parsed, "d"));
    safetensors_close(parsed);
    free(file);
}

static void a_file_of_nothing_is_read(void **state) {
    (void)state;
    int64_t size;
    uint8_t *file = tensors_file("{}", 2, 0, &size);
    Safetensors *parsed;
    expect_ok(safetensors_parse(file, size, "x", &parsed));
    assert_int_equal(safetensors_count(parsed), 0);
    assert_null(safetensors_find(parsed, "x"));
    safetensors_close(parsed);
    free(file);
}

static float read_one(SafetensorsType type, uint64_t bits) {
    SafetensorsEntry entry = {.name = "x", .type = type, .rank = 0, .count = 1, .data = (uint8_t *)&bits};
    float value;
    expect_ok(safetensors_read(&entry, 0, 1, &value));
    return value;
}

static void values_are_converted(void **state) {
    (void)state;
    /* IEEE 754 binary16, table of its limits */
    assert_true(read_one(SAFE_F16, 0x3C00) == 1.0f);
    assert_true(read_one(SAFE_F16, 0xC000) == -2.0f);
    assert_true(read_one(SAFE_F16, 0x7BFF) == 65504.0f);
    assert_true(read_one(SAFE_F16, 0x0400) == 0x1p-14f);
    assert_true(read_one(SAFE_F16, 0x0001) == 0x1p-24f);
    assert_true(read_one(SAFE_F16, 0x83FF) == -1023 * 0x1p-24f);
    assert_true(read_one(SAFE_F16, 0x7C00) == INFINITY);
    assert_true(isnan(read_one(SAFE_F16, 0x7E00)));
    assert_true(read_one(SAFE_F16, 0x8000) == 0.0f && signbit(read_one(SAFE_F16, 0x8000)));
    assert_true(read_one(SAFE_BF16, 0x3F80) == 1.0f);
    assert_true(read_one(SAFE_BF16, 0xC049) == -3.140625f);
    assert_true(read_one(SAFE_F32, 0x40490FDB) == 0x1.921FB6p+1f);
    assert_true(read_one(SAFE_F64, 0x400921FB54442D18) == 0x1.921FB6p+1f);
    SafetensorsEntry entry = {.name = "x", .type = SAFE_I64, .count = 1, .data = (const uint8_t *)"01234567"};
    float value;
    expect_error(safetensors_read(&entry, 0, 1, &value), ERROR_FORMAT, "I64");
    /* Part of an entry, at an odd address. */
    uint8_t bytes[1 + 6] = {0, 0x80, 0x3F, 0x00, 0x40, 0x40, 0x40};
    entry = (SafetensorsEntry){.name = "x", .type = SAFE_BF16, .count = 3, .data = bytes + 1};
    float values[2];
    expect_ok(safetensors_read(&entry, 1, 2, values));
    assert_true(values[0] == 2 && values[1] == 3);
}

static void every_dtype_has_its_size(void **state) {
    (void)state;
    for (int type = 0; type < SAFE_TYPE_COUNT; type++) {
        char header[200];
        int64_t bytes = 3 * safetensors_type_size((SafetensorsType)type), size;
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%lld]}}",
                 safetensors_type_name((SafetensorsType)type), (long long)bytes);
        uint8_t *file = tensors_file(header, strlen(header), bytes, &size);
        Safetensors *parsed;
        expect_ok(safetensors_parse(file, size, "x", &parsed));
        assert_int_equal(safetensors_find(parsed, "x")->type, type);
        safetensors_close(parsed);
        free(file);
    }
}

static void what_is_written_is_read(void **state) {
    const char *path = inside(*state, "x.safetensors");
    SafetensorsEntry entries[] = {
        {.name = "z", .type = SAFE_F32, .rank = 2, .d = {2, 3}},
        {.name = "naïve \"quoted\"", .type = SAFE_U8, .rank = 0},
        {.name = "a", .type = SAFE_I32, .rank = 3, .d = {4, 0, 1}},
    };
    SafetensorsNote notes[] = {{"format", "pt"}, {"note", "ünï\ncode"}};
    float values[6] = {1, 2, 3, 4, 5, 6};
    SafetensorsWriter *writer;
    expect_ok(safetensors_writer_open(path, entries, 3, notes, 2, &writer));
    expect_ok(safetensors_writer_append(writer, values, 10));
    expect_ok(safetensors_writer_append(writer, (char *)values + 10, 14));
    assert_false(path_exists(path));
    expect_ok(safetensors_writer_append(writer, "!", 1));
    expect_ok(safetensors_writer_close(writer));

    Safetensors *file;
    expect_ok(safetensors_open(path, &file));
    assert_int_equal(safetensors_count(file), 3);
    const SafetensorsEntry *z = safetensors_find(file, "z");
    assert_int_equal(z->rank, 2);
    assert_memory_equal(z->data, values, sizeof values);
    assert_int_equal((uintptr_t)z->data % 8, 0); /* padded to a page; only the header's length matters */
    assert_int_equal(*safetensors_find(file, "naïve \"quoted\"")->data, '!');
    assert_int_equal(safetensors_find(file, "a")->d[0], 4);
    assert_string_equal(safetensors_note_value(file, "note"), "ünï\ncode");
    safetensors_close(file);
}

/* Whether a file opens and its tensors equal those written. */
static Status check_whole(const uint8_t *bytes, int64_t size) {
    Safetensors *file;
    TRY(safetensors_parse(bytes, size, "x", &file));
    Status status = OK;
    for (int64_t i = 0; !status && i < safetensors_count(file); i++)
        status = safetensors_verify(safetensors_entry(file, i));
    safetensors_close(file);
    return status;
}

/* Any flipped bit is detected: header, padding, values. Files of other programs have no digests and are not
 * checked. */
/* Without elements, with an axis of the maximum length, as the reader accepts it. */
static void an_empty_tensor_may_have_a_long_axis(void **state) {
    const SafetensorsEntry entry = {.name = "none", .type = SAFE_F64, .rank = 2, .d = {INT64_MAX, 0}};
    const char *path = inside(*state, "none.safetensors");
    SafetensorsWriter *writer;
    Safetensors *file;
    expect_ok(safetensors_writer_open(path, &entry, 1, NULL, 0, &writer));
    expect_ok(safetensors_writer_close(writer));
    expect_ok(safetensors_open(path, &file));
    assert_true(safetensors_entry(file, 0)->d[0] == INT64_MAX);
    safetensors_close(file);
}

static void flipped_bits_are_found(void **state) {
    const char *path = inside(*state, "x.safetensors");
    SafetensorsEntry entries[] = {{.name = "b", .type = SAFE_F32, .rank = 2, .d = {2, 3}},
                                  {.name = "empty", .type = SAFE_F32, .rank = 1, .d = {0}},
                                  {.name = "a \"quoted\"", .type = SAFE_U8, .rank = 0}};
    SafetensorsNote notes[] = {{"format", "pt"}, {"step", "1000"}};
    float values[6] = {1, 2, 3, 4, 5, 6};
    SafetensorsWriter *writer;
    expect_ok(safetensors_writer_open(path, entries, 3, notes, 2, &writer));
    expect_ok(safetensors_writer_append(writer, values, 24));
    expect_ok(safetensors_writer_append(writer, "!", 1));
    expect_ok(safetensors_writer_close(writer));
    char *bytes;
    int64_t size;
    expect_ok(file_read(path, 1 << 20, &bytes, &size));
    expect_ok(check_whole((uint8_t *)bytes, size));
    for (int64_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        expect_error(check_whole((uint8_t *)bytes, size), ERROR_FORMAT, "");
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    memory_free(bytes);
    Safetensors *file;
    expect_ok(safetensors_open(path, &file));
    assert_int_equal(safetensors_note_count(file), 2);
    assert_string_equal(safetensors_note(file, 1).key, "step");
    safetensors_close(file);
    const char *header = "{" TENSOR("a", "U8", "1", 0, 1) "}";
    uint8_t *foreign = tensors_file(header, strlen(header), 1, &size);
    foreign[size - 1] ^= 1;
    expect_ok(check_whole(foreign, size));
    free(foreign);
}

/* Data in a pipe cannot be rewritten at the end. */
static void a_pipe_gets_no_digests(void **state) {
    const char *path = inside(*state, "pipe");
    SafetensorsEntry entry = {.name = "x", .type = SAFE_U8, .rank = 1, .d = {4}};
    SafetensorsWriter *writer;
    uint8_t bytes[4096];
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    expect_ok(safetensors_writer_open(path, &entry, 1, NULL, 0, &writer));
    expect_ok(safetensors_writer_append(writer, "1234", 4));
    expect_ok(safetensors_writer_close(writer));
    ssize_t size = read(reader, bytes, sizeof bytes);
    close(reader);
    Safetensors *file;
    expect_ok(safetensors_parse(bytes, size, "x", &file));
    assert_memory_equal(safetensors_find(file, "x")->data, "1234", 4);
    assert_false(safetensors_find(file, "x")->digested);
    safetensors_close(file);
}

/* Two writers, as in two processes, write the same file as one. */
static void writers_share_a_file(void **state) {
    const char *path = inside(*state, "shared"), *alone = inside(*state, "alone");
    const SafetensorsEntry entries[] = {{.name = "a", .type = SAFE_U8, .rank = 1, .d = {3}},
                                        {.name = "b", .type = SAFE_U8, .rank = 1, .d = {0}},
                                        {.name = "c", .type = SAFE_U8, .rank = 1, .d = {4}},
                                        {.name = "d", .type = SAFE_U8, .rank = 1, .d = {2}}};
    SafetensorsWriter *first, *second;
    Safetensors *file;
    uint64_t digest;
    expect_ok(safetensors_writer_open(alone, entries, 4, NULL, 0, &first));
    expect_ok(safetensors_writer_append(first, "aaaccccdd", 9));
    expect_ok(safetensors_writer_close(first));
    expect_ok(safetensors_writer_open(path, entries, 4, NULL, 0, &first));
    expect_ok(safetensors_writer_join(safetensors_writer_share(first), entries, 4, &second));
    safetensors_writer_go(second, 2);
    expect_ok(safetensors_writer_append(second, "cccc", 4));
    assert_true(safetensors_writer_wrote(second, 2, &digest));
    safetensors_writer_abandon(second);
    safetensors_writer_go(first, 0);
    expect_ok(safetensors_writer_append(first, "aaa", 3));
    safetensors_writer_go(first, 3);
    expect_ok(safetensors_writer_append(first, "dd", 2));
    safetensors_writer_accept(first, 2, digest);
    expect_ok(safetensors_writer_close(first));
    expect_ok(safetensors_open(path, &file));
    expect_ok(safetensors_verify_all(file));
    safetensors_close(file);
    char *one, *other;
    int64_t one_length, other_length;
    expect_ok(file_read(alone, 1 << 20, &one, &one_length));
    expect_ok(file_read(path, 1 << 20, &other, &other_length));
    assert_int_equal(one_length, other_length);
    assert_memory_equal(one, other, (size_t)one_length);
    memory_free(one);
    memory_free(other);
}

static void a_writer_holds_its_caller_to_the_header(void **state) {
    const char *path = inside(*state, "x.safetensors");
    SafetensorsEntry entry = {.name = "x", .type = SAFE_F32, .rank = 1, .d = {2}};
    SafetensorsWriter *writer;
    expect_ok(safetensors_writer_open(path, &entry, 1, NULL, 0, &writer));
    expect_ok(safetensors_writer_append(writer, "1234", 4));
    expect_error(safetensors_writer_append(writer, "12345", 5), ERROR_INTERNAL, "more bytes");
    expect_error(safetensors_writer_close(writer), ERROR_INTERNAL, "fewer bytes");
    PathList list;
    expect_ok(directory_list(*state, &list));
    assert_int_equal(list.count, 0); /* nothing half-written */
    path_list_free(&list);
}

/* ---- shards ---- */

static void write_shard(const char *path, const char *name, float value) {
    SafetensorsEntry entry = {.name = name, .type = SAFE_F32, .rank = 1, .d = {1}};
    SafetensorsWriter *writer;
    expect_ok(safetensors_writer_open(path, &entry, 1, NULL, 0, &writer));
    expect_ok(safetensors_writer_append(writer, &value, sizeof value));
    expect_ok(safetensors_writer_close(writer));
}

static void expect_index_error(const char *folder, const char *index, ErrorCode code, const char *part) {
    write_text_file(inside(folder, "model.safetensors.index.json"), index);
    Safetensors *file;
    expect_error(safetensors_open_folder(folder, &file), code, part);
    assert_null(file);
}

static void shards_are_one_file(void **state) {
    write_shard(inside(*state, "one.safetensors"), "b", 1);
    write_shard(inside(*state, "two.safetensors"), "a", 2);
    write_text_file(inside(*state, "model.safetensors.index.json"),
                    "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one."
                    "safetensors\"}}");
    Safetensors *file;
    expect_ok(safetensors_open_folder(*state, &file));
    assert_int_equal(safetensors_count(file), 2);
    float value;
    expect_ok(safetensors_read(safetensors_find(file, "a"), 0, 1, &value));
    assert_true(value == 2);
    expect_ok(safetensors_read(safetensors_find(file, "b"), 0, 1, &value));
    assert_true(value == 1);
    safetensors_close(file);
}

static void an_index_is_checked(void **state) {
    const char *folder = *state;
    write_shard(inside(folder, "one.safetensors"), "b", 1);
    write_shard(inside(folder, "two.safetensors"), "a", 2);
    write_shard(inside(folder, "again.safetensors"), "a", 3);
    expect_index_error(folder, "{", ERROR_FORMAT, "line 1");
    expect_index_error(folder, "[]", ERROR_FORMAT, "weight_map");
    expect_index_error(folder, "{\"weight_map\":{\"a\":3}}", ERROR_FORMAT, "same folder");
    static const char *const outside[] = {
        "../one.safetensors", "/one.safetensors", "x/one.safetensors", "..", "",
        ".one.safetensors",   "one.bin"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        char index[100];
        snprintf(index, sizeof index, "{\"weight_map\":{\"b\":\"%s\"}}", outside[i]);
        expect_index_error(folder, index, ERROR_FORMAT, "same folder");
    }
    expect_index_error(folder, "{\"weight_map\":{\"a\":\"no.safetensors\"}}", ERROR_FILE, "no.safetensors");
    expect_index_error(folder, "{\"weight_map\":{\"a\":\"two.safetensors\",\"c\":\"two.safetensors\"}}",
                       ERROR_FORMAT, "'c' is not in two.safetensors");
    expect_index_error(folder, "{\"weight_map\":{\"c\":\"two.safetensors\"}}", ERROR_FORMAT,
                       "does not list it there");
    expect_index_error(folder, "{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"again.safetensors\"}}",
                       ERROR_FORMAT, "does not list it there");
    write_text_file(inside(folder, "two.safetensors"), "garbage, though long enough");
    expect_index_error(folder, "{\"weight_map\":{\"a\":\"two.safetensors\"}}", ERROR_FORMAT,
                       "two.safetensors");
}

static void a_missing_file_is_named(void **state) {
    Safetensors *file;
    expect_error(safetensors_open_folder(*state, &file), ERROR_FILE, "model.safetensors");
    expect_error(safetensors_open(inside(*state, "none"), &file), ERROR_FILE, "none");
    expect_error(safetensors_open(*state, &file), ERROR_FILE, "not a regular file");
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(a_file_of_nothing_is_read),
        cmocka_unit_test(values_are_converted),
        cmocka_unit_test(every_dtype_has_its_size),
        IN_SCRATCH(what_is_written_is_read),
        IN_SCRATCH(a_writer_holds_its_caller_to_the_header),
        IN_SCRATCH(an_empty_tensor_may_have_a_long_axis),
        IN_SCRATCH(writers_share_a_file),
        IN_SCRATCH(flipped_bits_are_found),
        IN_SCRATCH(a_pipe_gets_no_digests),
        IN_SCRATCH(shards_are_one_file),
        IN_SCRATCH(an_index_is_checked),
        IN_SCRATCH(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
