/* data/safetensors: well-formed files both ways, and malformed ones by category. The files are written out
 * here by hand, after the format's own text, so that a fault that reader and writer share is seen. */
#include "base/directories.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/safetensors.h"
#include "tests/support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20 };

/* A file of a header and `data_size` bytes 0, 1, 2, ... behind it. The caller frees it. */
static uint8_t *make_file(const char *header, size_t header_size, int64_t data_size, int64_t *size) {
    *size = 8 + (int64_t)header_size + data_size;
    uint8_t *file = malloc((size_t)*size);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)(header_size >> 8 * i);
    memcpy(file + 8, header, header_size);
    for (int64_t i = 0; i < data_size; i++) file[8 + (int64_t)header_size + i] = (uint8_t)i;
    return file;
}

static void expect_malformed(const char *header, int64_t data_size, const char *part) {
    int64_t size;
    uint8_t *file = make_file(header, strlen(header), data_size, &size);
    Safetensors *parsed;
    expect_error(safetensors_parse(file, size, "x.safetensors", &parsed), ERROR_FORMAT, part);
    assert_null(parsed);
    free(file);
}

#define TENSOR(name, type, shape, from, to)                                                                  \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"

/* ---- well-formed ---- */

static void a_file_is_read(void **state) {
    (void)state;
    const char *header =
        "{" TENSOR("second", "F32", "2, 1", 5, 13) ",\"__metadata__\":{\"a\":\"b\",\"c\":\"\"}," TENSOR(
            "first", "U8", "5", 0, 5) "," TENSOR("none", "F64", "0,7", 5, 5) "," TENSOR("scalar", "I64", "",
                                                                                        13, 21) "}   ";
    int64_t size;
    uint8_t *file = make_file(header, strlen(header), 21, &size);
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
    uint8_t *file = make_file("{}", 2, 0, &size);
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
    /* A part of an entry, at an odd address. */
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
        uint8_t *file = make_file(header, strlen(header), bytes, &size);
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
    assert_int_equal((uintptr_t)z->data % 8, 0); /* mapped to a page: the header's length is what matters */
    assert_int_equal(*safetensors_find(file, "naïve \"quoted\"")->data, '!');
    assert_int_equal(safetensors_find(file, "a")->d[0], 4);
    assert_string_equal(safetensors_note_value(file, "note"), "ünï\ncode");
    safetensors_close(file);
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

/* ---- malformed, by category ---- */

static void truncated(void **state) {
    (void)state;
    const char *header = "{" TENSOR("a", "F32", "2,3", 0, 24) "," TENSOR("b", "U8", "4", 24, 28) "}";
    int64_t size;
    uint8_t *file = make_file(header, strlen(header), 28, &size);
    for (int64_t cut = 0; cut < size; cut++) {
        uint8_t *exact = malloc((size_t)cut + 1); /* so that a sanitizer sees a byte too far */
        memcpy(exact, file, (size_t)cut);
        exact = realloc(exact, cut ? (size_t)cut : 1);
        Safetensors *parsed;
        Status status = safetensors_parse(exact, cut, "x", &parsed);
        expect_error(status, ERROR_FORMAT, "x");
        free(exact);
    }
    free(file);
}

static void header_length(void **state) {
    (void)state;
    static const uint64_t lengths[] = {100000001, UINT64_MAX, UINT64_MAX - 7, INT64_MAX, UINT64_C(1) << 63,
                                       3,         0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t file[10];
        for (int b = 0; b < 8; b++) file[b] = (uint8_t)(lengths[i] >> 8 * b);
        memcpy(file + 8, "{}", 2);
        Safetensors *parsed;
        expect_error(safetensors_parse(file, sizeof file, "x", &parsed), ERROR_FORMAT, "header");
    }
}

static void not_json(void **state) {
    (void)state;
    static const char *const headers[] = {"{",       "[]",   " {}",        "\"x\"",
                                          "{\"a\"}", "{} x", "{\"a\":1,}", "\xEF\xBB\xBF{}"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        expect_malformed(headers[i], 0, "x.safetensors");
    expect_malformed("{\"__metadata__\":{\"a\":NaN}}", 0, "x.safetensors");
    expect_malformed("{\"__metadata__\":{\"a\":\"\xC3\x28\"}}", 0, "decode byte");
    expect_malformed("{\"\xFF\":{}}", 0, "decode byte");
    expect_malformed("{\"a\\u0000b\":{}}", 0, "x.safetensors");
    const char zero[] = "{}\0\0";
    int64_t size;
    uint8_t *file = make_file(zero, 4, 0, &size);
    Safetensors *parsed;
    expect_error(safetensors_parse(file, size, "x", &parsed), ERROR_FORMAT, "x");
    free(file);
}

static void nested_deeply(void **state) {
    (void)state;
    char *header = malloc(LARGEST + 1);
    memset(header, '[', LARGEST);
    memcpy(header, "{\"a\":", 5);
    header[LARGEST] = 0;
    expect_malformed(header, 0, "depth");
    for (int i = 5; i + 5 <= LARGEST; i += 5) memcpy(header + i, "{\"a\":", 5);
    expect_malformed(header, 0, "depth");
    free(header);
}

static void duplicate_names(void **state) {
    (void)state;
    expect_malformed("{" TENSOR("a", "U8", "1", 0, 1) "," TENSOR("a", "U8", "1", 1, 2) "}", 2, "duplicate");
    expect_malformed("{" TENSOR("a", "U8", "1", 0, 1) "," TENSOR("\\u0061", "U8", "1", 1, 2) "}", 2,
                     "duplicate");
    expect_malformed("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
                     "duplicate");
}

static void overlaps_and_holes(void **state) {
    (void)state;
    expect_malformed("{" TENSOR("a", "U8", "4", 0, 4) "," TENSOR("b", "U8", "4", 3, 7) "}", 7, "overlap");
    expect_malformed("{" TENSOR("a", "U8", "4", 0, 4) "," TENSOR("b", "U8", "4", 0, 4) "}", 4, "overlap");
    expect_malformed("{" TENSOR("a", "U8", "4", 0, 4) "," TENSOR("b", "U8", "0", 2, 2) "}", 4, "overlap");
    expect_malformed("{" TENSOR("a", "U8", "4", 0, 4) "," TENSOR("b", "U8", "4", 5, 9) "}", 9, "hole of 1");
    expect_malformed("{" TENSOR("a", "U8", "4", 1, 5) "}", 5, "hole of 1");
    expect_malformed("{" TENSOR("a", "U8", "4", 0, 4) "}", 6, "2 bytes at the end");
    expect_malformed("{}", 1, "1 bytes at the end");
}

static void offsets(void **state) {
    (void)state;
    expect_malformed("{" TENSOR("a", "U8", "4", 0, 5) "}", 4, "claims bytes 0 to 5");
    expect_malformed("{" TENSOR("a", "U8", "4", 4, 0) "}", 4, "claims");
    expect_malformed("{" TENSOR("a", "U8", "4", -4, 0) "}", 4, "claims");
    expect_malformed("{" TENSOR("a", "U8", "1", 9223372036854775807, 9223372036854775807) "}", 1, "claims");
    expect_malformed("{" TENSOR("a", "U8", "1", 0, 9223372036854775808) "}", 1, "x.safetensors");
    expect_malformed("{" TENSOR("a", "F32", "2", 0, 4) "}", 4, "need 8");
    expect_malformed("{" TENSOR("a", "U8", "2", 0.0, 2.0) "}", 2, "two integers");
    expect_malformed("{" TENSOR("a", "U8", "2", 0, true) "}", 2, "two integers");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0]}}", 2, "two integers");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2,2]}}", 2, "two integers");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":{\"0\":0}}}", 2,
                     "two integers");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, "two integers");
}

static void shapes(void **state) {
    (void)state;
    expect_malformed("{" TENSOR("a", "U8", "4294967296,4294967296", 0, 0) "}", 0, "too large");
    expect_malformed("{" TENSOR("a", "F64", "2305843009213693952", 0, 0) "}", 0, "too large");
    expect_malformed("{" TENSOR("a", "F32", "4611686018427387904,4,0", 0, 0) "}", 0, "too large");
    expect_malformed("{" TENSOR("a", "U8", "-1", 0, 1) "}", 1, "not a whole number");
    expect_malformed("{" TENSOR("a", "U8", "-1,-1", 0, 1) "}", 1, "not a whole number");
    expect_malformed("{" TENSOR("a", "U8", "1.0", 0, 1) "}", 1, "not a whole number");
    expect_malformed("{" TENSOR("a", "U8", "null", 0, 1) "}", 1, "not a whole number");
    expect_malformed("{" TENSOR("a", "U8", "1,1,1,1,1,1,1,1,1", 0, 1) "}", 1, "more than 8 axes");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "no shape");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "no shape");
}

static void dtypes(void **state) {
    (void)state;
    expect_malformed("{" TENSOR("a", "F31", "1", 0, 1) "}", 1, "'F31'");
    expect_malformed("{" TENSOR("a", "f32", "1", 0, 4) "}", 4, "'f32'");
    expect_malformed("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype");
    expect_malformed("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype");
    expect_malformed("{\"a\":[]}", 0, "not an object");
}

static void metadata(void **state) {
    (void)state;
    expect_malformed("{\"__metadata__\":[]}", 0, "not an object");
    expect_malformed("{\"__metadata__\":{\"a\":1}}", 0, "not a string");
    expect_malformed("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "not a string");
}

static void names_in_messages_are_one_line(void **state) {
    (void)state;
    const char *header = "{\"a\\nb\\u001b[31m\":{}}";
    int64_t size;
    uint8_t *file = make_file(header, strlen(header), 0, &size);
    Safetensors *parsed;
    Status status = safetensors_parse(file, size, "x", &parsed);
    assert_null(strpbrk(status_message(status), "\n\033"));
    expect_error(status, ERROR_FORMAT, "a?b?[31m");
    free(file);
}

/* Any byte changed: the answer is a file or an error, and memory stays whole. */
static void damaged_at_random(void **state) {
    (void)state;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("a", "F32", "2,3", 0, 24) "," TENSOR(
        "b", "BF16", "4", 24, 32) "}";
    int64_t size;
    uint8_t *file = make_file(header, strlen(header), 32, &size);
    for (uint64_t i = 0; i < 20000; i++) {
        int64_t place = (int64_t)random_below(1, 0, i, (uint64_t)size);
        uint8_t kept = file[place];
        file[place] = (uint8_t)random_below(1, 1, i, 256);
        Safetensors *parsed;
        Status status = safetensors_parse(file, size, "x", &parsed);
        assert_true(!status == (parsed != NULL));
        float values[6];
        for (int64_t e = 0; parsed && e < safetensors_count(parsed); e++)
            if (safetensors_entry(parsed, e)->count <= 6)
                status_free(safetensors_read(safetensors_entry(parsed, e), 0,
                                             safetensors_entry(parsed, e)->count, values));
        status_free(status);
        safetensors_close(parsed);
        file[place] = kept;
    }
    free(file);
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
        cmocka_unit_test(truncated),
        cmocka_unit_test(header_length),
        cmocka_unit_test(not_json),
        cmocka_unit_test(nested_deeply),
        cmocka_unit_test(duplicate_names),
        cmocka_unit_test(overlaps_and_holes),
        cmocka_unit_test(offsets),
        cmocka_unit_test(shapes),
        cmocka_unit_test(dtypes),
        cmocka_unit_test(metadata),
        cmocka_unit_test(names_in_messages_are_one_line),
        cmocka_unit_test(damaged_at_random),
        IN_SCRATCH(shards_are_one_file),
        IN_SCRATCH(an_index_is_checked),
        IN_SCRATCH(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
