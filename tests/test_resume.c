/* Runs resumed after a saved step, a signal, or a kill. Their results must equal those of an uninterrupted
 * run bit for bit. */
#include "tests/support/program.h"

#include "base/memory.h"
#include "model/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN                                                                                                  \
    TINY " --val-data=validation.txt --val-every=3 --val-steps=4 --sample-every=4 --sample-tokens=4 "        \
         "--lr=1e-2 "
/* A learning rate that does not depend on the number of steps, because signals come at any step. */
#define ENDLESS TINY " --val-every=0 --sample-every=0 --lr=1e-2 --schedule=constant --warmup=0 "

/* ---- from a saved step ---- */

static void expect_resumes(const char *folder, const char *name, const char *flags) {
    char part[64], whole[64], part_weights[128], whole_weights[128];
    snprintf(part, sizeof part, "%s-part.jsonl", name);
    snprintf(whole, sizeof whole, "%s-whole.jsonl", name);
    snprintf(part_weights, sizeof part_weights, "%s-part/step-00000010", name);
    snprintf(whole_weights, sizeof whole_weights, "%s-whole/step-00000010", name);
    program_succeeds(folder, "train " RUN "--steps=10 --save-every=5 --out=%s-whole --log=%s %s -q", name,
                     whole, flags);
    /* Later checkpoints are removed, as if the run had ended at step 5; --config stays beside its
     * checkpoints. */
    program_succeeds(folder, "cp -r %s-whole %s-part && rm -r %s", name, name, part_weights);
    program_succeeds(folder, RESUME "=%s-part/step-00000005 --out=%s-part --log=%s -q", name, name, part);
    const char *numbers = log_numbers(folder, part, 0);
    assert_int_equal(strncmp(numbers, "step 6 ", 7), 0);
    assert_string_equal(numbers, log_numbers(folder, whole, 5));
    program_succeeds(folder, "diff -r %s %s", part_weights, whole_weights); // the same files, the same bytes
}

static void test_resume_fused(void **state) {
    expect_resumes(*state, "fused", "--fused=1 --workers=2");
}

static void test_resume_naive(void **state) {
    expect_resumes(*state, "naive", "--fused=0 --accum=2");
}

/* The tokenizer names the end of a text. */
static void test_resume_llama(void **state) {
    program_succeeds(*state, "train --train-tokenizer=270 --data=text.txt --out=tokens -q");
    expect_resumes(*state, "llama", "--model=llama-nano --tokenizer=tokens");
}

/* The option is saved with the checkpoint, whose file contains the dtype, too: a different one is refused. */
static void test_resume_narrow(void **state) {
    expect_resumes(*state, "narrow", "--fused=1 --optimizer-dtype=bf16");
    program_refuses(*state, ERROR_USAGE, "its moments are BF16, and this run's are F32",
                    "train --resume=narrow-part/step-00000005 --optimizer-dtype=fp32 -q");
}

static void test_resume_narrow_naive(void **state) {
    expect_resumes(*state, "narrow-naive", "--fused=0 --optimizer-dtype=bf16");
}

static void test_resume_bf16(void **state) {
    expect_resumes(*state, "bf16", "--fused=1 --dtype=bf16 --optimizer-dtype=bf16");
}

static void test_resume_bf16_naive(void **state) {
    expect_resumes(*state, "bf16-naive", "--fused=0 --dtype=bf16");
}

/* The scales of 8-bit products come from the previous step, so a checkpoint contains them. */
static void test_resume_fp8(void **state) {
    expect_resumes(*state, "fp8", "--fused=1,fp8 --accum=2");
}

static void test_resume_cuda_fp8(void **state) {
    program_needs_gpu(*state);
    expect_resumes(*state, "cuda-fp8", "--device=cuda --dtype=bf16 --fused=1,fp8 --accum=2");
}

static void test_resume_cuda_narrow(void **state) {
    program_needs_gpu(*state);
    expect_resumes(*state, "cuda-narrow", "--device=cuda --dtype=bf16 --fused=1 --optimizer-dtype=bf16");
}

static void test_resume_cuda_fused(void **state) {
    program_needs_gpu(*state);
    expect_resumes(*state, "cuda-fused", "--device=cuda --dtype=bf16 --fused=1");
}

static void test_resume_cuda_naive(void **state) {
    program_needs_gpu(*state);
    expect_resumes(*state, "cuda-naive", "--device=cuda --dtype=bf16 --fused=0 --accum=2");
}

/* --resume alone resumes from the newest checkpoint in --out; with the same log, it appends to it. */
static void test_resume_last(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " RUN "--steps=8 --log=whole.jsonl --schedule=constant -q");
    program_succeeds(folder, "train " RUN
                             "--steps=5 --log=last.jsonl --schedule=constant --save-every=2 --out=last -q");
    program_succeeds(folder, "rm -r last/step-00000004");
    program_succeeds(folder, RESUME " --out=last --log=last.jsonl --steps=8 -q");
    assert_string_equal(log_numbers(folder, "last.jsonl", 5), log_numbers(folder, "whole.jsonl", 5));
    const Ran *ran = program_succeeds(folder, RESUME " --out=last");
    expect_text(ran->output, "done: step 8 of 8 was already done; a larger --steps continues");
    program_succeeds(folder, RESUME " --out=last --model=gpt2-nano");
    program_refuses(folder, ERROR_USAGE, "--model=llama-nano is not the model in last/step-00000008",
                    RESUME " --out=last --model=llama-nano");
    program_refuses(folder, ERROR_FILE, "no complete checkpoint in empty",
                    "train " RUN "--resume --out=empty");
}

/* The newest intact checkpoint is used, skipped ones are reported, and new checkpoints replace these. */
static void test_resume_damaged(void **state) {
    const char *folder = *state;
    program_succeeds(folder,
                     "train " TINY " --steps=6 --save-every=2 --val-every=0 --sample-every=0 --keep=0 "
                     "--schedule=constant --out=flipped -q && cp -r flipped once && "
                     "cp flipped/step-00000006/training_state.safetensors whole.safetensors");
    program_succeeds(folder, "printf x | dd of=flipped/step-00000006/model.safetensors bs=1 seek=9000 "
                             "conv=notrunc 2>dd.txt");
    program_succeeds(folder,
                     "printf x | dd of=flipped/step-00000004/training_state.safetensors bs=1 seek=99000 "
                     "conv=notrunc 2>dd.txt");
    const Ran *ran = program_succeeds(folder, RESUME " --out=flipped --steps=8 --save-every=3 -q");
    expect_text(ran->error, "train: step-00000006 is damaged and skipped: model.safetensors: tensor '");
    expect_text(ran->error, "train: step-00000004 is damaged and skipped: training_state.safetensors: ");
    ran = program_succeeds(folder, "cd flipped && ls -d step-*");
    assert_string_equal(ran->output, "step-00000002\nstep-00000006\nstep-00000008\n");
    expect_same_file(folder, "flipped/step-00000006/model.safetensors",
                     "once/step-00000006/model.safetensors");
    program_refuses(
        folder, ERROR_FORMAT, "does not match its digest",
        "printf x | dd of=once/step-00000006/model.safetensors bs=1 seek=9000 conv=notrunc 2>dd.txt; " RESUME
        "=once/step-00000006 -q");
    program_refuses(folder, ERROR_FORMAT, "does not match its digest",
                    "infer --model=once --device=cpu --prompt=x");
    program_succeeds(folder,
                     "rm once/step-00000006/training_state.safetensors once/step-00000004/config.json");
    ran = program_succeeds(folder, RESUME " --out=once --steps=3 -q");
    expect_text(ran->error, "step-00000006 is damaged and skipped: there is no training_state");
    /* Files without digests are detected, too, if they cannot be what was saved. */
    program_succeeds(folder, "sed -i 's/\"n_layer\": 2/\"n_layer\": 3/' flipped/step-00000008/config.json && "
                             "printf x >flipped/step-00000006/tokenizer_config.json");
    ran = program_succeeds(folder, RESUME " --out=flipped --steps=6 -q");
    expect_text(ran->error, "train: step-00000008 is damaged and skipped: flipped/step-00000008: ");
    expect_text(ran->error, "train: step-00000006 is damaged and skipped: flipped/step-00000006/tok");
    expect_same_file(folder, "flipped/step-00000006/training_state.safetensors", "whole.safetensors");
}

/* A checkpoint may be untrusted: its options that name files or delete are ignored. */
static void test_foreign_options(void **state) {
    const char *folder = *state;
    program_succeeds(folder,
                     "train " TINY " --steps=4 --save-every=2 --val-every=0 --seed=7 --out=foreign -q");
    program_succeeds(folder, "train " TINY " --steps=3 --save-every=1 --val-every=0 --keep=0 --out=mine -q");
    write_text_file(
        inside(folder, "foreign/options.json"),
        "{\"data\": \"text.txt\", \"device\": \"cpu\", \"batch\": 2, \"steps\": 4, \"val-every\": 0, "
        "\"seed\": 7, \"out\": \"mine\", \"keep\": 1, \"log\": \"victim\", \"hash-trace\": \"victim\", "
        "\"profile\": \"[3,4)\", \"profile-out\": \"mine\", \"config\": \"victim\"}");
    program_succeeds(folder, "echo precious >victim && ls mine >before");
    program_succeeds(folder, RESUME "=foreign/step-00000002 --out=own --log=own.jsonl -q");
    program_succeeds(folder, RESUME "=foreign/step-00000002 -q");
    program_succeeds(folder, "echo precious | cmp - victim && ls mine | cmp - before");
    program_succeeds(folder,
                     "cmp foreign/step-00000004/model.safetensors own/step-00000004/model.safetensors");
}

/* The run's own files are not written through links out of its folder, nor to a pipe without a reader. */
static void test_foreign_links(void **state) {
    const char *folder = *state;
    static const char *const links[] = {"options.json", "cache", "cache/text.bin"};
    program_succeeds(folder,
                     "train " TINY " --steps=1 --val-every=0 --out=linked -q && echo precious >target");
    for (int i = 0; i < 3; i++) {
        program_succeeds(
            folder,
            "rm -rf linking && cp -r linked linking && rm -rf linking/%s && ln -s ../target linking/%s",
            links[i], links[i]);
        program_refuses(folder, ERROR_FILE, "is a symbolic link", RESUME " --out=linking --steps=2 -q");
        program_succeeds(folder, "echo precious | cmp - target");
    }
    program_succeeds(folder, "rm -rf linking && cp -r linked linking && mkfifo linking/cache/text.bin");
    program_refuses(folder, ERROR_FILE, "is a pipe or a device", RESUME " --out=linking --steps=2 -q");
}

/* An options file that exists but cannot be read is an error. */
static void test_unreadable_options(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " TINY " --steps=1 --val-every=0 --out=unread -q && cd unread && "
                             "rm options.json && mkdir options.json");
    program_refuses(folder, ERROR_FILE, "options.json: Is a directory",
                    RESUME " --out=unread --steps=2 --data=text.txt -q");
}

/* --keep is not restored either: a resumed run removes earlier checkpoints only if asked. */
static void test_resume_keeps(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " TINY " --steps=4 --save-every=1 --val-every=0 --keep=0 --out=kept -q");
    program_succeeds(folder, RESUME " --out=kept --steps=7 -q");
    const Ran *ran = program_succeeds(folder, "cd kept && ls -d step-*");
    assert_string_equal(ran->output, "step-00000001\nstep-00000002\nstep-00000003\nstep-00000004\n"
                                     "step-00000006\nstep-00000007\n");
    program_succeeds(folder, RESUME " --out=kept --keep=2 --steps=8 -q");
    ran = program_succeeds(folder, "cd kept && ls -d step-*");
    assert_string_equal(ran->output, "step-00000007\nstep-00000008\n");
}

/* Resuming from an earlier checkpoint: later ones are discarded with --force, or the run is refused. */
static void test_go_back(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " TINY " --steps=10 --save-every=1 --val-every=0 --keep=0 --out=line -q");
    program_refuses(folder, ERROR_USAGE, "line holds later checkpoints, up to step-00000010",
                    RESUME "=line/step-00000005 --out=./line --keep=1 --steps=8 -q");
    program_refuses(folder, ERROR_USAGE, "fork already holds step-00000001",
                    "train " TINY
                    " --steps=1 --out=fork -q && train --peaks=0 --resume=line/step-00000005 --out=fork -q");
    const Ran *ran = program_succeeds(folder, "cd line && ls -d step-* | wc -l");
    assert_int_equal(strtol(ran->output, NULL, 10), 10);
    program_succeeds(folder, RESUME "=line/step-00000005 --out=line --force --steps=8 --save-every=2 -q");
    ran = program_succeeds(folder, "cd line && ls -d step-*");
    assert_string_equal(ran->output, "step-00000001\nstep-00000002\nstep-00000003\nstep-00000004\n"
                                     "step-00000005\nstep-00000006\nstep-00000008\n");
    program_succeeds(folder, RESUME "=line/step-00000008 --out=line --force --steps=9 -q");
    ran = program_succeeds(folder, "cd line && ls -d step-* | tail -2");
    assert_string_equal(ran->output, "step-00000008\nstep-00000009\n");
}

/* A checkpoint of a version in which parameters with weight decay came first in memory, written by
 *     train --layers=2 --width=4 --heads=1 --context=16 --vocab=256 --batch=2 --data=text.txt --device=cpu
 *         --dtype=fp64 --fused=0 --val-every=0 --sample-every=0 --lr=1e-2 --weight-decay=0.5 --clip=0.5
 *         --steps=6 --save-every=3 --out=decayed-first
 * and the losses of the following steps by the same program. They are computed in fp64 and written in fp32:
 * another order of sums can change them to the neighbouring number. */
static void test_decayed_first(void **state) {
    const double before[3] = {5.40559769, 5.37559175, 5.3748064};
    double losses[3];
    char fixture[4096];
    assert_non_null(realpath("tests/fixtures/decayed-first", fixture));
    program_succeeds(*state, "cp -r %s . && chmod -R u+w decayed-first", fixture);
    program_succeeds(*state, RESUME " --out=decayed-first --log=after.jsonl -q");
    assert_int_equal(log_losses(*state, "after.jsonl", "step", 3, losses, 3), 3);
    for (int i = 0; i < 3; i++) assert_true(fabs(losses[i] - before[i]) <= 0x1p-23 * before[i]);
}

/* A run's folder stands for its newest checkpoint. A minimum rate derived as a tenth of the first rate is
 * derived again from a new rate. */
static void test_resume_run(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " TINY " --steps=2 --save-every=1 --lr=0.01 --out=whole-run -q");
    program_succeeds(folder, "train --device=cpu --resume=whole-run --steps=4 --lr=0.02 --out=next-run -q");
    const Ran *ran =
        program_succeeds(folder, "ls -d next-run/step-* | tail -1; grep -o 'min-lr.*' next-run/options.json");
    assert_string_equal(ran->output, "next-run/step-00000004\nmin-lr\": 0.002,\n");
}

/* ---- signals ---- */

static void expect_saves(const char *folder, int number) {
    program_succeeds(folder, "rm -rf halted halted.jsonl");
    pid_t program = program_start(folder, "train " ENDLESS "--steps=1000000 --out=halted --log=halted.jsonl");
    log_wait(folder, "halted.jsonl", program, "step", 3);
    assert_int_equal(kill(program, number), 0);
    const Ran *ran = program_end(folder, program);
    assert_int_equal(ran->code, 0);
    expect_text(ran->output, "interrupted: median of");
    expect_text(ran->output, "continue with: train --resume --out=halted\n");
    json_t *events = log_read(folder, "halted.jsonl", false);
    int64_t step = log_step(log_last(events, "step"));
    assert_int_equal(log_step(log_last(events, "save")), step);
    assert_int_equal(log_step(log_last(events, "end")), step);
    assert_string_equal(json_string_value(json_object_get(log_last(events, "end"), "reason")), "interrupted");
    json_decref(events);
    program_succeeds(folder, RESUME " --out=halted --log=halted.jsonl --steps=%" PRId64 " -q", step + 4);
    program_succeeds(folder, "train " ENDLESS "--steps=%" PRId64 " --log=through.jsonl -q", step + 4);
    /* Only the steps near the signal are compared. */
    int64_t after = step > 100 ? step - 100 : 0;
    assert_string_equal(log_numbers(folder, "halted.jsonl", after),
                        log_numbers(folder, "through.jsonl", after));
}

static void test_interrupt(void **state) {
    expect_saves(*state, SIGINT);
}

static void test_terminate(void **state) {
    expect_saves(*state, SIGTERM);
}

static void test_interrupted_without_a_folder(void **state) {
    const char *folder = *state;
    pid_t program = program_start(folder, "train " ENDLESS "--steps=1000000 --log=lost.jsonl");
    log_wait(folder, "lost.jsonl", program, "step", 1);
    assert_int_equal(kill(program, SIGINT), 0);
    expect_text(program_end(folder, program)->output, "nothing was saved; --out=FOLDER saves checkpoints\n");
}

/* A second run changes nothing in the first one's folder. */
static void test_two_at_once(void **state) {
    const char *folder = *state;
    pid_t program = program_start(folder, "train " ENDLESS
                                          "--steps=1000000 --save-every=1 --out=both --log=both.jsonl -q");
    log_wait(folder, "both.jsonl", program, "save", 1);
    program_refuses(folder, ERROR_FILE, "another process is writing into both",
                    RESUME " --out=both --steps=1000000");
    program_refuses(folder, ERROR_FILE, "another process is writing into both",
                    "train " TINY " --steps=1 --hash-trace=both.jsonl --out=both");
    assert_true(program_runs(program));
    assert_int_equal(kill(program, SIGTERM), 0);
    assert_int_equal(program_end(folder, program)->code, 0);
}

/* The checkpoint's sizes cannot be changed on resuming; naming the same ones is allowed. */
static void test_other_sizes(void **state) {
    program_succeeds(*state, "train " TINY " --steps=2 --val-every=0 --out=sized -q");
    program_succeeds(*state, RESUME " --out=sized --steps=3 --width=32 --layers=2");
    program_refuses(*state, ERROR_USAGE,
                    "--width=64 can change a preset only; the model in sized/step-00000003 has 32",
                    RESUME " --out=sized --steps=4 --width=64");
}

/* A step of many micro-batches, longer than this test waits. */
static void expect_ends_at_once(const char *folder, int number) {
    program_succeeds(folder, "rm -rf long");
    pid_t program =
        program_start(folder, "train " ENDLESS "--steps=2 --batch=16 --accum=1000000 --out=long -q");
    program_wait_handler(program, number);
    assert_int_equal(kill(program, number), 0);
    wait_ms(100);
    assert_true(program_runs(program));
    /* Two simultaneous signals count as one, and a busy machine may deliver one late. */
    for (int tries = 0; tries < 1200 && program_runs(program); tries++) {
        kill(program, number);
        wait_ms(50);
    }
    assert_false(program_runs(program));
    assert_int_equal(program_end(folder, program)->code, 128 + number);
    assert_false(path_exists(inside(folder, "long/step-00000001")));
}

static void test_second_interrupt(void **state) {
    expect_ends_at_once(*state, SIGINT);
}

static void test_second_terminate(void **state) {
    expect_ends_at_once(*state, SIGTERM);
}

/* ---- kill -9 ---- */

static int64_t latest_step(const char *folder, const char *out) {
    char *latest;
    expect_ok(checkpoint_latest(inside(folder, out), &latest));
    int64_t step = latest ? strtoll(strrchr(latest, '-') + 1, NULL, 10) : -1;
    memory_free(latest);
    return step;
}

/* A run that saves after every step is killed repeatedly at random times: each time the newest checkpoint is
 * at least the last one in the log, and the resumed run equals an uninterrupted one. */
static void test_kill(void **state) {
    enum { KILLS = 5 };
    const char *folder = *state;
    char log[32];
    int64_t step = 0;
    for (int i = 0; i < KILLS; i++) {
        snprintf(log, sizeof log, "killed%d.jsonl", i);
        pid_t program =
            i == 0 ? program_start(folder,
                                   "train " ENDLESS "--steps=1000000 --save-every=1 --out=killed --log=%s -q",
                                   log)
                   : program_start(folder, RESUME " --out=killed --log=%s -q", log);
        log_wait(folder, log, program, "save", step + 2);
        wait_ms(7 * i);
        assert_int_equal(kill(program, SIGKILL), 0);
        assert_int_equal(program_end(folder, program)->code, 128 + SIGKILL);
        json_t *events = log_read(folder, log, true);
        step = latest_step(folder, "killed");
        assert_true(step >= log_step(log_last(events, "save")));
        json_decref(events);
    }
    program_succeeds(folder, RESUME " --out=killed --keep=2 --steps=%" PRId64 " --log=survived.jsonl -q",
                     step + 2);
    program_succeeds(folder, "train " ENDLESS "--steps=%" PRId64 " --log=never.jsonl -q", step + 2);
    const char *numbers = log_numbers(folder, "survived.jsonl", 0);
    assert_true(strlen(numbers) > 0);
    assert_string_equal(numbers, log_numbers(folder, "never.jsonl", step));
    /* Two checkpoints remain, and no file of an interrupted save. */
    const Ran *ran =
        program_succeeds(folder, "cd killed && ls -A | grep -v -e cache -e options.json | wc -l");
    assert_int_equal(strtol(ran->output, NULL, 10), 2);
}

/* The checkpoint records the training data. */
static void test_resume_with_other_facts(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " TINY " --steps=2 --val-every=0 --out=facts -q && "
                             "tail -c +2 text.txt | tr a-y b-z >other.txt");
    program_refuses(folder, ERROR_USAGE, "the run had --seed=", RESUME " --out=facts --steps=3 --seed=77 -q");
    program_refuses(folder, ERROR_USAGE, "a step of the run had",
                    RESUME " --out=facts --steps=3 --accum=7 -q");
    program_refuses(folder, ERROR_USAGE, "--data is not what the run was trained on",
                    RESUME " --out=facts --steps=3 --data=other.txt -q");
    program_succeeds(folder, RESUME " --out=facts --steps=3 --data=other.txt --accum=7 --seed=77 --force -q");
    program_succeeds(folder, RESUME " --out=facts --steps=4 -q --data=other.txt --accum=7 --seed=77");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_fused),
        cmocka_unit_test(test_resume_with_other_facts),
        cmocka_unit_test(test_resume_naive),
        cmocka_unit_test(test_resume_llama),
        cmocka_unit_test(test_resume_narrow),
        cmocka_unit_test(test_resume_narrow_naive),
        cmocka_unit_test(test_resume_bf16),
        cmocka_unit_test(test_resume_bf16_naive),
        cmocka_unit_test(test_resume_fp8),
        cmocka_unit_test(test_resume_cuda_fp8),
        cmocka_unit_test(test_resume_cuda_narrow),
        cmocka_unit_test(test_resume_cuda_fused),
        cmocka_unit_test(test_resume_cuda_naive),
        cmocka_unit_test(test_resume_last),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_terminate),
        cmocka_unit_test(test_interrupted_without_a_folder),
        cmocka_unit_test(test_second_interrupt),
        cmocka_unit_test(test_second_terminate),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_other_sizes),
        cmocka_unit_test(test_resume_damaged),
        cmocka_unit_test(test_foreign_options),
        cmocka_unit_test(test_resume_keeps),
        cmocka_unit_test(test_go_back),
        cmocka_unit_test(test_foreign_links),
        cmocka_unit_test(test_unreadable_options),
        cmocka_unit_test(test_decayed_first),
        cmocka_unit_test(test_resume_run),
    };
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
