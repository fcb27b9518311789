/* data/safetensors: malformed headers, by category, handwritten from the format's specification. */
#include "base/random.h"
#include "data/safetensors.h"
#include "tests/support/expect.h"
#include "tests/support/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LARGEST = 1 << 20 };

static void expect_malformed(const char *header, int64_t data_size, const char *part) {
    int64_t size;
    uint8_t *file = tensors_file(header, strlen(header), data_size, &size);
    Safetensors *parsed;
    expect_error(safetensors_parse(file, size, "x.safetensors", &parsed), ERROR_FORMAT, part);
    assert_null(parsed);
    free(file);
}

static void truncated(void **state) {
    (void)state;
    const char *header = "{" TENSOR("a", "F32", "2,3", 0, 24) "," TENSOR("b", "U8", "4", 24, 28) "}";
    int64_t size;
    uint8_t *file = tensors_file(header, strlen(header), 28, &size);
    for (int64_t cut = 0; cut < size; cut++) {
        uint8_t *exact = malloc((size_t)cut + 1); /* exact size, so that a sanitizer detects reads beyond
                                                   * it */
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
    expect_malformed("{\"__metadata__\":{\"a\":\"\xC3\x28\"}}", 0, "is not UTF-8");
    expect_malformed("{\"\xFF\":{}}", 0, "is not UTF-8");
    expect_malformed("{\"a\\u0000b\":{}}", 0, "x.safetensors");
    const char zero[] = "{}\0\0";
    int64_t size;
    uint8_t *file = tensors_file(zero, 4, 0, &size);
    Safetensors *parsed;
    expect_error(safetensors_parse(file, size, "x", &parsed), ERROR_FORMAT, "x");
    free(file);
}

static void nested_deeply(void **state) {
    (void)state;
    char *header = malloc(LARGEST + 1);
    memset(header, '[', LARGEST);
    memcpy(header, "{\"a\":{\"x\":", 10);
    header[LARGEST] = 0;
    expect_malformed(header, 0, "depth");
    for (int i = 10; i + 5 <= LARGEST; i += 5) memcpy(header + i, "{\"a\":", 5);
    expect_malformed(header, 0, "depth");
    free(header);
}

/* Numbers that jansson or another lenient reader would accept, but serde_json refuses. */
static void numbers_are_strict(void **state) {
    (void)state;
    static const char *const numbers[] = {"-0", "+1", "01", "1e0", "1.", ".5", "0x1", "1e", "-", "1\0", "00"};
    char header[200];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t size;
        Safetensors *parsed;
        for (int where = 0; where < 2; where++) {
            /* The zero byte of "1\0" is part of the header. */
            size_t extra = i == 9,
                   at = (size_t)snprintf(header, sizeof header, "%s%s",
                                         where ? "{\"a\":{\"shape\":[0," : "{\"a\":{\"data_offsets\":[0,",
                                         numbers[i]) +
                        extra;
            at += (size_t)snprintf(header + at, sizeof header - at, "],\"dtype\":\"U8\",%s}}",
                                   where ? "\"data_offsets\":[0,0]" : "\"shape\":[0]");
            uint8_t *file = tensors_file(header, at, 1, &size);
            expect_error(safetensors_parse(file, size, "x", &parsed), ERROR_FORMAT, "x: ");
            free(file);
        }
        if (i == 0 || i == 3) continue; /* well-formed, in an ignored field */
        size_t at = (size_t)snprintf(header, sizeof header, "{\"a\":{\"x\":%s", numbers[i]) + (i == 9);
        at += (size_t)snprintf(header + at, sizeof header - at,
                               ",\"dtype\":\"U8\",\"shape\":[0],"
                               "\"data_offsets\":[0,0]}}");
        uint8_t *file = tensors_file(header, at, 0, &size);
        expect_error(safetensors_parse(file, size, "x", &parsed), ERROR_FORMAT, "x: header, byte");
        free(file);
    }
    expect_malformed("{\"a\":{\"x\":1e999,\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
                     "too large");
}

static void strings_are_strict(void **state) {
    (void)state;
    static const char *const strings[] = {"\\x", "\\u12g4", "\\ud800", "\\udc00", "\\ud800\\u0041",
                                          "\t",  "\\"};
    char header[100];
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        snprintf(header, sizeof header, "{\"__metadata__\":{\"%s\":\"\"}}", strings[i]);
        expect_malformed(header, 0, "x.safetensors: header, byte");
    }
    const char *good = "{\"__metadata__\":{\"\\ud83d\\ude00\\u00e9\\u20AC\\/\\b\\f\\n\\r\\t\\\"\":\"x\"}}";
    int64_t size;
    uint8_t *file = tensors_file(good, strlen(good), 0, &size);
    Safetensors *parsed;
    expect_ok(safetensors_parse(file, size, "x", &parsed));
    assert_string_equal(safetensors_note(parsed, 0).key, "\U0001F600\u00e9\u20ac/\b\f\n\r\t\"");
    safetensors_close(parsed);
    free(file);
    expect_malformed("{\"__metadata__\":{\"a\":\"b\",\"\\u0061\":\"c\"}}", 0, "duplicate");
}

/* A header may be long; its cost is bounded by its bytes, whatever its contents. */
static void a_header_costs_little(void **state) {
    (void)state;
    enum { BYTES = 16 << 20 };
    static const char *const repeated[] = {"0,", "[],", "{\"\":0},", "\"\","};
    char *header = malloc(BYTES);
    for (int i = 0; i < 4; i++) {
        struct rusage before, after;
        size_t length = strlen(repeated[i]), at = (size_t)sprintf(header, "{\"a\":{\"x\":[0,");
        for (; at + length + 1 < BYTES; at += length) memcpy(header + at, repeated[i], length);
        int64_t size;
        uint8_t *file = tensors_file(header, at, 0, &size);
        Safetensors *parsed;
        getrusage(RUSAGE_SELF, &before);
        expect_error(safetensors_parse(file, size, "x", &parsed), ERROR_FORMAT, "header, byte");
        getrusage(RUSAGE_SELF, &after);
        assert_true(after.ru_maxrss - before.ru_maxrss <= 4 * (BYTES >> 10));
        free(file);
    }
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
    expect_malformed("{" TENSOR("a", "U8", "4", -4, 0) "}", 4, "two integers");
    expect_malformed("{" TENSOR("a", "U8", "1", 9223372036854775807, 9223372036854775807) "}", 1, "claims");
    expect_malformed("{" TENSOR("a", "U8", "1", 0, 9223372036854775808) "}", 1, "x.safetensors");
    expect_malformed("{" TENSOR("a", "F32", "2", 0, 4) "}", 4, "need 8");
    expect_malformed("{" TENSOR("a", "U8", "2", 0.0, 2.0) "}", 2, "two integers");
    expect_malformed("{" TENSOR("a", "U8", "2", 0, true) "}", 2, "two integers");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0]}}", 2, "two integers");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2,2]}}", 2, "two integers");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":{\"0\":0}}}", 2,
                     "two integers");
    expect_malformed("{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, "no data_offsets");
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
    uint8_t *file = tensors_file(header, strlen(header), 0, &size);
    Safetensors *parsed;
    Status status = safetensors_parse(file, size, "x", &parsed);
    assert_null(strpbrk(status_message(status), "\n\033"));
    expect_error(status, ERROR_FORMAT, "a?b?[31m");
    free(file);
}

/* With any byte changed the result is a file or an error, without memory errors. */
static void damaged_at_random(void **state) {
    (void)state;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("a", "F32", "2,3", 0, 24) "," TENSOR(
        "b", "BF16", "4", 24, 32) "}";
    int64_t size;
    uint8_t *file = tensors_file(header, strlen(header), 32, &size);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated),
        cmocka_unit_test(header_length),
        cmocka_unit_test(not_json),
        cmocka_unit_test(nested_deeply),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(strings_are_strict),
        cmocka_unit_test(a_header_costs_little),
        cmocka_unit_test(duplicate_names),
        cmocka_unit_test(overlaps_and_holes),
        cmocka_unit_test(offsets),
        cmocka_unit_test(shapes),
        cmocka_unit_test(dtypes),
        cmocka_unit_test(metadata),
        cmocka_unit_test(names_in_messages_are_one_line),
        cmocka_unit_test(damaged_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
