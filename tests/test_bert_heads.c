/* The programs with a BERT's folder that has no head for masked tokens, or a head for another task. */
#include "tests/support/program.h"

#include "data/safetensors.h"

#include <limits.h>
#include <stdlib.h>

#define TRAIN                                                                                                \
    "train --data=words.txt --seq=16 --batch=2 --steps=2 --val-every=0 --device=cpu --peaks=0 "              \
    "--tokenizer=encoder "

/* The encoder's tensors and a layer called `head`. */
static void write_with_head(const char *folder, const char *name, const char *head) {
    enum { WIDTH = 24, LAYERS = 2 };
    static const float values[LAYERS * WIDTH] = {1};
    char path[PATH_MAX], weight[40], bias[40];
    Safetensors *from;
    SafetensorsWriter *writer;
    SafetensorsEntry entries[100] = {0};
    snprintf(weight, sizeof weight, "%s.weight", head);
    snprintf(bias, sizeof bias, "%s.bias", head);
    program_succeeds(folder, "cp -r encoder %s", name);
    snprintf(path, sizeof path, "%s/model.safetensors", inside(folder, "encoder"));
    expect_ok(safetensors_open(path, &from));
    int64_t count = safetensors_count(from);
    for (int64_t i = 0; i < count; i++) entries[i] = *safetensors_entry(from, i);
    entries[count] = (SafetensorsEntry){.name = weight, .type = SAFE_F32, .rank = 2, .d = {LAYERS, WIDTH}};
    entries[count + 1] = (SafetensorsEntry){.name = bias, .type = SAFE_F32, .rank = 1, .d = {LAYERS}};
    snprintf(path, sizeof path, "%s/model.safetensors", inside(folder, name));
    expect_ok(safetensors_writer_open(path, entries, count + 2, NULL, 0, &writer));
    for (int64_t i = 0; i < count; i++)
        expect_ok(safetensors_writer_append(writer, entries[i].data, entries[i].bytes));
    expect_ok(safetensors_writer_append(writer, values, sizeof values));
    expect_ok(safetensors_writer_append(writer, values, LAYERS * sizeof *values));
    expect_ok(safetensors_writer_close(writer));
    safetensors_close(from);
}

static int setup(void **state) {
    char encoder[PATH_MAX];
    if (program_setup(state) != 0 || !realpath("tests/fixtures/bert/encoder", encoder)) return -1;
    program_succeeds(*state, "cp -r %s encoder", encoder);
    write_text_file(inside(*state, "encoder/vocab.txt"),
                    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\ndog\nruns\n");
    write_text_file(inside(*state, "lines.txt"), "one two\ndog runs one\n");
    program_succeeds(*state,
                     "for i in 1 2 3 4 5 6 7 8; do echo one two dog runs one two dog runs; done >words.txt");
    return 0;
}

static void an_encoder_alone_embeds_and_guesses_nothing(void **state) {
    const char *refused = "the model in encoder has none";
    program_succeeds(*state, "infer --model=encoder --embed=lines.txt --output=e.safetensors --device=cpu");
    program_refuses(*state, ERROR_USAGE, refused, "infer --model=encoder --fill='one [MASK]' --device=cpu");
    program_refuses(*state, ERROR_USAGE, refused,
                    "infer --model=encoder --logits=l.safetensors --ids=5,6 --device=cpu");
    program_refuses(*state, ERROR_USAGE, "see --fill, --embed or --logits",
                    "infer --model=encoder --eval=lines.txt --device=cpu");
}

/* Everything but the head comes from the folder: the loss depends only on the seed of the new head. */
static void a_new_head_is_drawn_and_trained(void **state) {
    double first[2], again[2], other[2];
    program_refuses(*state, ERROR_USAGE, "--new-head", TRAIN "--model=encoder");
    const Ran *ran = program_succeeds(*state, TRAIN "--model=encoder --new-head --out=run --log=1.jsonl");
    expect_text(ran->output, "with a new head");
    program_succeeds(*state, TRAIN "--model=encoder --new-head --log=2.jsonl");
    program_succeeds(*state, TRAIN "--model=encoder --new-head --seed=2 --log=3.jsonl");
    log_losses(*state, "1.jsonl", "step", 0, first, 2);
    log_losses(*state, "2.jsonl", "step", 0, again, 2);
    log_losses(*state, "3.jsonl", "step", 0, other, 2);
    assert_true(first[0] == again[0] && first[1] == again[1] && first[0] != other[0]);
    program_succeeds(*state, "infer --model=run --fill='one [MASK]' --device=cpu");
    program_succeeds(*state, RESUME " --out=run --steps=3 --device=cpu -q");
}

/* As an encoder it gives the same output as without that head, and the run reports that the head is not
 * used. */
static void a_head_for_something_else_is_left_out(void **state) {
    static const char *const heads[][2] = {{"classifier", "classes"},
                                           {"qa_outputs", "answers to questions"},
                                           {"cls.seq_relationship", "pairs of sentences"}};
    for (int i = 0; i < 3; i++) {
        write_with_head(*state, heads[i][0], heads[i][0]);
        program_succeeds(*state,
                         "infer --model=encoder --embed=lines.txt --output=e.safetensors --device=cpu");
        const Ran *ran = program_succeeds(
            *state, "infer --model=%s --embed=lines.txt --output=h.safetensors --device=cpu", heads[i][0]);
        expect_text(ran->error, heads[i][1]);
        expect_same_file(*state, "e.safetensors", "h.safetensors");
        ran = program_succeeds(*state, TRAIN "--model=%s --new-head", heads[i][0]);
        expect_text(ran->output, heads[i][1]);
    }
    write_with_head(*state, "score", "score");
    program_refuses(*state, ERROR_FORMAT, "no tensor 'score",
                    "infer --model=score --embed=lines.txt --output=h.safetensors --device=cpu");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_encoder_alone_embeds_and_guesses_nothing),
                                       cmocka_unit_test(a_new_head_is_drawn_and_trained),
                                       cmocka_unit_test(a_head_for_something_else_is_left_out)};
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
