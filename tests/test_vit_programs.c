/* The programs with a vision Transformer, from the user's side: training on synthetic pictures, resuming,
 * pictures of another size, a new head, and errors. */
#include "tests/support/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define VIT                                                                                                  \
    "train --model=vit-nano --layers=2 --width=32 --heads=2 --batch=16 --device=cpu --dtype=fp32 --peaks=0 " \
    "-q --lr=2e-3 "

/* Ten classes: by chance top-1 accuracy is a tenth, top-5 accuracy a half. */
static void pictures_are_told_apart(void **state) {
    program_succeeds(*state, VIT "--steps=60 --val-every=60 --val-steps=8 --label-smoothing=0.1 "
                                 "--log=learns.jsonl --out=learned");
    json_t *events = log_read(*state, "learns.jsonl", false);
    const json_t *val = log_last(events, "val");
    double top1 = json_number_value(json_object_get(val, "top1"));
    double top5 = json_number_value(json_object_get(val, "top5"));
    if (!(top1 > 0.3 && top5 >= top1 && top5 <= 1)) fail_msg("top 1 is %g, top 5 is %g", top1, top5);
    json_decref(events);
}

/* With dropout and stochastic depth, whose draws continue; and with any number of workers. */
static void resumed_runs_are_equal(void **state) {
    program_succeeds(*state, VIT "--steps=8 --val-every=4 --val-steps=2 --save-every=4 --dropout=0.1 "
                                 "--stochastic-depth=0.3 --log=whole.jsonl --out=whole");
    program_succeeds(*state, VIT "--steps=8 --val-every=4 --val-steps=2 --save-every=4 --dropout=0.1 "
                                 "--stochastic-depth=0.3 --workers=3 --log=again.jsonl --out=again");
    assert_string_equal(log_numbers(*state, "whole.jsonl", 0), log_numbers(*state, "again.jsonl", 0));
    program_succeeds(*state, "rm -r again/step-00000008 2>/dev/null; " RESUME
                             "=again/step-00000004 --steps=8 --out=resumed --log=resumed.jsonl -q");
    assert_string_equal(log_numbers(*state, "whole.jsonl", 4), log_numbers(*state, "resumed.jsonl", 4));
}

static void forms_agree(void **state) {
    double fused[4], naive[4];
    program_succeeds(*state, VIT "--steps=4 --val-every=0 --log=fused.jsonl");
    program_succeeds(*state, VIT "--steps=4 --val-every=0 --fused=0 --log=naive.jsonl");
    assert_int_equal(log_losses(*state, "fused.jsonl", "step", 0, fused, 4), 4);
    assert_int_equal(log_losses(*state, "naive.jsonl", "step", 0, naive, 4), 4);
    for (int i = 0; i < 4; i++) assert_true(fabs(fused[i] - naive[i]) < 1e-4 * naive[i]);
}

static void folders_serve_other_pictures_and_classes(void **state) {
    const Ran *ran =
        program_succeeds(*state, "train --model=learned --image-size=36 --steps=1 --batch=2 --val-every=0 "
                                 "--device=cpu --peaks=0 --out=larger");
    expect_text(ran->output, "36 x 36 grey pixels");
    ran = program_succeeds(*state, "train --model=learned --new-head --steps=1 --batch=2 --val-every=0 "
                                   "--device=cpu --peaks=0");
    expect_text(ran->output, "with a new head");
    program_refuses(*state, ERROR_USAGE, "--new-head", "train --model=gpt2-nano --new-head --device=cpu");
    program_refuses(*state, ERROR_USAGE, "--image-size",
                    "train --model=gpt2-nano --image-size=32 --device=cpu");
    program_refuses(*state, ERROR_USAGE, "no patch", VIT "--image-size=3");
    program_refuses(*state, ERROR_USAGE, "--tokenizer is for text", VIT "--tokenizer=bytes");
    program_refuses(*state, ERROR_USAGE, "a vision Transformer",
                    "train " TINY " --model=gpt2-nano --stochastic-depth=0.1");
}

static void passes_are_timed_and_compared(void **state) {
    expect_text(program_succeeds(*state, "infer --model=learned --batch=2 --device=cpu --peaks=0")->output,
                "images/s");
    expect_text(program_succeeds(*state, VIT "--compare --batch=2")->output, "");
    expect_text(
        program_succeeds(*state, "infer --model=learned --batch=2 --compare --profile --device=cpu --peaks=0")
            ->output,
        "images/s");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_told_apart), cmocka_unit_test(resumed_runs_are_equal),
        cmocka_unit_test(forms_agree), cmocka_unit_test(folders_serve_other_pictures_and_classes),
        cmocka_unit_test(passes_are_timed_and_compared)};
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
