/* Errors of the programs: every exit code of base/status.h, with its one line, and nothing half-written. */
#define _GNU_SOURCE
#include "tests/support/program.h"

#include "base/directories.h"
#include "base/version.h"
#include "data/shard.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "--model=runs/step-00000002 --device=cpu "

static void write_shard(const char *folder, const char *name, int32_t count, int tokens, uint16_t token) {
    enum { MOST = 1000 };
    static struct {
        int32_t header[SHARD_HEADER_BYTES / 4];
        uint16_t tokens[MOST];
    } shard;
    memset(&shard, 0, sizeof shard);
    shard.header[0] = SHARD_MAGIC;
    shard.header[1] = SHARD_VERSION;
    shard.header[2] = count;
    for (int i = 0; i < MOST; i++) shard.tokens[i] = (uint16_t)(i % 200);
    shard.tokens[tokens / 2] = token;
    write_bytes(inside(folder, name), &shard, SHARD_HEADER_BYTES + 2 * (size_t)tokens);
}

static int setup(void **state) {
    if (program_setup(state) != 0) return -1;
    program_succeeds(*state, "train " TINY " --steps=2 --save-every=1 --val-every=0 --out=runs -q");
    return 0;
}

/* ---- 0: fine ---- */

static void test_answers(void **state) {
    static const char *const programs[] = {"train", "infer"};
    for (int i = 0; i < 2; i++) {
        const Ran *ran = program_succeeds(*state, "%s --help", programs[i]);
        expect_text(ran->output, "--model=NAME");
        expect_text(ran->output, "--fused=");
        assert_string_equal(ran->error, "");
    }
}

static void test_version(void **state) {
    static const char *const programs[] = {"train", "infer", "profile"};
    for (int i = 0; i < 3; i++)
        assert_string_equal(program_succeeds(*state, "%s --version", programs[i])->output,
                            FUSEBOX_VERSION "\n");
}

static void test_shards(void **state) {
    write_shard(*state, "good0.bin", 500, 500, 0);
    write_shard(*state, "good1.bin", 700, 700, 255);
    program_succeeds(*state, "train " TINY " '--data=good?.bin' --steps=1 -q --log=shards.jsonl");
    json_t *events = log_read(*state, "shards.jsonl", false);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(events, 0), "data_tokens")), 1200);
    json_decref(events);
}

/* ---- 2: usage ---- */

static void test_usage(void **state) {
    static const char *const cases[][2] = {
        {"unknown option '--laers=3'; did you mean '--layers'?", "train --laers=3"},
        {"did you mean", "train --schedule=cosin"},
        {"did you mean", "train --model=gpt2-smal"},
        {"'somewhere' is neither a folder nor a preset: presets are gpt2-nano, ", "train --model=somewhere"},
        {"without --data this checkout is the text", "train --model=gpt2 --quiet"},
        {"did you mean", "infer --promt=x"},
        {"x.gguf: a GGUF file is not read", "infer --model=x.gguf"},
        {"hf download some/model --local-dir=FOLDER", "infer --model=some/model"},
        {"there is no option --epochs: ", "train --epochs=2"},
        {"there is no option --optimizer: ", "train --optimizer=muon"},
        {"there is no option --optim: ", "train --optim=adamw"},
        {"--prompt is an option of infer", "train --prompt=x"},
        {"--steps is an option of train", "infer --steps=3"},
        {"--steps", "train --steps=ten"},
        {"--steps", "train --steps=0"},
        {"--steps", "train --steps=99999999999999999999"},
        {"--lr", "train --lr=nan"},
        {"--beta2", "train --beta2=1"},
        {"unexpected argument", "train data.txt"},
        {"--fused", "train --fused=atention"},
        {"--width=33 is not a multiple of --heads=2", "train --width=33 --heads=2"},
        {"--seq=64 is longer than --context=32", "train --seq=64 --context=32"},
        {"--seq=64 is longer than the model's context of 32", "train " MODEL "--seq=64"},
        {"--warmup=9 is longer than --steps=5", "train --warmup=9 --steps=5"},
        {"--compare needs operations that run fused", "train --compare --fused=0"},
        {"--save-every has no effect without --out", "train --save-every=5"},
        {"--resume needs --out", "train --resume"},
        {"already holds step-00000002", "train " TINY " --steps=3 --out=runs"},
        {"--dtype=tf32", "train --dtype=tf32 --device=cpu"},
        {"--device=gpu", "train --device=gpu"},
        {"--layers=3 can change a preset only; the model in runs/step-00000002 has 2",
         "train " MODEL "--layers=3 --data=text.txt"},
        {"--ids", "infer " MODEL "--logits=x.safetensors"},
        {"--ids has no effect without --logits", "infer " MODEL "--ids=1,2"},
        {"token 256 is outside the vocabulary", "infer " MODEL "--logits=x.safetensors --ids=1,256"},
        {"a sequence of 40 tokens is longer", "infer " MODEL "--seq=40"},
        {"--prompt and --eval exclude each other", "infer " MODEL "--prompt=x --eval=text.txt"},
        {"--temperature", "infer " MODEL "--prompt=x --temperature=-1"},
        {"--prompt is empty", "infer " MODEL "--prompt="},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Ran *ran = program_refuses(*state, ERROR_USAGE, cases[i][0], "%s", cases[i][1]);
        assert_string_equal(ran->output, "");
    }
    assert_false(path_exists(inside(*state, "x.safetensors")));
}

static void test_usage_in_files(void **state) {
    write_text_file(inside(*state, "unknown.json"), "{\"laers\": 3}");
    write_text_file(inside(*state, "type.json"), "{\"layers\": \"three\"}");
    program_refuses(*state, ERROR_USAGE, "did you mean", "train --config=unknown.json");
    program_refuses(*state, ERROR_USAGE, "layers", "train --config=type.json");
}

/* ---- 3: files ---- */

static void test_files(void **state) {
    static const char *const cases[][2] = {
        {"missing.txt", "train " TINY " --data=missing.txt --steps=1"},
        {"nothing-*.bin", "train " TINY " '--data=nothing-*.bin' --steps=1"},
        {"missing.json", "train " TINY " --config=missing.json"},
        {"nowhere", "train " TINY " --tokenizer=nowhere --steps=1"},
        {"/proc/nowhere", "train " TINY " --out=/proc/nowhere --steps=1"},
        {"nowhere/log.jsonl", "train " TINY " --log=nowhere/log.jsonl --steps=1"},
        {"nowhere/trace", "train " TINY " --hash-trace=nowhere/trace --steps=1"},
        {"there is no checkpoint folder nowhere", "train " TINY " --resume=nowhere --steps=1"},
        {"text.txt is a file, not a checkpoint folder", "train " TINY " --resume=text.txt --steps=1"},
        {"cannot make the folder text.txt: a file of that name exists",
         "train " TINY " --out=text.txt --steps=1"},
        {"config.json", "infer --model=empty"},
        {"there is no folder './nowhere'", "infer --model=./nowhere"},
        {"missing.txt", "infer " MODEL "--eval=missing.txt"},
        {"nowhere/x.safetensors", "infer " MODEL "--logits=nowhere/x.safetensors --ids=1"},
        {"nowhere/x.json", "infer " MODEL "--peaks=0 --json=nowhere/x.json"},
        {"cannot write empty: it is a folder", "infer " MODEL "--logits=empty --ids=1"},
        {"standard output", "infer " MODEL "--prompt=x --tokens=3 -q >/dev/full"},
    };
    expect_ok(directory_make(inside(*state, "empty")));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Ran *ran = program_refuses(*state, ERROR_FILE, cases[i][0], "%s", cases[i][1]);
        if (strncmp(cases[i][1], "infer", 5) == 0) assert_string_equal(ran->output, ""); // not at the end
    }
    assert_false(path_exists(inside(*state, "nowhere")));
}

/* The disk is full while saving: the earlier checkpoint stays, and nothing is left of the new one. */
static void test_unwritable_checkpoint(void **state) {
    program_refuses(*state, ERROR_FILE, "small/step-00000001",
                    "trap '' XFSZ && ulimit -f 100 && train " TINY
                    " --steps=1 --val-every=0 --sample-every=0 --out=small -q");
    const Ran *ran = program_succeeds(*state, "cd small && ls -A | grep -v -e cache -e options.json | wc -l");
    assert_int_equal(strtol(ran->output, NULL, 10), 0);
}

/* ---- 4: malformed and truncated files ---- */

static void test_bad_data(void **state) {
    const char *folder = *state;
    write_text_file(inside(folder, "short.txt"), "only a few words");
    write_text_file(inside(folder, "none.txt"), "");
    write_shard(folder, "truncated.bin", 900, 600, 0);
    write_shard(folder, "long.bin", 500, 600, 0);
    write_shard(folder, "outside.bin", 600, 600, 256);
    write_bytes(inside(folder, "stub.bin"), "\x88\x14\x35\x01", 4);
    write_text_file(inside(folder, "broken.json"), "{\"layers\": 3");
    static const char *const cases[][2] = {
        {"needs 33", "train " TINY " --val-every=0 --data=short.txt --steps=1"},
        {"none.txt is empty", "train " TINY " --data=none.txt --steps=1"},
        {"truncated.bin", "train " TINY " --val-every=0 --data=truncated.bin --steps=1"},
        {"long.bin", "train " TINY " --data=long.bin --steps=1"},
        {"stub.bin", "train " TINY " --data=stub.bin --steps=1"},
        {"outside.bin", "train " TINY " --data=outside.bin --steps=20 -q"},
        {"outside.bin", "infer " MODEL "--eval=outside.bin --batch=1"},
        {"needs 33", "infer " MODEL "--eval=short.txt --seq=32"},
        {"none.txt is empty", "infer " MODEL "--eval=none.txt"},
        {"broken.json", "train --config=broken.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        program_refuses(folder, ERROR_FORMAT, cases[i][0], "%s", cases[i][1]);
}

/* Copies the checkpoint, damages one of its files, and loads it. */
static void expect_damaged(const char *folder, const char *file, const char *damage, const char *command) {
    program_succeeds(folder, "rm -rf bad && cp -r runs bad && cd bad/step-00000002 && %s", damage);
    program_refuses(folder, ERROR_FORMAT, file, "%s", command);
}

static void test_bad_checkpoint(void **state) {
    const char *folder = *state;
    const char *load =
        "infer --model=bad/step-00000002 --device=cpu --peaks=0 --repeats=1 --warmup-runs=0 -q";
    const char *resume = RESUME "=bad/step-00000002 --steps=3 -q";
    expect_damaged(folder, "config.json", "echo '{' >config.json", load);
    expect_damaged(folder, "config.json", "sed -i 's/gpt2/gpt9/' config.json", load);
    expect_damaged(folder, "n_embd", "sed -i 's/\"n_embd\": 32/\"n_embd\": -32/' config.json", load);
    expect_damaged(folder, "model.safetensors", "truncate -s -100 model.safetensors", load);
    expect_damaged(folder, "model.safetensors", "truncate -s 5 model.safetensors", load);
    expect_damaged(folder, "model.safetensors", "echo more >>model.safetensors", load);
    expect_damaged(folder, "the header does not match its digest",
                   "sed -i 's/wpe.weight/wpe.height/' model.safetensors", load);
    /* The weights are checked before memory is planned, which would not suffice. */
    expect_damaged(folder, "lack 'transformer.h.2.ln_1.weight'",
                   "sed -i 's/\"n_layer\": 2/\"n_layer\": 9000/' config.json", load);
    expect_damaged(folder, "has the shape (", "sed -i 's/\"n_embd\": 32/\"n_embd\": 65536/' config.json",
                   load);
    expect_damaged(folder, "training_state.safetensors", "truncate -s 1000 training_state.safetensors",
                   resume);
    expect_damaged(folder, "training_state.safetensors",
                   "sed -i 's/fusebox.step\":\"2\"/fusebox.step\":\"x\"/' training_state.safetensors",
                   resume);
    assert_false(path_exists(inside(folder, "bad/step-00000003")));
}

/* ---- 5: memory ---- */

/* Terabytes each, so that no machine has the memory. */
static void test_memory(void **state) {
    static const char *const runs[] = {
        "train " TINY " --batch=1000000 --context=32768 --steps=1",
        "train " TINY " --layers=10 --width=65536 --steps=1",
        "train " TINY " --compare --batch=1000000 --context=32768",
        "infer --model=gpt2 --device=cpu --peaks=0 --batch=1000000 --seq=1024",
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const Ran *ran = program_refuses(*state, ERROR_MEMORY, "MiB left; use a smaller", "%s", runs[i]);
        expect_text(ran->error, "memory plan\n");
        expect_text(ran->error, "parameters ");
        expect_text(ran->error, "    block.0."); // one of the largest tensors
        expect_text(ran->error, "total ");
        assert_null(strstr(ran->output, "step     1"));
    }
}

/* ---- 6: devices ---- */

static void test_no_gpu(void **state) {
    const Ran *ran = program_run(*state, "train " TINY " --device=cuda --steps=1 -q");
    if (ran->code == 0) skip();
    program_refuses(*state, ERROR_DEVICE, "--device=c", "train " TINY " --device=cuda --steps=1");
    program_refuses(*state, ERROR_DEVICE, "--device=c", "infer " MODEL "--device=cuda");
    program_succeeds(*state, "train " TINY " --device=auto --steps=1 --val-every=0 --sample-every=0 -q");
}

static void test_no_such_gpu(void **state) {
    program_refuses(*state, ERROR_DEVICE, "CUDA", "train " TINY " --device=cuda:99 --steps=1");
}

/* 7, divergence, is in test_train.c and here for infer: weights that are not finite give no finite loss. */
static void test_not_finite(void **state) {
    program_refuses(*state, ERROR_NONFINITE, "the last 5 steps",
                    "train " TINY
                    " --lr=1e30 --warmup=0 --steps=9 --val-every=0 --save-every=1 --out=wild -q");
    program_refuses(*state, ERROR_NONFINITE, "not finite",
                    "infer --model=wild/step-00000001 --device=cpu --eval=validation.txt");
}

/* After all of the above. */
static void test_nothing_left(void **state) {
    const Ran *ran = program_succeeds(*state, "find . -name '*.tmp*' -o -name '*.old'");
    assert_string_equal(ran->output, "");
}

/* Model folders of other programs are found, or named in the error. */
static void test_folders_of_others(void **state) {
    program_succeeds(*state,
                     "mkdir -p hub/refs hub/snapshots && cp -r runs/step-00000002 hub/snapshots/0123abc && "
                     "echo 0123abc >hub/refs/main");
    program_succeeds(*state, "infer --model=hub --device=cpu --prompt=a --tokens=1 -q");
    program_succeeds(*state, "mkdir cache && mv hub cache/models--a--b");
    program_refuses(*state, ERROR_FILE, "--model=cache/models--a--b", "infer --model=cache --device=cpu");
    program_succeeds(
        *state,
        "mkdir foreign && cp runs/step-00000002/config.json foreign && touch foreign/pytorch_model.bin");
    program_refuses(*state, ERROR_FILE, "no model.safetensors, but pytorch_model.bin: convert it",
                    "infer --model=foreign --device=cpu");
    program_succeeds(*state, "touch foreign/model-00001-of-00002.safetensors");
    program_refuses(*state, ERROR_FILE, "parts of a model need model.safetensors.index.json",
                    "infer --model=foreign --device=cpu");
}

/* Every option in the help is in the manual and in the completion. */
static void test_manual_and_completion(void **state) {
    static const char *const programs[] = {"train", "infer"};
    for (int i = 0; i < 2; i++) {
        const char *p = programs[i];
        program_succeeds(*state, "%s --manual >m && %s --completion-bash >b && %s --completion-zsh >z", p, p,
                         p);
        program_succeeds(
            *state,
            "%s --help | sed -n 's/^ .*--\\([a-z0-9-]*\\).*  .*/\\1/p' | grep -v 'help\\|usage\\|version\\|"
            "manual\\|completion' >options && test $(wc -l <options) -gt 30",
            p);
        program_succeeds(*state,
                         "sed 's/\\\\-/-/g' m >plain; while read o; do grep -q -e \"--$o\\\\\\\\f\" plain && "
                         "grep -q -e \"--$o[ =]\" b && grep -q -e \"'--$o[=[]\" z || exit 1; done <options");
        program_succeeds(*state,
                         "! command -v groff || test -z \"$(groff -man -Tascii -ww m 2>&1 >/dev/null)\"");
        program_succeeds(*state, "! command -v zsh || zsh -n z");
    }
    program_succeeds(*state, "profile --manual >m");
    for (const char *const *word = (const char *const[]){"EXAMPLES", "EXIT STATUS", "FILES", NULL}; *word;
         word++)
        program_succeeds(*state,
                         "for p in train infer profile; do $p --manual | grep -q '^.SH %s' || exit 1; done",
                         *word);
    program_succeeds(*state, "! command -v groff || test -z \"$(groff -man -Tascii -ww m 2>&1 >/dev/null)\"");
    program_succeeds(*state,
                     "ln -s $(command -v profile) other && ./other --help | grep -q '^Usage: other diff' "
                     "&& ./other nonsense 2>&1 | grep -q ^other:");
    const Ran *ran =
        program_succeeds(*state, "bash -c 'source b; COMP_WORDS=(fusebox-infer --pool); COMP_CWORD=1; "
                                 "_fusebox_infer; echo \"${COMPREPLY[@]}\"; COMP_WORDS=(fusebox-infer "
                                 "--pooling = f); COMP_CWORD=3; _fusebox_infer; echo \"${COMPREPLY[@]}\"'");
    assert_string_equal(ran->output, "--pooling=\nfirst\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manual_and_completion),
        cmocka_unit_test(test_folders_of_others),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_usage_in_files),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_unwritable_checkpoint),
        cmocka_unit_test(test_bad_data),
        cmocka_unit_test(test_bad_checkpoint),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_gpu),
        cmocka_unit_test(test_no_such_gpu),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_nothing_left),
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
