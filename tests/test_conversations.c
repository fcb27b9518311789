/* Training on conversations as a user would, against PyTorch's losses (tests/fixtures/make_chat.py), and
 * chatting with the trained model. */
#include "base/json_read.h"
#include "tasks/chat/conversations.h"
#include "tests/support/chat.h"
#include "tests/support/program.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define FAST                                                                                                 \
    "--device=cpu --peaks=0 --dtype=fp32 --warmup=0 --schedule=constant --weight-decay=0 --clip=0 "          \
    "--val-every=0 --sample-every=0 -q "

enum { STEPS = 20 };

/* The loss does not depend on how conversations are divided into batches, which have different numbers of
 * targets. */
static void losses_are_pytorchs(void **state) {
    static const char *const batches[] = {"--batch=4", "--batch=2 --accum=2",
                                          "--batch=1 --accum=4 --fused=0"};
    json_t *expected;
    expect_ok(json_read("tests/fixtures/chat/losses.json", 1 << 16, &expected));
    for (int i = 0; i < 3; i++) {
        double losses[STEPS];
        program_succeeds(*state,
                         "train --model=model --data=lessons.jsonl --seq=96 --steps=%d --lr=3e-3 " FAST
                         "%s --log=log.jsonl",
                         STEPS, batches[i]);
        assert_int_equal(log_losses(*state, "log.jsonl", "step", 0, losses, STEPS), STEPS);
        for (int step = 0; step < STEPS; step++) {
            double loss =
                json_number_value(json_array_get(json_object_get(expected, "losses"), (size_t)step));
            if (fabs(losses[step] - loss) > 1e-5 * loss)
                fail_msg("%s: step %d has loss %.7f, not %.7f", batches[i], step + 1, losses[step], loss);
        }
    }
    json_t *log = log_read(*state, "log.jsonl", false);
    const json_t *config = log_last(log, "config");
    assert_int_equal(json_integer_value(json_object_get(config, "data_conversations")), 4);
    assert_int_equal(json_integer_value(json_object_get(config, "data_conversations_left_out")), 1);
    assert_int_equal(json_integer_value(json_object_get(config, "data_answer_tokens")),
                     json_integer_value(json_object_get(expected, "answers")));
    json_decref(log);
    json_decref(expected);
}

enum { LINES = 60, ROWS = 3, SEQ = 128, TOKENS = ROWS * SEQ };

/* Counts the targets of each conversation of a row, which identify it; returns the row's number of
 * targets. */
static int64_t look_at_row(const Batch *batch, int64_t row, int seen[LINES]) {
    const int32_t *targets = batch->targets + row * batch->seq;
    const int32_t *starts = batch->starts ? batch->starts + row * batch->seq : NULL;
    int64_t all = 0, length = batch->lengths[row];
    int count = 0;
    for (int64_t k = 0; k < batch->seq; k++) {
        bool begins = starts ? starts[k] == k : k == 0 || k == length;
        if (begins && count) seen[count - 1]++, count = 0;
        if (starts) assert_true(begins || (k > 0 && starts[k] == starts[k - 1]));
        count += targets[k] >= 0;
        all += targets[k] >= 0;
        if (k >= length) assert_int_equal(targets[k], -1);
    }
    if (count) seen[count - 1]++;
    return all;
}

static void look_at_epochs(const ConversationSource *source, bool shuffle) {
    Loader *loader;
    LoaderOptions options = {.batch = ROWS, .seq = SEQ, .shuffle = shuffle, .workers = shuffle};
    expect_ok(loader_open_conversations(&options, source, &loader));
    int64_t batches = loader_windows(loader) / ROWS, padded = 0, expected;
    expect_ok(conversations_padded(source, ROWS, SEQ, false, &expected));
    for (int epoch = 0; epoch < 2; epoch++, padded = 0) {
        int seen[LINES] = {0};
        for (int64_t i = 0; i < batches; i++) {
            Batch batch;
            int64_t targets, longest = 0;
            expect_ok(loader_targets(loader, 1, &targets));
            expect_ok(loader_next(loader, &batch));
            assert_int_equal(targets, batch.tokens);
            assert_int_equal(batch.rows, TOKENS / batch.seq);
            for (int64_t row = 0; row < batch.rows; row++) {
                targets -= look_at_row(&batch, row, seen);
                if (batch.lengths[row] > longest) longest = batch.lengths[row];
            }
            assert_int_equal(targets, 0);
            assert_in_range(batch.seq - longest, 0, 7);
            padded += batch.rows * batch.seq;
        }
        for (int i = 0; i < LINES; i++) assert_int_equal(seen[i], 1);
        if (shuffle) assert_int_equal(padded, expected);
    }
    loader_close(loader);
}

/* In every epoch each conversation occurs once, alone in a row or packed. Rows are as wide as the batch's
 * longest, and as many as its tokens allow. */
static void epochs_of_batches(void **state) {
    FILE *file = fopen(inside(*state, "many.jsonl"), "w");
    int64_t padded[2];
    for (int i = 0; i < LINES; i++) { /* the answer's length identifies the line */
        fprintf(file, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                      "\"content\": \"");
        for (int k = 0; k < i; k++) fprintf(file, "1");
        fprintf(file, "\"}]}\n");
    }
    fclose(file);
    Tokenizer *tokenizer;
    expect_ok(tokenizer_open(inside(*state, "model"), &tokenizer));
    for (int packed = 0; packed < 2; packed++) {
        ConversationSource *source;
        const ConversationOptions options = {inside(*state, "many.jsonl"), tokenizer, "", SEQ, packed};
        expect_ok(conversations_open(&options, &source));
        const ConversationCounts counts = conversations_counts(source);
        assert_int_equal(counts.conversations, LINES);
        assert_int_equal(counts.answers, LINES * (LINES - 1) / 2 + LINES);
        assert_true(packed ? counts.rows * SEQ < counts.tokens * 5 / 4 : counts.rows == LINES);
        expect_ok(conversations_padded(source, ROWS, SEQ, !packed, &padded[packed]));
        for (int shuffle = 0; shuffle < 2; shuffle++) look_at_epochs(source, shuffle);
        conversations_close(source);
    }
    assert_true(padded[1] < padded[0]);
    tokenizer_free(tokenizer);
}

/* A resumed run equals an uninterrupted one, with every option that changes a batch's shape. */
static void runs_go_on(void **state) {
    static const char *const forms[] = {"", "--fused=0 --dropout=0.1",
                                        "--recompute=blocks --accum=3 --workers=2"};
    for (int i = 0; i < 3; i++) {
        program_succeeds(
            *state,
            "rm -rf whole half half.jsonl; train --model=model --data=many.jsonl --seq=128 --batch=3 "
            "--steps=8 "
            "--lr=1e-3 --warmup=0 --schedule=constant --val-every=4 --val-steps=2 --sample-every=0 "
            "--device=cpu --peaks=0 -q --check %s --out=whole --log=whole.jsonl",
            forms[i]);
        program_succeeds(
            *state,
            "train --model=model --data=many.jsonl --seq=128 --batch=3 --steps=8 --lr=1e-3 --warmup=0 "
            "--schedule=constant --val-every=4 --val-steps=2 --sample-every=0 --device=cpu --peaks=0 -q %s "
            "--out=half --save-every=4 --keep=0 && rm -rf half/step-00000008 && " RESUME
            " --out=half -q --log=half.jsonl",
            forms[i]);
        assert_string_equal(log_numbers(*state, "half.jsonl", 4), log_numbers(*state, "whole.jsonl", 4));
    }
}

static void comparison(void **state) {
    const Ran *ran = program_succeeds(
        *state, "train --model=model --data=lessons.jsonl --seq=96 --batch=2 --compare --device=cpu "
                "--peaks=0 --threads=1");
    expect_text(ran->output, "attention");
}

/* A run's sample is a message and the model's answer, which ends where the template ends it. */
static void samples_are_conversations(void **state) {
    const Ran *ran = program_succeeds(
        *state,
        "train --model=model --data=lessons.jsonl --seq=96 --batch=4 --steps=150 --lr=2e-2 "
        "--device=cpu --peaks=0 --dtype=fp32 --warmup=0 --schedule=constant --weight-decay=0 --clip=0 "
        "--val-every=0 --sample-every=150 --sample-prompt='Where is the box?' --sample-tokens=40");
    expect_text(ran->output, "> Where is the box?\nBehind the door.\n");
    ran = program_succeeds(*state, "train --model=model --data=lessons.jsonl --seq=96 --batch=1 --steps=1 "
                                   "--device=cpu --peaks=0 --val-every=0 --template=chatml");
    expect_text(ran->output, "> Hello!\n");
}

/* A conversation longer than --seq is cut, and left out if no target remains. */
static void long_ones_are_cut(void **state) {
    const Ran *ran =
        program_succeeds(*state, "train --model=model --data=lessons.jsonl --seq=64 --steps=1 --batch=8 "
                                 "--device=cpu --peaks=0 --val-every=0 --sample-every=0");
    expect_text(ran->output, " cut, ");
    expect_text(ran->output, " left out) in ");
    expect_text(ran->output, "% padding (");
    program_refuses(*state, ERROR_FORMAT, "no conversation has an answer",
                    "train --model=model --data=lessons.jsonl "
                    "--seq=4 --steps=1 " FAST);
}

static void what_is_learned_is_said(void **state) {
    program_succeeds(*state,
                     "train --model=model --data=lessons.jsonl --seq=96 --batch=4 --steps=150 --lr=2e-2 " FAST
                     "--out=run");
    const Ran *ran =
        program_succeeds(*state, "printf 'Where is the box?\\r\\n\\nWhere is the box?' | "
                                 "infer --chat --model=run --temperature=0 --device=cpu --tokens=40");
    expect_text(ran->output, "Behind the door.\n");
    ran = program_succeeds(*state,
                           "printf 'one\\nthree and four and five and six\\n' | infer --chat --model=run "
                           "--system='Be short.' --temperature=0 --device=cpu --tokens=40 -q");
    assert_string_equal(ran->output, "two\nseven\n");
    assert_string_equal(ran->error, "");
    ran = program_succeeds(
        *state, "printf 'a\\nc\\ne\\n' | infer --chat --model=run --template=chatml --temperature=0 "
                "--device=cpu --tokens=8 -q");
    expect_text(ran->output, "\n");
}

/* If the context is full the oldest messages are dropped; a message that cannot fit is refused. */
static void full_contexts(void **state) {
    const Ran *ran =
        program_succeeds(*state, "for i in 1 2 3 4; do echo one; done | infer --chat --model=model "
                                 "--context=96 --tokens=20 --device=cpu -q --temperature=0");
    expect_text(ran->error, "(the context of 96 tokens is full: the oldest message and its answer are gone)");
    ran = program_succeeds(*state, "for i in 1 2 3 4; do printf 'one two three four '; done | infer --chat "
                                   "--model=model --context=60 --device=cpu -q");
    expect_text(ran->error, "(the message is too long: it has ");
    ran = program_succeeds(*state, "echo one | infer --chat --model=model --context=60 --device=cpu -q "
                                   "--system=\"$(yes one | head -60)\"");
    expect_text(ran->error, "(the message is too long: with the system message it has ");
    ran = program_succeeds(*state, "printf 'one\\none\\n' | infer --chat --model=model --context=128 "
                                   "--tokens=34 --device=cpu --dtype=fp32 -q --temperature=0");
    expect_text(ran->error,
                "\n(the context of 128 tokens is full: the oldest message and its answer are gone)");
    ran = program_succeeds(
        *state, "echo one | infer --chat --model=model --context=70 --device=cpu -q --temperature=0");
    expect_text(ran->error, "(the context of 70 tokens is full: the answer ends here)");
    for (int context = 74; context < 82; context++) { /* at 78 a message and a token fit exactly */
        ran = program_succeeds(*state,
                               "for i in 1 2 3; do echo one; done | infer --chat --model=model --context=%d "
                               "--tokens=12 --device=cpu -q --temperature=0 --threads=1",
                               context);
        assert_null(strstr(ran->error, "too long"));
        const Ran *drafted =
            program_succeeds(*state,
                             "for i in 1 2 3; do echo one; done | infer --chat --model=model --context=%d "
                             "--tokens=12 --device=cpu -q --temperature=0 --threads=1 --draft=model",
                             context);
        assert_string_equal(drafted->output, ran->output);
        assert_string_equal(drafted->error, ran->error);
    }
}

/* A message that is too long even for an empty window removes nothing. */
static void too_long_a_message(void **state) {
    const Ran *ran = program_succeeds(*state, "(echo one; printf 'one %%.0s' $(seq 99); printf '\\n/save "
                                              "kept.jsonl\\n') | infer --chat --model=model "
                                              "--context=96 --tokens=4 --device=cpu -q --temperature=0");
    expect_text(ran->error, "(the message is too long: it has ");
    assert_null(strstr(ran->error, "gone"));
}

/* The messages in a file written by /save. */
static json_t *saved_messages(const char *path) {
    json_t *root, *messages;
    expect_ok(json_read(path, 1 << 20, &root));
    messages = json_incref(json_object_get(root, "messages"));
    json_decref(root);
    return messages;
}

static void commands(void **state) {
    char first[4096];
    const Ran *ran = program_succeeds(
        *state, "printf 'one\\n/save a.jsonl\\n/clear\\none\\n/system Be short.\\none\\\\\\ntwo\\n"
                "/save b.jsonl\\n/save no/such\\n/save\\n/help\\n/helpless\\n' | infer --chat "
                "--model=model --tokens=6 --device=cpu -q --temperature=0");
    expect_text(ran->error, "/system TEXT");
    expect_text(ran->error, "(saved in a.jsonl)");
    expect_text(ran->error, "no/such");
    expect_text(ran->error, "/save needs the name of a file");
    snprintf(first, sizeof first, "%.*s\n", (int)strcspn(ran->output, "\n"), ran->output);
    if (strncmp(ran->output + strlen(first), first, strlen(first)) != 0)
        fail_msg("another answer after /clear: %s", ran->output);
    json_t *before = saved_messages(inside(*state, "a.jsonl")),
           *after = saved_messages(inside(*state, "b.jsonl"));
    assert_int_equal(json_array_size(before), 2);
    assert_string_equal(case_text(json_array_get(before, 0), "content"), "one");
    assert_int_equal(json_array_size(after), 3);
    assert_string_equal(case_text(json_array_get(after, 0), "content"), "Be short.");
    assert_string_equal(case_text(json_array_get(after, 1), "content"), "one\ntwo");
    assert_string_equal(case_text(json_array_get(after, 2), "role"), "assistant");
    json_decref(before);
    json_decref(after);
    program_succeeds(*state, "train --model=model --data=a.jsonl --seq=96 --steps=1 --batch=1 " FAST);
}

/* The template used in training is saved with the model. */
static void a_chosen_template_is_kept(void **state) {
    program_run(*state, "cp -r model bare");
    write_text_file(inside(*state, "bare/tokenizer_config.json"), "{\"eos_token\": \"<|im_end|>\"}\n");
    program_refuses(*state, ERROR_USAGE, "the model has no chat template",
                    "echo one | infer --chat --model=bare --device=cpu -q");
    program_succeeds(*state,
                     "train --model=bare --data=lessons.jsonl --template=chatml --seq=96 --steps=1 --batch=1 "
                     "--out=chosen " FAST);
    const Ran *ran = program_succeeds(
        *state, "train --model=bare --data=lessons.jsonl --template=chatml --seq=96 --steps=1 --batch=1 "
                "--val-every=0 --device=cpu --peaks=0");
    expect_text(ran->output, "> Hello!\n"); // the run's samples have the chosen template, too
    program_succeeds(*state, "echo one | infer --chat --model=chosen --tokens=3 --device=cpu -q");
}

static void what_cannot_be(void **state) {
    static const struct {
        const char *line, *part;
    } lines[] = {
        {"{\"text\": \"a\"}", "line 2: the object has no \"messages\"; where its text stands"},
        {"{\"messages\": []}", "line 2: \"messages\" must be a list of 1 to 65536 messages"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", "line 2: message 1: the role is tool"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "message 1: the role is missing"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "message 1: the object has no text under \"content\""},
        {"{\"messages\": 1", "line 2: "},
    };
    char text[512];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}\n%s\n",
                 lines[i].line);
        write_text_file(inside(*state, "bad.jsonl"), text);
        program_refuses(*state, ERROR_FORMAT, lines[i].part,
                        "train --model=model --data=bad.jsonl --steps=1 " FAST);
    }
    program_refuses(*state, ERROR_USAGE, "lessons.jsonl as conversations (--field=KEY reads a text a line)",
                    "train --model=llama-nano --data=lessons.jsonl "
                    "--steps=1 " FAST);
    write_text_file(inside(*state, "empty.jsonl"), "");
    program_refuses(*state, ERROR_FORMAT, "empty.jsonl is empty",
                    "train --model=model --data=empty.jsonl --steps=1 " FAST);
    program_refuses(*state, ERROR_USAGE, "--template has no effect without conversations",
                    "train --model=model --data=text.txt --template=chatml --steps=1 " FAST);
    program_refuses(*state, ERROR_USAGE, "--field has no effect without --eval",
                    "infer --chat --model=model --field=text --device=cpu </dev/null");
    program_refuses(*state, ERROR_USAGE, "no chat template named x",
                    "infer --chat --model=model --template=x "
                    "--device=cpu </dev/null");
    program_refuses(*state, ERROR_USAGE, "--context=4096 is more than the model's 128",
                    "infer --chat --model=model "
                    "--context=4096 --device=cpu </dev/null");
}

static void texts_of_json_lines(void **state) {
    write_text_file(inside(*state, "texts.jsonl"),
                    "{\"t\": \"the box and the door\"}\n{\"t\": \"one two three\"}\n");
    program_succeeds(*state,
                     "train --model=model --data=texts.jsonl --field=t --seq=4 --steps=2 --batch=1 " FAST);
    const Ran *ran =
        program_succeeds(*state, "infer --eval=texts.jsonl --field=t --model=model --seq=4 --batch=1 "
                                 "--device=cpu");
    expect_text(ran->output, "texts.jsonl: ");
    expect_text(ran->output, "tokens, mean loss");
    assert_string_equal(ran->error, "");
}

/* A table, or JSON lines without --field, is read as text, with a warning. */
static void what_is_no_prose_is_said(void **state) {
    static const char note[] = "table.csv is read as plain text";
    write_text_file(inside(*state, "table.csv"), "name,text\na,\"the box and the door\"\n");
    const Ran *ran = program_succeeds(
        *state, "train --model=model --data=table.csv --seq=4 --steps=1 --batch=1 --device=cpu "
                "--peaks=0 --val-every=0");
    expect_text(ran->output, note);
    ran = program_succeeds(*state, "infer --eval=table.csv --model=model --seq=4 --batch=1 --device=cpu");
    expect_text(ran->error, note);
    ran = program_succeeds(*state, "infer --eval=texts.jsonl --model=model --seq=4 --batch=1 --device=cpu");
    expect_text(ran->error, "texts.jsonl is read as plain text");
    program_succeeds(*state, "gzip -k table.csv && mv table.csv table.txt");
    ran = program_succeeds(*state, "infer --eval=table.csv.gz --model=model --seq=4 --batch=1 --device=cpu");
    expect_text(ran->error, "table.csv.gz is read as plain text");
    ran = program_succeeds(*state, "infer --eval=table.txt --model=model --seq=4 --batch=1 --device=cpu");
    assert_string_equal(ran->error, "");
}

/* Ctrl-C while waiting for a message ends the conversation. */
static void interrupts(void **state) {
    program_run(*state, "mkfifo pipe");
    pid_t program = program_start(*state, "infer --chat --model=model --device=cpu -q <>pipe");
    program_wait_handler(program, SIGINT);
    wait_ms(200);
    kill(program, SIGINT);
    assert_int_equal(program_end(*state, program)->code, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_pytorchs),
        cmocka_unit_test(epochs_of_batches),
        cmocka_unit_test(runs_go_on),
        cmocka_unit_test(long_ones_are_cut),
        cmocka_unit_test(comparison),
        cmocka_unit_test(samples_are_conversations),
        cmocka_unit_test(what_is_learned_is_said),
        cmocka_unit_test(full_contexts),
        cmocka_unit_test(too_long_a_message),
        cmocka_unit_test(commands),
        cmocka_unit_test(a_chosen_template_is_kept),
        cmocka_unit_test(what_cannot_be),
        cmocka_unit_test(texts_of_json_lines),
        cmocka_unit_test(what_is_no_prose_is_said),
        cmocka_unit_test(interrupts),
    };
    return cmocka_run_group_tests(tests, chat_setup, scratch_teardown);
}
