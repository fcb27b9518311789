/* ./infer --op from the user's side: every operation by itself, in each of its passes. */
#include "tests/support/program.h"

#include "kernels/ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES "--batch=1 --seq=32 --repeats=6 --warmup-runs=1 --device=cpu --dtype=fp32 --peaks=0 --compare"

/* The text after `name`. */
static double number_behind(const char *text, const char *name) {
    const char *at = strstr(text, name);
    if (!at) fail_msg("no \"%s\" in:\n%s", name, text);
    return strtod(at + strlen(name), NULL);
}

/* Median and calls of a form's line, which begins with its name. */
static void read_form(const char *text, const char *name, double *ms, double *calls) {
    char line[64], low[16], to[8], high[16];
    snprintf(line, sizeof line, "\n%s", name);
    const char *at = strstr(text, line);
    if (!at) fail_msg("no line of \"%s\" in:\n%s", name, text);
    at += strlen(line);
    if (strncmp(at, " (no fused form here)", 21) == 0) at += 21;
    assert_int_equal(sscanf(at, "%lf %15s %7s %15s %lf", ms, low, to, high, calls), 5);
    assert_true(strtod(low, NULL) <= *ms && *ms <= strtod(high, NULL));
}

static void expect_measured(const char *folder, const char *name, const char *pass, bool composed) {
    double naive, fused, naive_calls, fused_calls;
    const Ran *ran = program_succeeds(folder, "infer --op=%s --pass=%s " SIZES, name, pass);
    read_form(ran->output, "naive", &naive, &naive_calls);
    read_form(ran->output, "fused", &fused, &fused_calls);
    assert_true(naive > 0 && fused > 0);
    assert_true(naive_calls >= 1 && fused_calls >= 1 && fused_calls <= naive_calls);
    assert_true(number_behind(ran->output, "at least ") > 0);
    expect_text(ran->output, "naive over fused: ");
    if (composed) return;
    /* Sums of at most 512 terms, of random signs: 512 roundings, each of 2^-24 of a partial sum. */
    const double difference = number_behind(ran->output, "largest difference of an output: ");
    if (!(difference < 512 * 0x1p-24)) fail_msg("%s %s: the forms differ by %g", name, pass, difference);
}

static void test_each_operation(void **state) {
    for (int i = 0; i < OP_COUNT; i++) {
        if (i == OP_COMM) continue;
        expect_measured(*state, operation_name((Operation)i), "forward", i == OP_DECODE);
        expect_text(program_succeeds(*state, "infer --op=help")->output, operation_name((Operation)i));
    }
}

static void test_each_backward_pass(void **state) {
    static const Operation operations[] = {OP_EMBED,     OP_PATCH,  OP_DROPOUT, OP_NORM, OP_LINEAR,
                                           OP_ATTENTION, OP_GATHER, OP_POOL,    OP_LOSS, OP_ACCUMULATE};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        expect_measured(*state, operation_name(operations[i]), "backward", false);
}

/* x and skip are read, r and y written, all of 1024 rows; besides two rows are read and two columns
 * written. */
static void test_least_bytes(void **state) {
    const Ran *ran =
        program_succeeds(*state, "infer --op=norm --batch=8 --seq=128 --width=64 --repeats=1 --warmup-runs=0 "
                                 "--device=cpu --dtype=fp32 --peaks=0");
    const double least = 4.0 * (4 * 1024 * 64 + 2 * 64 + 2 * 1024);
    assert_true(fabs(number_behind(ran->output, "at least ") * 1e6 - least) < 1e3);
    expect_text(ran->output, "batch 8, seq 128, width 64");
    assert_null(strstr(ran->output, "\nnaive ")); // without --compare
}

/* With the limits of this machine, which are the longest part of the report. */
static void test_width(void **state) {
    const Ran *ran =
        program_succeeds(*state, "infer --op=pool --batch=1 --seq=8 --width=32 --repeats=2 --device=cpu");
    expect_text(ran->output, "limits measured here: ");
    expect_text(ran->output, "a cache.\n");
    expect_width(ran->output);
}

/* Only the requested pass is reported: it has no primitives of the forward pass. */
static void test_primitives(void **state) {
    const Ran *forward = program_succeeds(*state, "infer --op=linear " SIZES);
    expect_text(forward->output, "\n  bias add ");
    assert_null(strstr(forward->output, "weight gradient"));
    const Ran *backward = program_succeeds(*state, "infer --op=linear --pass=backward " SIZES);
    expect_text(backward->output, "\n  weight gradient ");
    assert_null(strstr(backward->output, "bias add"));
}

static void test_refusals(void **state) {
    program_refuses(*state, ERROR_USAGE, "did you mean 'norm'?", "infer --op=nrom");
    program_refuses(*state, ERROR_USAGE, "cast has no backward pass",
                    "infer --op=cast --pass=backward --peaks=0");
    program_refuses(*state, ERROR_USAGE, "--gpus=2", "infer --op=comm --peaks=0 --device=cpu");
    program_refuses(*state, ERROR_USAGE, "heads of 32 columns", "infer --op=norm --width=100");
    program_refuses(*state, ERROR_USAGE, "more than any memory",
                    "infer --op=norm --batch=1048576 --seq=16777216");
    program_refuses(*state, ERROR_USAGE, "--batch=1", "infer --op=decode --device=cpu --peaks=0");
    program_refuses(*state, ERROR_USAGE, "no effect without --op", "infer --width=64");
    program_refuses(*state, ERROR_USAGE, "exclude each other", "infer --op=norm --prompt=a");
    program_refuses(*state, ERROR_USAGE, "exclude each other", "infer --op=norm --profile");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_operation), cmocka_unit_test(test_each_backward_pass),
        cmocka_unit_test(test_least_bytes),    cmocka_unit_test(test_primitives),
        cmocka_unit_test(test_width),          cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
