/* The programs with pairs of sentences and with a BERT, as a user runs them: tokenizer, training, resuming,
 * translating, embedding, filling gaps, and what they refuse. */
#include "tests/support/program.h"

#include "data/safetensors.h"
#include "report/bundle_schema.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PAIRS                                                                                                \
    "train --model=transformer-nano --layers=1 --width=32 --heads=2 --context=32 --batch=6 --seq=24 -q "     \
    "--data=source.txt,target.txt --tokenizer=tok --device=cpu --peaks=0 --lr=3e-3 --warmup=10 "
#define BERT                                                                                                 \
    "train --model=bert-nano --layers=2 --width=32 --heads=2 --context=32 --batch=8 -q --data=words.txt "    \
    "--tokenizer=bert --device=cpu --peaks=0 --lr=3e-3 --warmup=50 --val-every=0 "

static const char *const words[][2] = {{"one", "eins"}, {"two", "zwei"}, {"dog", "hund"}, {"runs", "rennt"}};

/* A target is its source with each word replaced. */
static void write_pairs(const char *folder, int count) {
    FILE *files[2] = {fopen(inside(folder, "source.txt"), "w"), fopen(inside(folder, "target.txt"), "w")};
    for (int i = 0; i < count; i++)
        for (int side = 0; side < 2; side++) {
            for (int w = 0; w < 2 + i % 5; w++)
                fprintf(files[side], "%s%s", w ? " " : "", words[(i * 7 + w * (1 + i / 5)) % 4][side]);
            fprintf(files[side], "\n");
        }
    fclose(files[0]);
    fclose(files[1]);
}

/* A language in which the next word is always determined: one two dog runs one two .. */
static void write_bert(const char *folder) {
    FILE *text = fopen(inside(folder, "words.txt"), "w");
    for (int i = 0; i < 4000; i++) fprintf(text, "%s ", words[i % 4][0]);
    fclose(text);
    program_succeeds(folder, "mkdir -p bert");
    write_text_file(inside(folder, "bert/vocab.txt"),
                    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\ndog\nruns\n");
}

static int setup(void **state) {
    if (program_setup(state) != 0) return -1;
    write_pairs(*state, 60);
    write_bert(*state);
    program_succeeds(*state, "train --train-tokenizer=290 --data=source.txt,target.txt --out=tok");
    program_succeeds(*state, PAIRS "--steps=400 --val-every=0 --log=pairs.jsonl --out=pairs");
    program_succeeds(*state, BERT "--steps=400 --log=bert.jsonl --out=masked");
    return 0;
}

/* Losses fall to those of a model that has learned its toy language. */
static void expect_learned(const char *folder, const char *log, int steps, double most) {
    static double losses[2000];
    assert_int_equal(log_losses(folder, log, "step", 0, losses, 2000), steps);
    double last = 0;
    for (int i = steps - 20; i < steps; i++) last += losses[i] / 20;
    assert_true(losses[0] > 2 * most);
    if (last > most) fail_msg("%s ends at a loss of %.3f, above %.3f", log, last, most);
}

static void test_translation(void **state) {
    expect_learned(*state, "pairs.jsonl", 400, 0.4);
    static const char *const ways[] = {"--beam=1", "--beam=1 --batch=1", "--beam=1 --no-cache",
                                       "--beam=4", "--beam=4 --batch=1", "--beam=3 --no-cache --fused=0"};
    for (int i = 0; i < 6; i++) {
        const Ran *ran = program_succeeds(*state,
                                          "infer --model=pairs --device=cpu --translate=source.txt "
                                          "--reference=target.txt --tokens=20 %s",
                                          ways[i]);
        const char *bleu = strstr(ran->error, "BLEU ");
        assert_non_null(bleu);
        if (atof(bleu + 5) < 80) fail_msg("%s: %s", ways[i], ran->error);
        expect_text(ran->error, "60 lines in ");
        int lines = 0;
        for (const char *at = ran->output; (at = strchr(at, '\n')) != NULL; at++) lines++;
        assert_int_equal(lines, 60);
    }
    program_succeeds(*state, PAIRS
                     "--vocab=999 --steps=1 --warmup=0 --lr=0 --val-every=0 --out=wide"); /* few tokens have a
                                                                                    * text */
    program_succeeds(*state,
                     "infer --model=wide --device=cpu --translate=source.txt --tokens=5 --min-tokens=5");
    const Ran *quiet = program_succeeds(
        *state, "head -2 source.txt >two.txt; infer --model=pairs --device=cpu --translate=two.txt -q");
    assert_string_equal(quiet->error, "");
}

/* The first step's loss and gradient norm, or the first validation's loss. */
static double logged(const char *folder, const char *event, const char *value, const char *options) {
    program_succeeds(folder, PAIRS "--steps=1 --warmup=0 --lr=1e-30 --log=one.jsonl %s", options);
    json_t *events = log_read(folder, "one.jsonl", false);
    double number = json_number_value(json_object_get(log_last(events, event), value));
    json_decref(events);
    assert_true(number > 0);
    return number;
}

/* A loss is the mean over all targets of the step or the validation, however sentences of different lengths
 * are divided into batches; validation has neither smoothing nor dropout. The remaining differences are
 * roundings: fp64, and fp32 in the loss's sum. */
static void test_means(void **state) {
#define DOUBLE "--dtype=fp64 --fused=0 --label-smoothing=0.1 "
#define VALID  DOUBLE "--val-data=source.txt,target.txt --val-every=1 "
    static const char *const figures[] = {"loss", "norm"};
    for (int i = 0; i < 2; i++) {
        double whole = logged(*state, "step", figures[i], DOUBLE "--val-every=0 --batch=60");
        double parts = logged(*state, "step", figures[i], DOUBLE "--val-every=0 --accum=10");
        assert_true(fabs(parts / whole - 1) < 1e-6);
    }
    double whole = logged(*state, "val", "loss", VALID "--batch=60 --val-steps=1");
    static const char *const parts[] = {VALID "--val-steps=10", VALID "--val-steps=10 --accum=2",
                                        VALID "--batch=60 --val-steps=1 --dropout=0.5 --label-smoothing=0.3"};
    for (int i = 0; i < 3; i++) assert_true(fabs(logged(*state, "val", "loss", parts[i]) / whole - 1) < 1e-6);
}

/* Resumed in the middle of an epoch, with other batch widths before and after, and with an explicit rate
 * equal to the default of other schedules. */
static void test_resume(void **state) {
#define THIRTY                                                                                               \
    PAIRS "--steps=30 --val-every=7 --val-steps=2 --schedule=noam --lr=1e-3 --label-smoothing=0.1 "          \
          "--dropout=0.2 --accum=2 "
    program_succeeds(*state, THIRTY "--log=whole.jsonl --out=whole");
    program_succeeds(*state, THIRTY "--log=parts.jsonl --out=parts --save-every=13 --keep=0");
    program_succeeds(*state,
                     "rm -r parts/step-00000030; train --peaks=0 --resume --out=parts -q --device=cpu");
    const char *whole = log_numbers(*state, "whole.jsonl", 13);
    program_succeeds(*state, RESUME "=parts/step-00000013 --out=third -q --device=cpu --log=third.jsonl");
    assert_string_equal(log_numbers(*state, "third.jsonl", 13), whole);
    /* The last rate of the first run's schedule does not prevent another rate or schedule. */
    program_succeeds(*state, RESUME " --out=third -q --device=cpu --steps=31 --lr=2e-3");
    program_succeeds(*state, RESUME " --out=third -q --device=cpu --steps=32 --schedule=cosine");
    program_succeeds(*state, RESUME " --out=third -q --device=cpu --steps=33 --schedule=constant");
}

static void test_masked(void **state) {
    expect_learned(*state, "bert.jsonl", 400, 0.5);
    const Ran *ran = program_succeeds(
        *state, "infer --model=masked --device=cpu --fill='one two [MASK] runs one [MASK] dog runs'");
    assert_string_equal(ran->output, "one two dog runs one two dog runs\n");
    expect_text(ran->error, "gap 1: dog ");
    expect_text(ran->error, "gap 2: two ");
    ran = program_succeeds(*state, "infer --model=masked --device=cpu --fill='one two [MASK] runs' 2>&1");
    expect_text(ran->output, "one two dog runs\ngap 1: dog "); // on a terminal, too
    program_succeeds(*state, "cp -r masked strange && sed -i 's/^dog$/d\xC2\x9Bg/' strange/*/vocab.txt");
    ran = program_succeeds(*state, "infer --model=strange --device=cpu --fill='one two [MASK] runs'");
    expect_text(ran->error, "d\\302\\233g "); // without control characters
}

/* A line's embedding does not depend on other lines, and pooling follows its definition. */
static void test_embeddings(void **state) {
    static const char *const poolings[] = {"mean", "first"};
    write_text_file(inside(*state, "lines.txt"), "one two dog runs one\n\ndog\n");
    float rows[2][3][32];
    for (int p = 0; p < 2; p++)
        for (int batch = 1; batch <= 3; batch += 2) {
            program_succeeds(*state,
                             "infer --model=masked --device=cpu --embed=lines.txt --output=e.safetensors "
                             "--dtype=fp32 --pooling=%s --batch=%d -q",
                             poolings[p], batch);
            Safetensors *file;
            float read[3][32];
            expect_ok(safetensors_open(inside(*state, "e.safetensors"), &file));
            const SafetensorsEntry *entry = safetensors_find(file, "embeddings");
            assert_non_null(entry);
            assert_int_equal(entry->d[0], 3);
            assert_int_equal(entry->d[1], 32);
            expect_ok(safetensors_read(entry, 0, 3 * 32, &read[0][0]));
            safetensors_close(file);
            for (int i = 0; i < 3 * 32; i++) {
                if (batch > 1) assert_true(fabsf((&read[0][0])[i] - (&rows[p][0][0])[i]) < 1e-5f);
                assert_true(isfinite((&read[0][0])[i]));
            }
            memcpy(rows[p], read, sizeof read);
        }
    for (int p = 0; p < 2; p++) assert_true(memcmp(rows[p][0], rows[p][2], sizeof rows[p][0]) != 0);
    assert_true(memcmp(rows[0], rows[1], sizeof rows[0]) != 0);
    program_refuses(*state, ERROR_USAGE, "this model has no pooler",
                    "infer --model=masked --device=cpu --embed=lines.txt --output=e --pooling=pooler");
    /* [CLS], 30 words and [SEP] fill the context of 32; a line with one more word is cut, with a message. */
    const Ran *ran =
        program_succeeds(*state, "(seq 30 | tr '\\n' ' '; echo; seq 31 | tr '\\n' ' ') >long.txt; "
                                 "infer --model=masked --device=cpu --embed=long.txt --output=e.safetensors");
    expect_text(ran->error, "1 line was truncated to the model's context of 32 tokens");
    program_succeeds(*state, BERT "--steps=1 --lr=1e30 --warmup=0 --val-every=0 --out=wild");
    program_refuses(*state, ERROR_NONFINITE, "the embedding of line ",
                    "infer --model=wild --device=cpu --embed=lines.txt --output=wild.safetensors");
    program_succeeds(*state, "test ! -e wild.safetensors");
}

static void read_embedding(const char *folder, float *row) {
    Safetensors *file;
    expect_ok(safetensors_open(inside(folder, "e.safetensors"), &file));
    expect_ok(safetensors_read(safetensors_find(file, "embeddings"), 0, 32, row));
    safetensors_close(file);
}

/* A sentence-transformers folder sets the maximum number of tokens, the pooling and the normalization. */
static void test_sentence_transformers(void **state) {
    float plain[32], theirs[32];
    double squares = 0;
    program_succeeds(
        *state,
        "rm -rf st && cp -r $(ls -d masked/step-* | tail -1) st && mkdir st/1_Pooling && "
        "echo '{\"max_seq_length\":4,\"do_lower_case\":false}' >st/sentence_bert_config.json && "
        "echo '{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":false}' "
        ">st/1_Pooling/config.json && echo '[{\"idx\":0,\"path\":\"\",\"type\":"
        "\"sentence_transformers.models.Transformer\"},{\"idx\":1,\"path\":\"1_Pooling\",\"type\":"
        "\"sentence_transformers.models.Pooling\"},{\"idx\":2,\"path\":\"2_Normalize\",\"type\":"
        "\"sentence_transformers.models.Normalize\"}]' >st/modules.json && echo one two dog runs one >l.txt");
    program_succeeds(
        *state,
        "infer --model=masked --device=cpu --embed=l.txt --output=e.safetensors --pooling=first --seq=4");
    read_embedding(*state, plain);
    const Ran *ran =
        program_succeeds(*state, "infer --model=st --device=cpu --embed=l.txt --output=e.safetensors");
    expect_text(ran->error, "lines truncated to 4 tokens: 1");
    read_embedding(*state, theirs);
    ran = program_succeeds(*state,
                           "infer --model=st --device=cpu --embed=l.txt --output=s.safetensors --seq=5");
    expect_text(ran->error, "lines truncated to 5 tokens: 1"); // an option decides
    for (int i = 0; i < 32; i++) squares += (double)plain[i] * (double)plain[i];
    for (int i = 0; i < 32; i++) assert_true(fabs(theirs[i] - plain[i] / sqrt(squares)) < 1e-6);
    program_succeeds(*state, "sed -i s/Normalize/Dense/g st/modules.json");
    program_refuses(*state, ERROR_FORMAT, "models.Dense is not supported",
                    "infer --model=st --device=cpu --embed=l.txt --output=e.safetensors");
}

/* Written answers are kept, and the same command continues; an incomplete last answer is computed again. */
static void test_interrupted(void **state) {
    const char *const commands[] = {
        "infer --model=pairs --device=cpu --translate=many.txt --batch=1 --beam=2 --tokens=20 "
        "--reference=answers.txt",
        "infer --model=masked --device=cpu --embed=many.txt --batch=1"};
    program_succeeds(*state, "for i in 1 2 3 4; do cat source.txt; done >many.txt; "
                             "for i in 1 2 3 4; do cat target.txt; done >answers.txt");
    for (int i = 0; i < 2; i++) {
        char command[300], score[80];
        const Ran *ran = program_succeeds(*state, "%s --output=all", commands[i]);
        const char *bleu = strstr(ran->error, "BLEU");
        snprintf(score, sizeof score, "%s", bleu ? bleu : "");
        snprintf(command, sizeof command, "%s --output=x", commands[i]);
        program_succeeds(*state, "rm -f x");
        program_interrupt_answers(*state, "x", command);
        program_refuses(*state, ERROR_USAGE, "x.part is what a run with other options", "%s --batch=2",
                        command);
        program_succeeds(*state, "printf half >>x.part");
        ran = program_succeeds(*state, "%s", command);
        expect_text(ran->error, "continuing after these");
        expect_text(ran->error, score);
        expect_same_file(*state, "x", "all");
        assert_false(path_exists(inside(*state, "x.part")));
    }
    /* Answers are in the order of the lines, even if a batch contains lines from further on. */
    program_succeeds(*state, "%s --output=/dev/stdout -q >x", commands[0]);
    const Ran *ran = program_succeeds(*state, "%s --batch=5 -q >y; cmp x y", commands[0]);
    expect_text(ran->error, "BLEU");
}

/* The number of tokens in a step of the profile that reads the lines of this text. */
static double source_tokens(const char *folder, const char *text) {
    Bundle bundle;
    program_succeeds(
        folder,
        "printf '%s' >some.txt; infer --model=pairs --device=cpu --translate=some.txt --tokens=4 "
        "--min-tokens=4 --profile=0,0,0,1,1 --profile-tokens --profile-out=some -q",
        text);
    expect_ok(bundle_read(inside(folder, "some/profiling_stats_prefill.json"), &bundle));
    double tokens = bundle.paths[0].step.tokens;
    bundle_free(&bundle);
    return tokens;
}

/* A batch is a step of a profile, in which reading the sources and each token are separate ranges. */
static void test_profile(void **state) {
    const char *translate =
        "infer --model=pairs --device=cpu --translate=source.txt --tokens=6 --min-tokens=6";
    const Ran *plain = program_succeeds(*state, "%s -q", translate);
    const Ran *ran =
        program_succeeds(*state, "%s --profile=1,0,0,2,1 --profile-out=P --report=tables", translate);
    static const char *const parts[] = {"batch 8, seq 6",
                                        "translation, steps 2 to 3",
                                        "\nencode ",
                                        "\ndecoding step       12 ",
                                        "\nsearch              12 ",
                                        "\ncache "};
    assert_string_equal(ran->output, plain->output);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) expect_text(ran->error, parts[i]);
    program_succeeds(*state, "profile check P/profiling_stats.json");
    /* Token by token: of twelve tokens in two runs, the fourth to eighth are traced. */
    ran = program_succeeds(
        *state, "%s --profile='[4,9)' --profile-tokens --profile-out=T --decoding=self --report=tables",
        translate);
    static const char *const tokens[] = {"prefill, steps 3 to 5", "decoding step, steps 4 to 8",
                                         "batch 8, seq 1,"};
    assert_string_equal(ran->output, plain->output);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) expect_text(ran->error, tokens[i]);
    program_succeeds(*state, "profile check T/profiling_stats_prefill.json T/profiling_stats_decode.json");
    program_succeeds(*state, "grep -q '^decoding step,5,' T/tables_decode/ranges.csv");
    program_succeeds(*state, "grep -q '^encode,3,' T/tables_prefill/ranges.csv");
    program_succeeds(*state, "! grep -q '^encode,' T/tables_decode/ranges.csv");
    double one = source_tokens(*state, "one\\n"), more = source_tokens(*state, "two dog runs two\\n");
    assert_true(one > 0 && one < more);
    assert_true(source_tokens(*state, "one\\ntwo dog runs two\\n") == one + more); // and no padding
    program_refuses(*state, ERROR_USAGE, "without --profile", "%s --profile-tokens", translate);
    program_refuses(*state, ERROR_USAGE, "without --translate=FILE",
                    "infer --model=gpt2-nano --device=cpu --prompt=x --profile --profile-tokens");
}

static void test_refusals(void **state) {
    program_succeeds(*state, "(cat target.txt; echo more) >longer.txt; : >empty.txt");
#define MISMATCH "train --model=transformer-nano --seq=24 --tokenizer=tok --device=cpu --peaks=0 "
    program_refuses(*state, ERROR_FORMAT, "has 60 lines and longer.txt has 61",
                    MISMATCH "--data=source.txt,longer.txt");
    program_refuses(*state, ERROR_USAGE, "--data=SOURCE,TARGET", MISMATCH "--data=source.txt");
    program_refuses(*state, ERROR_USAGE, "--data=SOURCE,TARGET", MISMATCH);
    program_refuses(*state, ERROR_FILE, "missing.txt", MISMATCH "--data=source.txt,missing.txt");
    program_refuses(
        *state, ERROR_USAGE, "<pad>",
        "train --model=transformer-nano --seq=24 --vocab=256 --tokenizer=bytes --device=cpu --peaks=0 "
        "--data=source.txt,target.txt");
    program_refuses(*state, ERROR_USAGE, "[MASK]",
                    "train --model=bert-nano --tokenizer=bytes --device=cpu --peaks=0 --data=words.txt");
    program_refuses(*state, ERROR_USAGE, "or train one with --train-tokenizer",
                    "train --model=bert-nano --device=cpu --peaks=0 --data=words.txt");
    program_refuses(*state, ERROR_USAGE, "--min-tokens=33 is more than the model's context of 32",
                    "infer --model=pairs --device=cpu --translate=source.txt --min-tokens=33");
    program_refuses(*state, ERROR_USAGE, "label-smoothing", "train " TINY " --label-smoothing=0.1");
    program_refuses(*state, ERROR_FORMAT, "--reference=longer.txt has 61",
                    "infer --model=pairs --device=cpu --translate=source.txt --reference=longer.txt");
    program_refuses(*state, ERROR_FORMAT, "empty.txt is empty",
                    "infer --model=pairs --device=cpu --translate=empty.txt");
    program_refuses(*state, ERROR_USAGE, "encoder-decoder",
                    "infer --model=masked --device=cpu --translate=source.txt");
    program_refuses(*state, ERROR_USAGE, "needs a BERT",
                    "infer --model=pairs --device=cpu --embed=source.txt --output=x");
    program_refuses(*state, ERROR_USAGE, "there is no [MASK]",
                    "infer --model=masked --device=cpu --fill=one");
    program_refuses(*state, ERROR_USAGE, "260 to 1048576",
                    "train --train-tokenizer=3 --data=source.txt --out=x");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_translation), cmocka_unit_test(test_means),
        cmocka_unit_test(test_resume),      cmocka_unit_test(test_masked),
        cmocka_unit_test(test_embeddings),  cmocka_unit_test(test_sentence_transformers),
        cmocka_unit_test(test_interrupted), cmocka_unit_test(test_profile),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
