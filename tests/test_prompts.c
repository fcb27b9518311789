/* ./infer --prompts: the answers to a file's lines, in batches, and after an interruption. */
#include "base/json_read.h"
#include "tests/support/chat.h"
#include "tests/support/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A batch of prompts gets the same answers as each prompt alone, in their order. */
static void prompts_in_batches(void **state) {
    static const char *const lines[] = {
        "{\"prompt\": \"the box and the door and the box\"}",
        "{\"prompt\": \"one\"}",
        "",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Where is the box?\"}]}",
        "{\"prompt\": \"the door\"}",
        "{\"prompt\": \"one two three\"}"};
    char alone[1 << 14], text[2048] = "";
    for (int i = 0; i < 6; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", lines[i]);
    write_text_file(inside(*state, "prompts.jsonl"), text);
    const Ran *ran = program_succeeds(
        *state, "infer --prompts=prompts.jsonl --model=model --batch=1 --tokens=20 --device=cpu "
                "--dtype=fp32 --repeat-penalty=1.3 --min-p=0.01");
    snprintf(alone, sizeof alone, "%s", ran->output);
    ran = program_succeeds(*state,
                           "infer --prompts=prompts.jsonl --model=model --batch=3 --tokens=20 --device=cpu "
                           "--dtype=fp32 --repeat-penalty=1.3 --min-p=0.01");
    assert_string_equal(ran->output, alone);
    json_t *answer;
    int count = 0;
    for (char *line = strtok(alone, "\n"); line; line = strtok(NULL, "\n"), count++) {
        expect_ok(json_parse(line, (int64_t)strlen(line), "answer", &answer));
        bool ended = json_is_true(json_object_get(answer, "ended"));
        int64_t tokens = json_integer_value(json_object_get(answer, "tokens"));
        assert_true(ended ? tokens < 20 : tokens == 20);
        json_decref(answer);
    }
    assert_int_equal(count, 5);
    write_text_file(inside(*state, "one.jsonl"), "{\"prompt\": \"the box\"}\n");
    snprintf(
        text, sizeof text, "%s",
        program_succeeds(*state, "infer --prompts=one.jsonl --model=model --tokens=9 --device=cpu --seed=4")
            ->output);
    expect_ok(json_parse(text, (int64_t)strlen(text), "answer", &answer));
    snprintf(alone, sizeof alone, "%s\n", case_text(answer, "text"));
    json_decref(answer);
    assert_string_equal(
        program_succeeds(*state, "infer --prompt='the box' --model=model --tokens=9 --device=cpu --seed=4 -q")
            ->output,
        alone);
    write_text_file(inside(*state, "bad.jsonl"), "{\"prompt\": \"a\"}\n{}\n");
    program_refuses(*state, ERROR_FORMAT, "bad.jsonl, line 2: the object has no text under \"prompt\"",
                    "infer --prompts=bad.jsonl --model=model --device=cpu");
    write_text_file(inside(*state, "more.jsonl"),
                    "{\"prompt\": \"a\", \"seed\": 1}\n{\"prompt\": \"a\", \"n\": 1}\n");
    ran = program_succeeds(*state, "infer --prompts=more.jsonl --model=model --tokens=2 --device=cpu -q");
    expect_text(ran->error, "other keys, such as \"seed\", are ignored");
    assert_null(strstr(ran->error, "\"n\""));
    write_text_file(inside(*state, "bad.jsonl"), "\n");
    program_refuses(*state, ERROR_FORMAT, "bad.jsonl has no prompts",
                    "infer --prompts=bad.jsonl --model=model");
}

/* An interrupted run finishes every text that it has begun, and the same command continues after these. */
static void prompts_go_on(void **state) {
    static const char command[] =
        "infer --prompts=many.jsonl --model=model --batch=5 --tokens=50 --device=cpu --dtype=fp32 "
        "--fused=1,invariant --output=";
    char text[256];
    int64_t held;
    program_succeeds(*state, "for i in $(seq 30); do cat prompts.jsonl; done >many.jsonl");
    snprintf(text, sizeof text, "%sx", command);
    const Ran *ran = program_interrupt_answers(*state, "x", text);
    assert_int_equal(sscanf(strstr(ran->error, "x.part holds "), "x.part holds %" SCNd64, &held), 1);
    assert_in_range(held, 5, 149); // the texts that were in the batch are there
    ran = program_succeeds(*state, "%s", text);
    expect_text(ran->error, "continuing after these");
    program_succeeds(*state, "%sall --batch=1 -q", command);
    expect_same_file(*state, "x", "all");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(prompts_in_batches), cmocka_unit_test(prompts_go_on)};
    return cmocka_run_group_tests(tests, chat_setup, scratch_teardown);
}
