/* data/text_map: text is read, compressed or not; other formats are refused by name. */
#include "base/gzip.h"
#include "data/text_map.h"
#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

static void expect_text_of(const char *path, const char *text, size_t length) {
    FileMap map;
    expect_ok(text_map(path, &map));
    assert_int_equal(map.size, length);
    assert_memory_equal(map.data, text, length);
    file_unmap(&map);
}

static void expect_refused(const char *folder, const char *bytes, size_t length, const char *part) {
    FileMap map;
    const char *path = inside(folder, "refused");
    write_bytes(path, bytes, length);
    expect_error(text_map(path, &map), ERROR_FORMAT, part);
    assert_true(map.data == NULL && map.size == 0);
    expect_ok(gzip_write(inside(folder, "refused.gz"), bytes, (int64_t)length));
    expect_error(text_map(inside(folder, "refused.gz"), &map), ERROR_FORMAT, part);
}

static void text_is_read(void **state) {
    static const char *const texts[] = {"", "plain\n", "na\xC3\xAFve \xE2\x82\xAC\n",
                                        "ends in half a euro \xE2\x82"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *path = inside(*state, "text");
        write_bytes(path, texts[i], strlen(texts[i]));
        expect_text_of(path, texts[i], strlen(texts[i]));
    }
}

static void gzip_is_read(void **state) {
    enum { LENGTH = 1 << 20 };
    char *text = calloc(1, LENGTH);
    for (int64_t i = 0; i < LENGTH; i++) text[i] = (char)('a' + (i % 7919 * i % 8191) % 26);
    const char *path = inside(*state, "text.gz");
    expect_ok(gzip_write(path, text, LENGTH));
    expect_text_of(path, text, LENGTH);
    FileMap map;
    expect_ok(file_map(path, &map)); // two members, as cat makes them; and truncated
    char *twice = malloc(2 * (size_t)map.size);
    size_t size = (size_t)map.size;
    memcpy(twice, map.data, size);
    memcpy(twice + size, map.data, size);
    file_unmap(&map);
    write_bytes(path, twice, size - 9);
    expect_error(text_map(path, &map), ERROR_FORMAT, "damaged, or end too early");
    write_bytes(path, twice, 2 * size);
    expect_ok(text_map(path, &map));
    assert_int_equal(map.size, 2 * LENGTH);
    file_unmap(&map);
    free(twice);
    free(text);
}

/* 66 KB that decompress to 67 MB. */
static void what_only_fills_the_memory_is_refused(void **state) {
    enum { LENGTH = (1 << 26) + 1 };
    char *text = malloc(LENGTH);
    const char *path = inside(*state, "text.gz");
    FileMap map;
    memset(text, 'a', LENGTH);
    expect_ok(gzip_write(path, text, LENGTH - 1));
    expect_ok(text_map(path, &map));
    file_unmap(&map);
    expect_ok(gzip_write(path, text, LENGTH));
    expect_error(text_map(path, &map), ERROR_FORMAT, "more than 64 times its size");
    free(text);
}

static void what_is_no_text_is_refused(void **state) {
    char tar[512] = "name";
    memcpy(tar + 257, "ustar", 5);
    const char *folder = *state;
    expect_refused(folder, "PK\x03\x04rest", 8, "a zip archive");
    expect_refused(folder, "PAR1rest", 8, "a Parquet file");
    expect_refused(folder, "\x93NUMPY\x01", 7, "a NumPy array");
    expect_refused(folder, "\x02\0\0\0\0\0\0\0{\"}", 11, "a safetensors file");
    expect_refused(folder, tar, sizeof tar, "a tar archive");
    expect_refused(folder, "\xFF\xFEh\0i\0", 6, "text in UTF-16");
    expect_refused(folder, "h\0i\0", 4, "zero byte at 1");
    expect_refused(folder, "caf\xE9 au lait", 12, "not UTF-8: byte 3 is 0xE9");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_is_read, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(gzip_is_read, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(what_only_fills_the_memory_is_refused, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(what_is_no_text_is_refused, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
