/* --compare of both programs: turns, the table and its file, and what the fused path's gain is made of. */
#include "tests/support/program.h"

#include "run/turns.h"

#include <stdio.h>
#include <string.h>

static double number(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

/* Each path takes each turn of a round equally often, and in every round each path has one turn. */
static void test_turns(void **state) {
    (void)state;
    for (int count = 2; count <= 4; count++) {
        int taken[4][4] = {{0}};
        for (int64_t round = 0; round < 2 * count; round++)
            for (int turn = 0; turn < count; turn++) {
                taken[turns_path(round, turn, count)][turn]++;
                assert_in_range(turns_path(-round, turn, count), 0, count - 1); // warm-up
            }
        for (int path = 0; path < count; path++)
            for (int turn = 0; turn < count; turn++) assert_int_equal(taken[path][turn], 2);
    }
}

/* The ratio's causes are separated; whether two libraries' products are among them. */
static bool expect_split(const Ran *ran) {
    const bool two = strstr(ran->output, "oneDNN") != NULL;
    expect_text(ran->output, "threads: on one thread, ");
    assert_true(two == (strstr(ran->output, "and the products' library") != NULL));
    return two;
}

static void expect_ratios(const json_t *object, bool two) {
    assert_true(number(object, "one_thread_ratio") > 0 && number(object, "threads_ratio") > 0);
    assert_true(two == (json_object_get(object, "forms_ratio") != NULL));
    if (two) assert_true(number(object, "forms_ratio") > 0 && number(object, "products_ratio") > 0);
}

/* With one thread and one library the forms are the only cause. */
static void expect_no_split(const Ran *ran) {
    assert_null(strstr(ran->output, "products:"));
    assert_null(strstr(ran->output, "threads:"));
}

/* --fused=1,fp8 is a third path, beside the fused one: 8 bits differ more from the naive path than bf16 does,
 * in the products alone; casts are rows of their own. */
static void test_fp8(void **state) {
    const Ran *ran = program_succeeds(*state, "train " TINY " --compare --fused=1,fp8 --out=eight");
    expect_text(ran->output, "naive and fused, ");
    expect_text(ran->output, "\nfused and fp8, ");
    expect_text(ran->output, "attention.qkv        cast ");
    expect_text(ran->output, "relative difference from the naive path's");
    json_t *root = json_load_file(inside(*state, "eight/compare.json"), 0, NULL), *row;
    assert_non_null(root);
    assert_true(number(root, "fp8_ratio") >= number(root, "fp8_ratio_low"));
    assert_true(number(root, "fp8_ratio") <= number(root, "fp8_ratio_high"));
    assert_true(number(json_object_get(root, "fp8"), "step_ms") > 0);
    int products = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "operations"), i, row) {
        assert_true(number(json_object_get(row, "fp8"), "ms") >= 0);
        if (strcmp(json_string_value(json_object_get(row, "place")), "attention.qkv") != 0) continue;
        assert_true(number(row, "fp8_difference") > 4 * number(row, "difference"));
        products++;
    }
    assert_int_equal(products, 2); // forward and backward
    const json_t *alone = json_object_get(root, "fp8_alone");
    assert_int_equal(json_array_size(alone), 4); // a block's layers
    json_array_foreach(alone, i, row)
        assert_string_equal(json_string_value(json_object_get(row, "operation")), "cast");
    json_decref(root);
}

static void test_steps(void **state) {
    const Ran *ran = program_succeeds(*state, "train " TINY " --compare --out=compared --threads=2");
    const bool two = expect_split(ran);
    expect_text(ran->output, "ratio  differ\n");
    expect_text(ran->output, "backward (sum)");
    expect_text(ran->output, "whole step, timed with nothing else on");
    expect_text(ran->output, "peak memory: naive");
    json_t *root = json_load_file(inside(*state, "compared/compare.json"), 0, NULL), *row;
    assert_non_null(root);
    static const char *const numbers[] = {"flops", "least_bytes", "ratio"};
    static const char *const path[] = {"ms",     "ms_low", "ms_high",       "launches",
                                       "tflops", "tbps",   "share_of_limit"};
    static const char *const whole[] = {"forward_ms", "backward_ms", "optimizer_ms", "step_ms", "peak_bytes"};
    static const char *const forms[] = {"naive", "fused"};
    double launches[2] = {0};
    size_t i;
    expect_ratios(root, two);
    const json_t *rows = json_object_get(root, "operations");
    assert_true(json_array_size(rows) >= 20); // ten places, forward and backward
    json_array_foreach(rows, i, row) {
        for (int k = 0; k < 3; k++) number(row, numbers[k]);
        for (int form = 0; form < 2; form++) {
            for (int k = 0; k < 7; k++) assert_true(number(json_object_get(row, forms[form]), path[k]) >= 0);
            launches[form] += number(json_object_get(row, forms[form]), "launches");
        }
        const json_t *difference = json_object_get(row, "difference");
        if (json_is_number(difference)) assert_true(number(row, "difference") < 1e-2);
    }
    assert_true(launches[0] > launches[1]);
    for (int form = 0; form < 2; form++)
        for (int k = 0; k < 5; k++) assert_true(number(json_object_get(root, forms[form]), whole[k]) > 0);
    assert_true(number(root, "ratio_low") <= number(root, "ratio") &&
                number(root, "ratio") <= number(root, "ratio_high"));
    json_decref(root);
}

#define PASS " --device=cpu --peaks=0 --batch=2 --seq=16 --repeats=4 --warmup-runs=1 --compare "

static void test_passes(void **state) {
    const Ran *ran = program_succeeds(*state, "infer" PASS "--threads=2 --json=pass.json");
    const bool two = expect_split(ran);
    json_t *root = json_load_file(inside(*state, "pass.json"), 0, NULL);
    const json_t *forms = json_object_get(root, "profiles");
    expect_ratios(json_array_get(forms, 1), two);
    assert_null(json_object_get(json_array_get(forms, 0), "threads_ratio"));
    json_decref(root);
}

/* Of an operation by itself, too; without products the library is no cause. */
static void test_operation_alone(void **state) {
    expect_split(program_succeeds(*state, "infer --op=linear" PASS "--threads=2"));
    const Ran *ran = program_succeeds(*state, "infer --op=norm" PASS "--threads=2");
    expect_text(ran->output, "threads: on one thread, ");
    assert_null(strstr(ran->output, "products:"));
}

static void test_one_cause(void **state) {
    expect_no_split(program_succeeds(*state, "FUSEBOX_ONEDNN=none train " TINY " --compare --threads=1"));
    expect_no_split(program_succeeds(*state, "FUSEBOX_ONEDNN=none infer" PASS "--threads=1"));
    expect_no_split(program_succeeds(*state, "FUSEBOX_ONEDNN=none infer --op=linear" PASS "--threads=1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_operation_alone),
        cmocka_unit_test(test_one_cause),
    };
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
