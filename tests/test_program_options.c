/* The options of ./train and ./infer: defaults, derived options, and contradictions. */
#include "tasks/task.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_ARGUMENTS = 32 };

static int split(const char *line, char *copy, size_t room, char **argv) {
    int argc = 0;
    snprintf(copy, room, "%s", line);
    argv[argc++] = (char *)(uintptr_t) "program";
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc] = NULL;
    return argc;
}

static Status read_train(const char *line, TrainOptions *options, OptionSet *set, bool *done) {
    char copy[1000], *argv[MOST_ARGUMENTS];
    int argc = split(line, copy, sizeof copy, argv);
    return task_read_train(argc, argv, options, set, done);
}

static const Command benchmark = {.reads = "batch-sizes seq-lens repeats compare json profile batch seq"};

static Status read_infer(const char *line, InferOptions *options, OptionSet *set, bool *done) {
    char copy[1000], *argv[MOST_ARGUMENTS];
    int argc = split(line, copy, sizeof copy, argv);
    return task_read_infer(argc, argv, &benchmark, options, set, done);
}

/* message NULL: accepted */
static void expect(Status status, const char *message, bool done) {
    if (message) {
        assert_non_null(status);
        assert_string_equal(status_message(status), message);
        assert_int_equal(status_code(status), ERROR_USAGE);
        status_free(status);
    } else {
        if (status) fail_msg("%s", status_message(status));
        assert_false(done);
    }
}

static void train(const char *line, const char *message) {
    OptionSet set;
    TrainOptions o;
    bool done;
    Status status = read_train(line, &o, &set, &done);
    expect(status, message, done);
    options_close(&set);
}

static void infer(const char *line, const char *message) {
    OptionSet set;
    InferOptions o;
    bool done;
    Status status = read_infer(line, &o, &set, &done);
    expect(status, message, done);
    options_close(&set);
}

/* Captures standard output until capture_end. */
typedef struct {
    FILE *file;
    int saved;
} Capture;

static Capture capture_begin(void) {
    fflush(stdout);
    Capture capture = {tmpfile(), dup(1)};
    dup2(fileno(capture.file), 1);
    return capture;
}

static void capture_end(Capture capture, char *text, size_t room) {
    fflush(stdout);
    dup2(capture.saved, 1);
    close(capture.saved);
    rewind(capture.file);
    text[fread(text, 1, room - 1, capture.file)] = 0;
    fclose(capture.file);
}

static void test_train_defaults(void **state) {
    (void)state;
    OptionSet set;
    TrainOptions o;
    bool done;
    assert_null(read_train("", &o, &set, &done));
    assert_false(done);
    assert_string_equal(o.model, "gpt2-nano");
    assert_int_equal(o.warmup, o.steps / 10);
    assert_true(o.min_lr == o.lr / 10);
    assert_string_equal(o.compute.fused, "1");
    assert_int_equal(o.compute.dtype, DTYPE_AUTO);
    options_close(&set);

    assert_null(
        read_train("--steps=200 --lr=0.5 --schedule=constant --dtype=fp64 --warmup=0", &o, &set, &done));
    assert_int_equal(o.warmup, 0);
    assert_string_equal(o.compute.fused, "0");
    Schedule schedule = train_options_schedule(&o);
    assert_int_equal(schedule.kind, SCHEDULE_CONSTANT);
    assert_int_equal(schedule.steps, 200);
    assert_true(schedule.minimum == 0.5);
    assert_true(schedule_rate(&schedule, 199) == 0.5);
    options_close(&set);
}

static void test_train_contradictions(void **state) {
    (void)state;
    train("--resume --out=runs/a", NULL);
    train("--resume=runs/a/step-5", NULL);
    train("--resume", "--resume needs --out=FOLDER, or a checkpoint: --resume=FOLDER");
    train("--force", "--force has no effect without --resume=FOLDER");
    train("--save-every=5", "--save-every has no effect without --out=FOLDER");
    train("--keep=5", "--keep has no effect without --out=FOLDER");
    train("--dtype=fp64 --fused=0 --device=cpu", NULL);
    train("--dtype=fp64 --fused=1", "--dtype=fp64 runs naive only, but --fused=1 was given; leave it out");
    train("--dtype=fp64 --compare",
          "--compare needs operations that run fused, but --dtype=fp64 leaves none");
    train("--dtype=fp64 --device=cuda:1", "--dtype=fp64 runs on the CPU only, but --device=cuda:1 was given");
    train("--dtype=bf16 --device=cpu", NULL);
    train("--dtype=tf32 --device=cpu", "--dtype=tf32 needs a GPU, but --device=cpu was given");
    train("--fused=0 --compare", "--compare needs operations that run fused, but --fused=0 leaves none");
    train("--fused=1,-attention --compare", NULL);
    train("--fused=-attention --compare", NULL);
    train("--device=gpu", "--device=gpu: expected auto, cpu, cuda or cuda:N");
    train("--device=cuda:", "--device=cuda:: expected auto, cpu, cuda or cuda:N");
    train("--device=cuda:1x", "--device=cuda:1x: expected auto, cpu, cuda or cuda:N");
    train("--lr=1e-4 --min-lr=1e-3", "--min-lr=0.001 is above --lr=0.0001");
    train("--schedule=constant --min-lr=1e-5", "--min-lr=1e-05 has no effect with --schedule=constant");
    train("--schedule=noam --min-lr=1e-5", "--min-lr=1e-05 has no effect with --schedule=noam");
    train("--schedule=noam --lr=1e-3 --min-lr=1e-3", "--min-lr=0.001 has no effect with --schedule=noam");
    train("--comm=ncl", "--comm=ncl: expected auto|nccl|peer|mpi; did you mean 'nccl'?");
    train("--train-tokenizer=300", "--train-tokenizer needs --out=FOLDER, where the tokenizer goes");
    train("--steps=10 --warmup=11", "--warmup=11 is longer than --steps=10");
    train("--steps=10 --warmup=10", NULL);
    train("--steps=10 --warmup=4000 --schedule=noam", NULL);
    train("--seq=512 --context=256", "--seq=512 is longer than --context=256");
    train("--seq=256 --context=256", NULL);
    train("--heads=3 --width=128", "--width=128 is not a multiple of --heads=3");
    train("--batch=1048576 --seq=4096",
          "--batch=1048576 times --seq=4096 is more than 2^31 - 1 tokens; use --accum");
    train("--val-data=x", "--val-data has no effect without --data");
    train("--data=x --val-data=y --val-every=0", "--val-data has no effect without --val-every");
    train("--val-steps=3 --val-every=0", "--val-steps has no effect without --val-every");
    train("--sample-every=0 --sample-tokens=3", "--sample-tokens has no effect without --sample-every");
    train("--sheps=3", "unknown option '--sheps=3'; did you mean '--steps'?");
    infer("--temp=1", "unknown option '--temp=1'; did you mean '--temperature' or '--template'?");
    train("--foo=3", "unknown option '--foo=3'; --help lists them all"); // but no "did you mean '--log'?"
    train("--schedule=cosin",
          "--schedule=cosin: expected cosine|linear|wsd|constant|noam; did you mean 'cosine'?");
    train("--beta1=1", "--beta1=1: expected a number of at least 0 and below 1");
    /* Values that fp32, in which the update is computed, cannot represent. */
    train("--lr=1e39", "--lr=1e39: expected a number from 0 to 3.40282e+38");
    train("--min-lr=1e39", "--min-lr=1e39: expected a number from 0 to 3.40282e+38");
    train("--clip=1e39", "--clip=1e39: expected a number from 0 to 3.40282e+38");
    train("--weight-decay=1e39", "--weight-decay=1e39: expected a number from 0 to 3.40282e+38");
    train("--eps=1e-50", "--eps=1e-50: expected a number from 1.17549e-38 to 1");
}

static void test_infer_modes(void **state) {
    (void)state;
    const struct {
        const char *line;
        const char *selector;
    } modes[] = {{"--batch-sizes=1,8 --seq-lens=128,256 --json=x --compare", NULL},
                 {"--prompt=- --tokens=5 --temperature=0 --no-cache --stop=x", "prompt"},
                 {"--eval=x --batch=4 --seq=7", "eval"},
                 {"--logits=x --ids=0,5", "logits"},
                 {"--translate=x --reference=y --beam=5 --batch=3 --no-cache --tokens=7", "translate"},
                 {"--embed=x --output=y --pooling=first --batch=3", "embed"},
                 {"--fill=x", "fill"}};
    for (int i = 0; i < 7; i++) {
        OptionSet set;
        InferOptions o;
        bool done;
        assert_null(read_infer(modes[i].line, &o, &set, &done));
        const char *selector = task_selector(&set);
        if (modes[i].selector)
            assert_string_equal(selector, modes[i].selector);
        else
            assert_null(selector);
        options_close(&set);
    }
}

static void test_infer_contradictions(void **state) {
    (void)state;
    infer("", NULL);
    infer("--prompt=x --eval=y", "--prompt and --eval exclude each other; give one of them");
    infer("--logits=x --eval=y", "--eval and --logits exclude each other; give one of them");
    infer("--prompt=", "--prompt is empty");
    infer("--fill= --batch=2", "--fill is empty");
    infer("--translate=x --min-tokens=9 --tokens=8", "--min-tokens=9 is more than --tokens=8");
    infer("--tokens=5", "--tokens has no effect without --prompt, --chat, --prompts or --translate");
    infer("--fused=1,invariant", NULL);
    infer("--fused=1,invariant,-linear",
          "--fused=invariant needs linear and attention fused: --fused=1,invariant");
    infer("--profile --repeats=5", "--profile and --repeats exclude each other; give one of them");
    infer("--prompt=x --repeats=5", "--repeats and --prompt exclude each other; give one of them");
    infer("--prompt=x --batch=5", "--batch and --prompt exclude each other; give one of them");
    infer("--eval=x --compare", "--compare has no effect without --weights=int8 or int4");
    infer("--eval=x --compare --weights=int4", NULL);
    infer("--logits=x --ids=1 --compare", "--compare and --logits exclude each other; give one of them");
    infer("--logits=x --ids=1 --seq=5", "--seq and --logits exclude each other; give one of them");
    infer("--logits=x", "--logits needs the tokens to compute them for: --ids=1,2,3");
    infer("--translate=x --fill=y", "--translate and --fill exclude each other; give one of them");
    infer("--translate=x --seq=5", "--seq and --translate exclude each other; give one of them");
    infer("--beam=5", "--beam has no effect without --translate=FILE");
    infer("--prompt=x --reference=y", "--reference has no effect without --translate=FILE");
    infer("--steps=3", "--steps is an option of train");
    infer("--lora", "there is no option --lora: adapters are not read; merge them into the model");
    infer("--embed=x", "--embed needs a file to write the embeddings to: --output=FILE");
    infer("--fill=x --pooling=first", "--pooling has no effect without --embed=FILE");
    infer("--ids=1", "--ids has no effect without --logits=FILE");
    infer("--batch=1 --batch-sizes=1,2", "--batch and --batch-sizes exclude each other; give one of them");
    infer("--seq=1 --seq-lens=1,2", "--seq and --seq-lens exclude each other; give one of them");
    infer("--prompt=x --temperature=0 --top-k=3", "--top-k has no effect without a --temperature above 0");
    infer("--prompt=x --top-p=0", "--top-p=0: expected a number above 0 and at most 1");
    infer("--compare --fused=0", "--compare needs operations that run fused, but --fused=0 leaves none");
}

/* --help is tidy: no line is longer than 79 columns or ends in a blank. */
static void test_help(void **state) {
    (void)state;
    for (int program = 0; program < 2; program++) {
        OptionSet set;
        TrainOptions t;
        InferOptions i;
        bool done = false;
        char text[16000];
        Capture capture = capture_begin();
        Status status =
            program ? read_infer("--help", &i, &set, &done) : read_train("--help", &t, &set, &done);
        capture_end(capture, text, sizeof text);
        assert_null(status);
        assert_true(done);
        options_close(&set);
        assert_non_null(strstr(text, "include [1]")); // the end of the longest description, --fused's
        int lines = 0;
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
            size_t length = strlen(line);
            if (length > 79 || line[length - 1] == ' ') fail_msg("untidy: '%s'", line);
        }
        assert_in_range(lines, 30, 160);
    }
}

/* Reading the output of --print-config gives the same options, and prints the same output. */
static void test_print_config(void **state) {
    (void)state;
    const char *const lines[] = {"", "--dtype=fp64 --steps=30 --lr=0.1 --schedule=constant",
                                 "--resume --out=x --keep=3 --fused=1,-norm",
                                 "--prompt=x --top-k=3 --fused=0"};
    char path[] = "/tmp/fusebox-config-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char texts[2][8000], line[400];
        for (int round = 0; round < 2; round++) {
            OptionSet set;
            TrainOptions o;
            InferOptions p;
            bool done = false;
            snprintf(line, sizeof line, "--print-config %s%s", round ? "--config=" : lines[i],
                     round ? path : "");
            Capture capture = capture_begin();
            Status status = strstr(lines[i], "--prompt") ? read_infer(line, &p, &set, &done)
                                                         : read_train(line, &o, &set, &done);
            capture_end(capture, texts[round], sizeof texts[round]);
            if (status) fail_msg("%s: %s", line, status_message(status));
            assert_true(done);
            options_close(&set);
            FILE *file = fopen(path, "w");
            fputs(texts[0], file);
            fclose(file);
        }
        assert_string_equal(texts[0], texts[1]);
        assert_non_null(strstr(texts[0], "\n    \"model\": \"gpt2-nano\",\n"));
    }
    remove(path);
}

static void test_dtypes(void **state) {
    (void)state;
    const struct {
        DtypeChoice choice;
        Backend backend;
        bool fast; // in bf16
        bool possible;
        Dtype dtype;
        bool tf32;
    } cases[] = {{DTYPE_AUTO, BACKEND_CPU, false, true, F32, false},
                 {DTYPE_AUTO, BACKEND_CPU, true, true, BF16, false},
                 {DTYPE_AUTO, BACKEND_CUDA, true, true, BF16, false},
                 {DTYPE_FP32, BACKEND_CUDA, true, true, F32, false},
                 {DTYPE_TF32, BACKEND_CUDA, true, true, F32, true},
                 {DTYPE_FP32, BACKEND_CPU, true, true, F32, false},
                 {DTYPE_TF32, BACKEND_CPU, true, false, F32, false},
                 {DTYPE_BF16, BACKEND_CPU, false, true, BF16, false},
                 {DTYPE_FP64, BACKEND_CPU, true, true, F64, false},
                 {DTYPE_FP64, BACKEND_CUDA, true, false, F64, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ComputeOptions options = {.device = "auto", .dtype = cases[i].choice, .fused = "0"};
        Dtype dtype;
        bool tf32;
        Status status = compute_options_dtype(&options, cases[i].backend, cases[i].fast, &dtype, &tf32);
        assert_true((status == OK) == cases[i].possible);
        status_free(status);
        if (!cases[i].possible) continue;
        assert_int_equal(dtype, cases[i].dtype);
        assert_true(tf32 == cases[i].tf32);
    }
}

static void fuses_have_names(void **state) {
    (void)state;
    uint32_t without, minus, none;
    expect(fuses_parse("1,-attention", &without), NULL, false);
    expect(fuses_parse("-attention", &minus), NULL, false);
    assert_true(minus == without && minus && !(minus >> OP_ATTENTION & 1));
    expect(fuses_parse("0", &none), NULL, false);
    assert_true(none == 0);
    Status status = fuses_parse("atention", &none);
    assert_non_null(
        strstr(status_message(status), "named 'atention'; did you mean 'attention'? There are embed "));
    status_free(status);
    status = fuses_parse("convolution", &none);
    assert_non_null(strstr(status_message(status), "named 'convolution'. There are embed "));
    status_free(status);
    assert_non_null(strstr(fused_doc, " attention "));
}

static void options_have_the_names_that_people_know(void **state) {
    (void)state;
    TrainOptions o;
    OptionSet set;
    bool done;
    assert_null(read_train("--learning-rate=0.5 --batch-size=3 --warmup-steps=2 --grad-clip 0.25 "
                           "--gradient-accumulation-steps=4",
                           &o, &set, &done));
    assert_true(o.lr == 0.5 && o.batch == 3 && o.warmup == 2 && o.clip == 0.25 && o.accum == 4);
    assert_true(options_given(&set, "lr"));
    options_close(&set);
    train("--chat", "--chat is an option of infer"); // --sort is a different option
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuses_have_names),    cmocka_unit_test(options_have_the_names_that_people_know),
        cmocka_unit_test(test_train_defaults), cmocka_unit_test(test_train_contradictions),
        cmocka_unit_test(test_infer_modes),    cmocka_unit_test(test_infer_contradictions),
        cmocka_unit_test(test_help),           cmocka_unit_test(test_print_config),
        cmocka_unit_test(test_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
