/* The picture of a comparison: its contents and its errors, from handmade comparisons. */
#include "base/files.h"
#include "base/memory.h"
#include "report/picture.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <string.h>

/* The naive form of the second operation takes longest: its bar has the maximum length. */
static const char comparison[] =
    "{\"schema\":1,\"model\":\"small & <fast>\",\"device\":\"a GPU\",\"library\":\"-\",\"dtype\":\"<bf16\","
    "\"batch\":4,\"seq\":64,\"rounds\":10,\"operations\":["
    "{\"place\":\"norm1\",\"operation\":\"norm\",\"pass\":\"forward\",\"naive\":{\"ms\":2},\"fused\":{\"ms\":"
    "0.5}},"
    "{\"place\":\"loss\",\"operation\":\"loss\",\"pass\":\"backward\",\"naive\":{\"ms\":10},\"fused\":{"
    "\"ms\":0}}],"
    "\"naive\":{\"step_ms\":125},\"fused\":{\"step_ms\":12.5}}";

static void expect_part(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("the picture holds no %s", part);
}

static void shows_both_forms(void **state) {
    const char *from = inside(*state, "compare.json"), *to = inside(*state, "step.svg");
    char *text;
    int64_t length;
    write_text_file(from, comparison);
    expect_ok(picture_write(from, to));
    expect_ok(file_read(to, 1 << 20, &text, &length));
    expect_part(text, "One training step of small &amp; &lt;fast>, naive and fused");
    expect_part(text, "a GPU, &lt;bf16, 4 × 64 tokens; medians of 10 alternating rounds");
    expect_part(text, ">norm1 <tspan class=\"soft\">forward</tspan>");
    expect_part(
        text, "class=\"naive\" x=\"220\" y=\"74\" width=\"500.0\""); // the whole step has a scale of its own
    expect_part(text, "class=\"fused\" x=\"220\" y=\"84\" width=\"50.0\"");
    expect_part(text, "class=\"naive\" x=\"220\" y=\"129\" width=\"100.0\"");
    expect_part(text, "class=\"fused\" x=\"220\" y=\"139\" width=\"25.0\"");
    expect_part(text, "class=\"naive\" x=\"220\" y=\"154\" width=\"500.0\"");
    expect_part(text, ">125 ms<");
    expect_part(text, ">12.5 ms<");
    expect_part(text, ">2.00 ms<");
    expect_part(text, ">0.500 ms<");
    expect_part(text, ">10.00×<");
    expect_part(text, ">4.00×<");
    assert_null(strstr(text, "inf")); // no division by a time of 0
    assert_string_equal(text + length - strlen("</svg>\n"), "</svg>\n");
    memory_free(text);
}

static void refuses_what_is_wrong(void **state) {
    static const struct {
        const char *text, *message;
    } faults[] = {
        {"[]", "not an object"},
        {"{\"model\":\"m\"}", "device: missing"},
        {"{\"model\":\"m\",\"device\":\"d\",\"dtype\":\"bf16\",\"batch\":1,\"seq\":1,\"rounds\":1,"
         "\"operations\":["
         "{\"place\":\"p\",\"pass\":\"forward\",\"naive\":{\"ms\":-1},\"fused\":{\"ms\":1}}],"
         "\"naive\":{\"step_ms\":1},\"fused\":{\"step_ms\":1}}",
         "operations[0].naive.ms"},
        {"{\"model\":\"m\",\"device\":\"d\",\"dtype\":\"bf16\",\"batch\":1,\"seq\":1,\"rounds\":1,"
         "\"operations\":[],"
         "\"naive\":{\"step_ms\":1},\"fused\":{\"step_ms\":1}}",
         "all its times are 0"},
    };
    const char *from = inside(*state, "compare.json"), *to = inside(*state, "step.svg");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        write_text_file(from, faults[i].text);
        expect_error(picture_write(from, to), ERROR_FORMAT, faults[i].message);
        assert_false(path_exists(to));
    }
    expect_error(picture_write(inside(*state, "none.json"), to), ERROR_FILE, "none.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shows_both_forms, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_wrong, scratch_setup, scratch_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
