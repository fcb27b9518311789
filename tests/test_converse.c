/* A conversation at a terminal. */
#include "base/json_read.h"
#include "tests/support/chat.h"
#include "tests/support/program.h"
#include "tests/support/terminal.h"

#include <string.h>
#include <unistd.h>

/* Starts a program on a terminal of 100 columns. */
static pid_t start_at(const char *folder, const char *command, int *terminal) {
    char path[64];
    *terminal = terminal_open(100, path);
    return program_start(folder, "setsid sh -c 'exec %s <>%s >&0 2>&0'", command, path);
}

#define CHAT "infer --chat --model=model --device=cpu --temperature=0 --tokens=2"

/* The user's messages in the file written by /save, each followed by "; ". */
static void expect_said(const char *folder, const char *expected) {
    char said[256] = "";
    json_t *root, *message;
    size_t i;
    expect_ok(json_read(inside(folder, "said.jsonl"), 1 << 16, &root));
    json_array_foreach(json_object_get(root, "messages"), i, message) {
        if (strcmp(case_text(message, "role"), "user") != 0) continue;
        strcat(strcat(said, case_text(message, "content")), "; ");
    }
    assert_string_equal(said, expected);
    json_decref(root);
}

/* Types each line once the previous one has been answered, saves the conversation and ends. */
static void type_lines(const char *folder, pid_t program, int terminal, const char *const *lines) {
    for (; *lines; lines++) {
        terminal_type(terminal, *lines);
        terminal_expect(terminal, "\n> ");
    }
    terminal_type(terminal, "/save said.jsonl\r");
    terminal_expect(terminal, "(saved in said.jsonl)\r\n> ");
    terminal_type(terminal, "\004");
    assert_int_equal(program_end(folder, program)->code, 0);
    close(terminal);
}

static void greeting(void **state) {
    static const char *const lines[] = {"one\r", "two\\\rthree\r", NULL};
    int terminal;
    pid_t program = start_at(*state, CHAT, &terminal);
    const char *greeting = terminal_expect(terminal, "> ");
    expect_text(greeting, "model, 128 tokens of context. /help lists the commands");
    expect_text(greeting, "Ctrl-D the conversation");
    type_lines(*state, program, terminal, lines);
    expect_said(*state, "one; two\nthree; ");
}

/* Line editing: backspace removes a character of two bytes at once, and arrow keys recall earlier lines. */
static void lines_are_edited(void **state) {
    static const char *const lines[] = {"oe\033[Dn\r", "tw\xc3\xb6\177o\r", "\033[A\033[A\r", NULL};
    int terminal;
    pid_t program = start_at(*state, "env LC_ALL=C TERM=xterm " CHAT, &terminal);
    const char *greeting = terminal_expect(terminal, "> ");
    bool edits = strstr(greeting, "the arrow keys");
    if (!edits) terminal_type(terminal, "\004");
    if (!edits) program_end(*state, program);
    if (!edits) skip();
    type_lines(*state, program, terminal, lines);
    expect_said(*state, "one; two; one; ");
}

static void interrupted_at_the_prompt(void **state) {
    int terminal;
    pid_t program = start_at(*state, "env TERM=xterm " CHAT, &terminal);
    terminal_expect(terminal, "> ");
    terminal_type(terminal, "half a l\003");
    assert_int_equal(program_end(*state, program)->code, 0);
    close(terminal);
}

/* The progress bar is cleared before the greeting; --quiet shows no bar. */
static void loading(void **state) {
    int terminal;
    program_succeeds(*state, "train --model=llama-nano --width=192 --steps=1 --batch=1 --seq=8 --val-every=0 "
                             "--sample-every=0 --tokenizer=model --out=larger -q "
                             "--device=cpu --peaks=0 --data=text.txt");
    for (int quiet = 0; quiet < 2; quiet++) {
        pid_t program = start_at(*state,
                                 quiet ? "infer --chat --template=chatml --model=larger --device=cpu -q"
                                       : "infer --chat --template=chatml --model=larger --device=cpu",
                                 &terminal);
        bool bar = strstr(terminal_expect(terminal, "> "), "[===") != NULL;
        assert_int_equal(bar, !quiet);
        terminal_type(terminal, "\004");
        assert_int_equal(program_end(*state, program)->code, 0);
        close(terminal);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greeting),
        cmocka_unit_test(lines_are_edited),
        cmocka_unit_test(loading),
        cmocka_unit_test(interrupted_at_the_prompt),
    };
    return cmocka_run_group_tests(tests, chat_setup, scratch_teardown);
}
