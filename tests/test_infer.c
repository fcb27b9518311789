/* The program infer from the user's side: the profile of a forward pass, text, losses, logits. */
#include "tests/support/program.h"

#include "data/safetensors.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "--model=runs/step-00000200 --device=cpu --dtype=fp32 "

/* A model trained on some of the words, so that its output depends on earlier tokens and an incomplete cache
 * would show. */
static int setup(void **state) {
    if (program_setup(state) != 0) return -1;
    program_succeeds(*state, "train " TINY
                             " --dtype=fp32 --steps=200 --lr=1e-2 --val-data=validation.txt --val-every=200 "
                             "--val-steps=4 --sample-every=0 --out=runs --log=log.jsonl -q");
    return 0;
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number \"%s\"", key);
    assert_true(isfinite(json_number_value(value)));
    return json_number_value(value);
}

/* ---- profile ---- */

static void test_profile(void **state) {
    program_succeeds(*state,
                     "FUSEBOX_ONEDNN=none infer " MODEL
                     "--batch=2 --repeats=1 --peaks=0"); // OpenBLAS multiplies
    const Ran *ran = program_succeeds(*state, "infer " MODEL "--batch=2 --repeats=2 --json=profile.json");
    expect_text(ran->output, "forward pass of runs/step-00000200");
    expect_text(ran->output, "batch 2, seq 32: operations, medians of 2 passes");
    expect_text(ran->output, "sum of operations");
    expect_text(ran->output, "tok/s");
    json_t *root = json_load_file(inside(*state, "profile.json"), 0, NULL), *row;
    const json_t *profiles = json_object_get(root, "profiles"), *profile = json_array_get(profiles, 0);
    assert_int_equal(json_array_size(profiles), 1);
    assert_true(number(root, "peak_flops") >= 0); // 0 if other programs used the cores
    static const char *const numbers[] = {"ms", "ms_low", "ms_high", "tokens_per_s", "flops", "least_bytes"};
    for (int i = 0; i < 6; i++) assert_true(number(profile, numbers[i]) > 0);
    assert_int_equal(number(profile, "batch"), 2);
    size_t i;
    const json_t *rows = json_object_get(profile, "operations");
    assert_true(json_array_size(rows) >= 10);
    json_array_foreach(rows, i, row) assert_true(number(row, "ms") >= 0 && number(row, "launches") >= 1);
    json_decref(root);
}

/* A run's folder stands for its latest checkpoint. */
static void test_run_folder(void **state) {
    const Ran *step = program_succeeds(*state, "infer " MODEL "--eval=validation.txt");
    const Ran *run =
        program_succeeds(*state, "infer --model=runs --device=cpu --dtype=fp32 --eval=validation.txt");
    assert_string_equal(step->output, run->output);
}

/* A folder's name may be untrusted, and is printed without control characters. */
static void test_tamed_names(void **state) {
    program_succeeds(*state, "ln -s runs 'e\033[31m' && ln -s ../validation.txt runs/'v\033[31m.csv'");
    static const char *const commands[] = {
        "infer --model='e\033[31m' --device=cpu --batch=1 --repeats=1 --peaks=0",
        "infer --model='e\033[31m' --device=cpu --batch=1 --peaks=0 --profile",
        "infer --model='e\033[31m' --device=cpu --eval='e\033[31m/v\033[31m.csv'",
        "train --resume='e\033[31m/step-00000200' --steps=201 --force --data='e\033[31m/v\033[31m.csv'"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const Ran *ran = program_succeeds(*state, "%s", commands[i]);
        assert_null(strchr(ran->output, '\033'));
        assert_null(strchr(ran->error, '\033'));
        expect_text(ran->output, "e?[31m/");
    }
}

static void test_sweep(void **state) {
    static const char *const paths[] = {"naive", "fused"};
    program_succeeds(*state,
                     "infer " MODEL "--batch-sizes=1,3 --seq-lens=8,32 --compare --repeats=2 --warmup-runs=1 "
                     "--peaks=0 --json=sweep.json -q");
    json_t *root = json_load_file(inside(*state, "sweep.json"), 0, NULL), *profile;
    const json_t *profiles = json_object_get(root, "profiles");
    assert_int_equal(json_array_size(profiles), 8);
    size_t i;
    json_array_foreach(profiles, i, profile) {
        assert_int_equal(number(profile, "batch"), i < 4 ? 1 : 3);
        assert_int_equal(number(profile, "seq"), i % 4 < 2 ? 8 : 32);
        assert_string_equal(json_string_value(json_object_get(profile, "form")), paths[i % 2]);
    }
    json_decref(root);
}

/* --decode: a line per batch size, whose figures agree. */
static void test_decode(void **state) {
    static const int sizes[] = {2, 1, 5};
    double first = 0;
    const Ran *ran = program_succeeds(
        *state, "infer " MODEL "--decode=6 --seq=26 --batch-sizes=2,1,5"); // the whole context of 32
    const char *at = strstr(ran->output, "times the first\n");
    expect_text(ran->output, "decoding 6 tokens after 26 with ");
    assert_non_null(at);
    for (int i = 0; i < 3; i++) {
        double batch, ms, least, most, rate, times;
        at = strchr(at, '\n') + 1;
        assert_int_equal(sscanf(at, "%lf %lf %lf-%lf %lf %lf", &batch, &ms, &least, &most, &rate, &times), 6);
        assert_true(batch == sizes[i] && 0 < least && least <= ms && ms <= most);
        if (i == 0) first = rate;
        // Printed figures are rounded.
        const double ms_digits = 0.0006, rate_digits = 0.6, times_digits = 0.006;
        assert_true(fabs(1e3 * batch - rate * ms) <= rate * ms_digits + ms * rate_digits);
        assert_true(fabs(rate - times * first) <= first * times_digits + (1 + times) * rate_digits);
    }
    program_refuses(*state, ERROR_USAGE, "longer than the model's context of 32",
                    "infer " MODEL "--decode=7 --seq=26");
    program_refuses(*state, ERROR_USAGE, "--decode and --sweep", "infer " MODEL "--decode=7 --sweep");
    program_refuses(*state, ERROR_USAGE, "--decode needs a decoder-only model",
                    "infer --model=bert-nano --device=cpu --decode=7");
}

/* Naive and fused side by side, with the ratio of their times and the differences of their outputs. */
static void test_compare(void **state) {
    const Ran *ran =
        program_succeeds(*state, "infer " MODEL "--batch=2 --compare --repeats=6 --warmup-runs=1 "
                                 "--peaks=0 --json=both.json");
    expect_text(ran->output, "naive ms");
    expect_text(ran->output, "whole pass, timed with nothing else on");
    expect_text(ran->output, "its ratio is the median of 6 pairs");
    expect_text(ran->output, "peak memory: naive ");
    expect_text(ran->output, "95% interval");
    assert_null(strstr(ran->output, "optimizer"));
    json_t *root = json_load_file(inside(*state, "both.json"), 0, NULL), *row;
    const json_t *profiles = json_object_get(root, "profiles"), *fused = json_array_get(profiles, 1);
    assert_int_equal(json_array_size(profiles), 2);
    assert_null(json_object_get(json_array_get(profiles, 0), "ratio"));
    assert_true(number(fused, "ratio_low") <= number(fused, "ratio"));
    assert_true(number(fused, "ratio") <= number(fused, "ratio_high"));
    int differing = 0;
    size_t i;
    json_array_foreach(json_object_get(fused, "operations"), i, row) {
        if (!json_object_get(row, "difference")) continue;
        assert_true(number(row, "difference") < 1e-4); // of fp32
        differing += number(row, "difference") > 0;
    }
    assert_true(differing > 0);
    json_decref(root);
}

/* ---- generation ---- */

/* The cache does not change the text, even beyond the context of 32. */
static void test_cache(void **state) {
    static const char *const draws[] = {"--temperature=0", "--temperature=0.7 --top-k=20 --seed=7"};
    for (int i = 0; i < 2; i++) {
        const Ran *cached =
            program_succeeds(*state, "infer " MODEL "--prompt='one token' --tokens=90 %s", draws[i]);
        const Ran *without = program_succeeds(
            *state, "infer " MODEL "--prompt='one token' --tokens=90 %s --no-cache", draws[i]);
        assert_string_equal(cached->output, without->output);
        assert_int_equal(strncmp(cached->output, "one token", 9), 0);
        assert_int_equal(strlen(cached->output), 9 + 90 + 1);
        expect_text(cached->error, "prefill 9 tokens");
        expect_text(cached->error, "decode 89 tokens");
        expect_text(without->error, "without a cache");
    }
}

static void test_random_weights_are_said(void **state) {
    static const char *const modes[] = {"--prompt=x --tokens=2", "--eval=validation.txt --batch=1 --seq=16",
                                        "--logits=l.safetensors --ids=1,2"};
    for (int i = 0; i < 3; i++) {
        const Ran *ran = program_succeeds(
            *state, "infer --model=gpt2-nano --tokenizer=bytes --device=cpu -q %s", modes[i]);
        expect_text(ran->error, "RANDOM WEIGHTS: gpt2-nano is an untrained preset");
    }
    const Ran *ran = program_succeeds(*state, "infer " MODEL "--prompt=x --tokens=2");
    assert_null(strstr(ran->error, "RANDOM"));
    ran = program_succeeds(
        *state, "infer --model=gpt2-nano --device=cpu --repeats=1 --seq=16 --peaks=0"); // times need none
    assert_null(strstr(ran->error, "RANDOM"));
}

static void test_cache_cuda(void **state) {
    program_needs_gpu(*state);
    const char *folder = *state,
               *command = "infer " MODEL "--device=cuda --dtype=fp32 --prompt=one --tokens=90 -q";
    const Ran *cached = program_succeeds(folder, "%s --temperature=0", command);
    const Ran *without = program_succeeds(folder, "%s --temperature=0 --no-cache", command);
    const Ran *cpu = program_succeeds(folder, "%s --temperature=0 --device=cpu", command);
    assert_string_equal(cached->output, without->output);
    assert_string_equal(cached->output, cpu->output);
    program_refuses(folder, ERROR_USAGE, "--draft on a GPU needs --fused=1,invariant", "%s --draft=runs",
                    command);
    const Ran *alone = program_succeeds(folder, "%s --fused=1,invariant", command);
    const Ran *drafted = program_succeeds(folder, "%s --fused=1,invariant --draft=runs", command);
    assert_string_equal(alone->output, drafted->output);
}

/* Texts of several lengths in a batch, in each form: the CPU's. */
static void test_prompts_cuda(void **state) {
    static const char *const forms[] = {"0", "1", "1,invariant"};
    char cpu[1 << 12];
    program_needs_gpu(*state);
    write_text_file(inside(*state, "prompts.jsonl"),
                    "{\"prompt\": \"one\"}\n{\"prompt\": \"one token and the one after it\"}\n"
                    "{\"prompt\": \"t\"}\n{\"prompt\": \"one two three\"}\n{\"prompt\": \"the box\"}\n");
    const char *command = "infer " MODEL "--prompts=prompts.jsonl --tokens=20 --temperature=0 -q";
    snprintf(cpu, sizeof cpu, "%s", program_succeeds(*state, "%s --batch=1", command)->output);
    for (int i = 0; i < 6; i++) {
        const Ran *ran = program_succeeds(*state, "%s --device=cuda --fused=%s --batch=%d", command,
                                          forms[i / 2], i % 2 ? 3 : 1);
        assert_string_equal(ran->output, cpu);
    }
}

/* On a GPU whose decode kernels serve it, each text of a batch is by default what its prompt gets alone. */
static void test_texts_apart_cuda(void **state) {
    enum { PROMPTS = 16 };
    char lines[PROMPTS * 64], alone[1 << 15];
    int length = 0;
    program_needs_gpu(*state);
    for (int i = 0; i < PROMPTS; i++)
        length += snprintf(lines + length, sizeof lines - (size_t)length, "{\"prompt\": \"%.*s\"}\n",
                           1 + 2 * i, "a sentence that gets longer and longer");
    write_text_file(inside(*state, "apart.jsonl"), lines);
    const char *command = "infer --model=smollm2-135m --tokenizer=bytes --dtype=bf16 --device=cuda -q "
                          "--prompts=apart.jsonl --tokens=200 --temperature=0";
    snprintf(alone, sizeof alone, "%s", program_succeeds(*state, "%s --batch=1", command)->output);
    assert_string_equal(program_succeeds(*state, "%s --batch=%d", command, PROMPTS)->output, alone);
}

static void test_forms_agree(void **state) {
    const Ran *naive =
        program_succeeds(*state, "infer " MODEL "--prompt=one --temperature=0 --tokens=40 --fused=0 -q");
    const Ran *fused =
        program_succeeds(*state, "infer " MODEL "--prompt=one --temperature=0 --tokens=40 --fused=1 -q");
    assert_string_equal(naive->output, fused->output);
}

static void test_long_prompt(void **state) {
    const Ran *ran =
        program_succeeds(*state, "infer " MODEL "--prompt=- --tokens=5 --temperature=0 <text.txt >long.txt");
    expect_text(ran->error, "PROMPT CUT: of its 20000 tokens only the last 32 were read");
    expect_text(ran->error, "prefill 32 tokens");
    program_succeeds(*state, "head -c 20000 long.txt | cmp - text.txt");
    /* Only the last 32 of them are seen. */
    program_succeeds(*state, "tail -c 32 text.txt >end.txt && tail -c 6 long.txt >tail.txt");
    program_succeeds(*state,
                     "infer " MODEL "--prompt=- --tokens=5 --temperature=0 -q <end.txt | cmp - tail.txt");
}

static void test_seeds(void **state) {
    const char *folder = *state, *command = "infer " MODEL "--prompt=one --tokens=60 -q --temperature=1";
    const Ran *first = program_succeeds(folder, "%s --seed=1", command);
    const Ran *again = program_succeeds(folder, "%s --seed=1", command);
    const Ran *other = program_succeeds(folder, "%s --seed=2", command);
    assert_string_equal(first->output, again->output);
    assert_string_not_equal(first->output, other->output);
}

static void test_stop(void **state) {
    const char *folder = *state,
               *command = "infer " MODEL "--prompt='one t' --tokens=60 -q --temperature=0.5";
    const Ran *whole = program_succeeds(folder, "%s", command);
    char stop[3] = {0};
    for (size_t i = 5; i + 2 < strlen(whole->output) && !*stop; i++)
        if (strspn(whole->output + i, "abcdefghijklmnopqrstuvwxyz") >= 2) memcpy(stop, whole->output + i, 2);
    assert_true(*stop);
    const Ran *stopped = program_succeeds(folder, "%s --stop=%s", command, stop);
    size_t length = (size_t)(strstr(whole->output, stop) - whole->output);
    assert_int_equal(strlen(stopped->output), length + 1);
    assert_memory_equal(stopped->output, whole->output, length);
    const Ran *either = program_succeeds(folder, "%s --stop=%s --stop=never", command, stop);
    assert_string_equal(either->output, stopped->output);
}

/* More threads than cores, and a tokenizer that lacks most of the model's tokens, are reported. */
static void test_said(void **state) {
    const Ran *ran = program_succeeds(*state, "infer " MODEL "--prompt=one --tokens=1 --threads=4096 2>&1");
    expect_text(ran->output, "--threads=4096: this process has ");
    program_succeeds(
        *state, "train " TINY
                " --tokenizer=bytes --vocab=1000 --steps=1 --sample-every=0 --val-every=0 --out=wide -q");
    ran = program_succeeds(
        *state,
        "infer --model=wide/step-00000001 --device=cpu --tokenizer=bytes --prompt=one --tokens=1 2>&1");
    expect_text(ran->output, "the tokenizer knows 256 of the model's 1000 tokens");
}

/* ---- evaluation ---- */

/* A text shorter than the context is one window. */
static void test_short_text(void **state) {
    write_text_file(inside(*state, "few.txt"), "one two");
    const Ran *ran = program_succeeds(*state, "infer " MODEL "--eval=few.txt");
    expect_text(ran->output, "few.txt: 6 tokens, mean loss ");
}

/* Training's validation used the same eight windows: the losses differ by the rounding to seven printed
 * digits and by the order of fp32 sums, four of 64 terms or one of 256. */
static void test_eval(void **state) {
    double trained, loss = 0, perplexity = 0, bits = 0;
    long tokens = 0;
    assert_int_equal(log_losses(*state, "log.jsonl", "val", 0, &trained, 1), 1);
    for (int batch = 2; batch <= 8; batch += 3) { // 5: the last batch is not full
        const Ran *ran = program_succeeds(*state, "infer " MODEL "--eval=validation.txt --batch=%d", batch);
        int read = sscanf(ran->output,
                          "validation.txt: %ld tokens, mean loss %lf, perplexity %lf, %lf bits per byte",
                          &tokens, &loss, &perplexity, &bits);
        assert_int_equal(read, 4);
        assert_int_equal(tokens, 256);
        double rounding = 0x1p-24 * 256 * trained, printed = 0.5e-6;
        if (!(fabs(loss - trained) <= printed + rounding)) fail_msg("%.9g, not %.9g", loss, trained);
        assert_true(fabs(perplexity - exp(loss)) <= 0.5e-4 + exp(loss) * printed);
        assert_true(fabs(bits - loss / log(2)) <= 0.5e-4 + printed); // a token is a byte here
    }
    program_succeeds(*state, "infer " MODEL "--eval=validation.txt --json=eval.json");
    json_t *root = json_load_file(inside(*state, "eval.json"), 0, NULL);
    assert_int_equal(number(root, "tokens"), 256);
    assert_true(fabs(number(root, "loss") - loss) <= 1e-6);
    assert_true(fabs(number(root, "perplexity") - perplexity) <= 1e-3 * perplexity);
    assert_true(fabs(number(root, "bits_per_byte") - bits) <= 1e-4);
    json_decref(root);
}

/* ---- logits ---- */

static void read_logits(const char *path, int rows, float *logits) {
    Safetensors *file;
    expect_ok(safetensors_open(path, &file));
    const SafetensorsEntry *entry = safetensors_find(file, "logits");
    assert_non_null(entry);
    assert_true(entry->type == SAFE_F32 && entry->rank == 2 && entry->d[0] == rows && entry->d[1] == 256);
    expect_ok(safetensors_read(entry, 0, entry->count, logits));
    safetensors_close(file);
}

/* A folder without a tokenizer, with fewer tokens than bytes, can be run with ids. */
static void test_few_tokens(void **state) {
    char folder[PATH_MAX];
    assert_non_null(realpath("tests/fixtures/llama/llama", folder));
    program_succeeds(*state, "infer --model=%s --logits=x.safetensors --ids=1,96 --device=cpu", folder);
    program_refuses(*state, ERROR_USAGE, "--tokenizer", "infer --model=%s --prompt=a --device=cpu", folder);
}

/* Later tokens do not change earlier logits. */
static void test_logits(void **state) {
    static float few[3 * 256], more[5 * 256];
    const Ran *ran =
        program_succeeds(*state, "infer " MODEL "--logits=few.safetensors --ids=111,110,101 --fused=0");
    assert_string_equal(ran->output, "logits (3, 256) in few.safetensors\n");
    program_succeeds(*state, "infer " MODEL "--logits=more.safetensors --ids=111,110,101,32,116 --fused=0");
    read_logits(inside(*state, "few.safetensors"), 3, few);
    read_logits(inside(*state, "more.safetensors"), 5, more);
    double largest = 0, difference = 0;
    for (int i = 0; i < 3 * 256; i++) {
        assert_true(isfinite(few[i]));
        largest = fmax(largest, fabs((double)few[i]));
        difference = fmax(difference, fabs((double)few[i] - (double)more[i]));
    }
    assert_true(largest > 1);
    /* Products of other sizes may sum in another order: sums of 32 to 128 terms, two blocks of some ten
     * roundings. */
    assert_true(difference <= 0x1p-24 * 128 * 20 * largest);
    assert_true(memcmp(few, few + 256, 256 * sizeof *few) != 0);
    int likeliest = 0;
    for (int i = 0; i < 256; i++)
        if (few[2 * 256 + i] > few[2 * 256 + likeliest]) likeliest = i;
    ran = program_succeeds(*state, "infer " MODEL "--prompt=one --tokens=1 --temperature=0 --fused=0 -q");
    assert_int_equal((unsigned char)ran->output[0], likeliest);
}

/* The first of several answers is the one that a single answer would be; --seed=random prints the seed that
 * repeats it. */
static void several_answers(void **state) {
    char alone[1 << 12], again[1 << 12], seed[64];
    const char *command = "infer " MODEL "--prompt='one token' --tokens=30 --temperature=2 -q";
    snprintf(alone, sizeof alone, "[1]\n%s[2]\n", program_succeeds(*state, "%s", command)->output);
    const Ran *ran = program_succeeds(*state, "%s --n=3", command);
    if (strncmp(ran->output, alone, strlen(alone)) != 0) fail_msg("%s\nnot:\n%s", ran->output, alone);
    const char *second = ran->output + strlen(alone), *third = strstr(second, "[3]\n");
    assert_non_null(third);
    assert_int_not_equal(strncmp(second, alone + 4, 20), 0);
    assert_int_not_equal(strncmp(second, third + 4, 20), 0);
    program_refuses(*state, ERROR_USAGE, "--n has no effect without a --temperature above 0",
                    "%s --n=2 --temperature=0", command);
    program_refuses(*state, ERROR_USAGE, "--n has no effect without --prompt", "infer " MODEL "--n=2");

    command = "infer " MODEL "--prompt='one token' --tokens=30";
    ran = program_succeeds(*state, "%s --seed=random", command);
    assert_int_equal(sscanf(ran->error, "%63[-=a-z0-9]", seed), 1);
    expect_text(seed, "--seed=");
    snprintf(again, sizeof again, "%s", ran->output);
    assert_string_equal(program_succeeds(*state, "%s %s", command, seed)->output, again);
    program_refuses(*state, ERROR_USAGE, "a whole number of at least 0, or random", "%s --seed=Random",
                    command);
}

/* A draft changes no text: neither the model itself nor an untrained one, beyond the context of 32, up to a
 * stop text, and in several answers. */
static void test_draft(void **state) {
    static const char *const draws[] = {"--temperature=0 --tokens=90",
                                        "--temperature=0.9 --top-p=0.9 --repeat-penalty=1.2 --n=3",
                                        "--temperature=0.7 --seed=7 --stop=e --weights=int8"};
    static const char *const drafts[] = {"runs", "gpt2-nano --tokenizer=bytes", "padded"};
    program_succeeds(*state, "train " TINY " --tokenizer=bytes --vocab=320 --steps=1 --sample-every=0 "
                             "--val-every=0 --out=padded -q");
    // one thread, because several would spend most of the time on waking each other
    const char *command = "infer " MODEL "--prompt='one token' --threads=1";
    for (int i = 0; i < 3; i++) {
        char without[1 << 12];
        snprintf(without, sizeof without, "%s", program_succeeds(*state, "%s %s", command, draws[i])->output);
        for (int k = 0; k < 3; k++) {
            const Ran *with = program_succeeds(*state, "%s %s --draft=%s", command, draws[i], drafts[k]);
            assert_string_equal(with->output, without);
            expect_text(with->error, " proposed tokens accepted");
            int accepted = -1, proposed = -1;
            sscanf(strstr(with->error, "tok/s)\n"), "tok/s) %d of %d", &accepted, &proposed);
            if (i == 0) assert_true(k ? accepted < proposed / 2 : accepted > proposed / 2);
        }
    }
}

static void test_draft_refused(void **state) {
    static const char *const refused[][2] = {
        {"--draft=nowhere", "nowhere"},
        {"--draft=vit-tiny", "a draft is a decoder-only model"},
        {"--draft=bert-base", "a draft is a decoder-only model"},
        {"--draft=gpt2", "--draft=gpt2 has no tokenizer"},
        {"--draft=runs --fused=0", "--draft needs linear and attention fused"},
        {"--draft=runs --fused=1,fp8", "--draft needs linear and attention fused, without fp8"},
        {"--draft=runs --no-cache", "--draft and --no-cache exclude each other"},
        {"--draft=runs --profile", "--draft and --profile exclude each other"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        program_refuses(*state, ERROR_USAGE, refused[i][1], "infer " MODEL "--prompt=one %s", refused[i][0]);
    program_refuses(*state, ERROR_USAGE, "--draft has no effect without --prompt or --chat",
                    "infer " MODEL "--prompts=validation.txt --draft=runs");
    program_refuses(*state, ERROR_USAGE, "--draft", "train " TINY " --draft=runs");
    char chains[PATH_MAX];
    assert_non_null(realpath("tests/fixtures/chains", chains));
    program_succeeds(*state,
                     "train " TINY " --tokenizer=bytes --vocab=1000 --steps=1 --sample-every=0 --val-every=0 "
                     "--out=bare -q && cp -r bare/step-00000001 one && cp -r one other && "
                     "rm -f one/tokenizer* other/tokenizer* bare/*/tokenizer* && "
                     "cp %s/llama2/tokenizer*.json one && cp %s/qwen2/tokenizer*.json other",
                     chains, chains);
    static const char *const command = "infer --model=one --device=cpu --prompt=a --draft=";
    program_refuses(*state, ERROR_USAGE, "--draft=other has another tokenizer than the model", "%sother",
                    command);
    program_refuses(*state, ERROR_USAGE, "--draft=bare has no tokenizer", "%sbare", command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(several_answers),
        cmocka_unit_test(test_run_folder),
        cmocka_unit_test(test_tamed_names),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_cache),

        cmocka_unit_test(test_random_weights_are_said),
        cmocka_unit_test(test_cache_cuda),
        cmocka_unit_test(test_prompts_cuda),
        cmocka_unit_test(test_texts_apart_cuda),
        cmocka_unit_test(test_forms_agree),
        cmocka_unit_test(test_long_prompt),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_said),
        cmocka_unit_test(test_short_text),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_few_tokens),
        cmocka_unit_test(test_draft),
        cmocka_unit_test(test_draft_refused),
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
