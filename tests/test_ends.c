/* Runs that a signal ends, or whose files fail: each is saved if possible, and reports why it ended. */
#include "tests/support/program.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* A learning rate that does not depend on the number of steps, because these runs end at any step. */
#define QUICK   TINY " --val-every=0 --sample-every=0 "
#define ENDLESS QUICK "--lr=1e-2 --schedule=constant --warmup=0 --steps=1000000 "

static const char first_step[] = "ls %s | grep -c '^step-'";

static void expect_checkpoint(const char *folder, const char *out) {
    const Ran *ran = program_succeeds(folder, first_step, out);
    assert_true(strtol(ran->output, NULL, 10) >= 1);
    program_succeeds(folder, RESUME " --out=%s --steps=1 -q", out); // it loads
}

/* A terminal that closes. Under nohup the run continues. */
static void test_hangup(void **state) {
    const char *folder = *state;
    pid_t program = program_start(folder, "train " ENDLESS "--out=hung --log=hung.jsonl");
    log_wait(folder, "hung.jsonl", program, "step", 3);
    assert_int_equal(kill(program, SIGHUP), 0);
    const Ran *ran = program_end(folder, program);
    assert_int_equal(ran->code, 0);
    expect_text(ran->output, "interrupted: median of");
    json_t *events = log_read(folder, "hung.jsonl", false);
    assert_int_equal(log_step(log_last(events, "save")), log_step(log_last(events, "step")));
    json_decref(events);
    expect_checkpoint(folder, "hung");
}

static void test_nohup(void **state) {
    const char *folder = *state;
    pid_t program = program_start(folder, "nohup train " ENDLESS "--out=on --log=on.jsonl");
    log_wait(folder, "on.jsonl", program, "step", 3);
    assert_int_equal(kill(program, SIGHUP), 0);
    json_t *events = log_read(folder, "on.jsonl", true);
    int64_t step = log_step(log_last(events, "step"));
    json_decref(events);
    log_wait(folder, "on.jsonl", program, "step", step + 20);
    assert_int_equal(kill(program, SIGTERM), 0);
    assert_int_equal(program_end(folder, program)->code, 0);
}

/* "| head -1": the reader ends early. */
static void test_nobody_reads(void **state) {
    const char *folder = *state;
    const Ran *ran = program_succeeds(folder, "{ train " ENDLESS
                                              "--out=unread 2>unread.err; echo $? >unread.code; } | head -1");
    expect_text(ran->output, "configuration");
    ran = program_succeeds(folder, "cat unread.code unread.err");
    assert_string_equal(ran->output, "3\ntrain: cannot write to standard output\n");
    expect_checkpoint(folder, "unread");
}

/* Standard output is closed from the start: output must not go into the next file that is opened. */
static void test_closed_output(void **state) {
    const char *folder = *state;
    program_refuses(folder, ERROR_FILE, "cannot write to standard output",
                    "train " ENDLESS "--out=closed --log=closed.jsonl --hash-trace=closed.txt >&-");
    json_decref(log_read(folder, "closed.jsonl", false));
    program_succeeds(folder, "! grep configuration -r closed closed.jsonl closed.txt");
    expect_checkpoint(folder, "closed");
    program_succeeds(folder, RESUME " --out=closed --steps=3 -q <&- >&-");
}

/* A file size limit, reached by the log. */
static void test_limited_log(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "yes '{}' | head -c 2037000 >limited.jsonl");
    program_succeeds(folder, "train " QUICK "--steps=1 --out=limited -q");
    program_refuses(
        folder, ERROR_FILE, "log limited.jsonl: File too large",
        "ulimit -f 4000; train --peaks=0 --resume --steps=1000000 --out=limited --log=limited.jsonl -q");
    const Ran *ran = program_succeeds(folder, "ls limited | grep '^step-' | tail -1");
    assert_true(strcmp(ran->output, "step-00000001\n") > 0);
    expect_checkpoint(folder, "limited");
}

/* The same for the curves: the pending log event does not prevent the save. */
static void test_limited_curves(void **state) {
    const char *folder = *state;
    program_refuses(folder, ERROR_FILE, "cannot write curves/",
                    "ulimit -f 800; train " ENDLESS "--out=drawn --tensorboard=curves -q");
    expect_checkpoint(folder, "drawn");
}

/* --out that is removed during the run, or moved away. */
static void expect_out_anew(const char *folder, const char *command) {
    program_succeeds(folder, "rm -rf gone.jsonl");
    pid_t program = program_start(folder, "train " ENDLESS "--out=gone --log=gone.jsonl");
    log_wait(folder, "gone.jsonl", program, "step", 3);
    program_succeeds(folder, "%s", command);
    const Ran *ran = program_end(folder, program);
    assert_int_equal(ran->code, ERROR_FILE);
    expect_text(ran->error, "train: --out=gone was removed or moved during the run");
    expect_checkpoint(folder, "gone");
    program_succeeds(folder, "test -f gone/options.json && rm -rf gone");
}

static void test_removed_out(void **state) {
    expect_out_anew(*state, "mv gone elsewhere");
    expect_out_anew(*state, "rm -r gone");
}

/* A mapped file that becomes shorter ends the run with an error, and saved files are intact. */
static void test_shortened_data(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " QUICK "--steps=1 --out=shards -q && "
                             "cp shards/cache/text.txt.*.bin short.bin");
    pid_t program = program_start(folder, "train " ENDLESS
                                          "--data=short.bin --out=short --log=short.jsonl --save-every=1");
    log_wait(folder, "short.jsonl", program, "save", 3);
    program_succeeds(folder, "truncate -s 1024 short.bin");
    const Ran *ran = program_end(folder, program);
    assert_int_equal(ran->code, ERROR_FILE);
    expect_text(ran->error, "train: a file was shortened by another program");
    program_succeeds(folder, RESUME " --out=short --data=text.txt --steps=1 -q");
}

static void test_nothing_saved(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " QUICK "--steps=1 --out=kept -q");
    const Ran *ran = program_succeeds(folder, RESUME "=kept/step-00000001 --steps=2");
    expect_text(ran->output, "nothing will be saved without --out=FOLDER\n");
}

/* Half-written files of a killed run are removed when the next run locks the folder; other files with such
 * names are not. */
static void test_leftovers(void **state) {
    const char *folder = *state;
    program_succeeds(folder, "train " QUICK "--steps=1 --out=left -q");
    program_succeeds(folder,
                     "cd left && touch options.json.tmp.12.0 cache/a.bin.tmp.3.1 note.tmp. note.tmp.1 "
                     "note.tmp.x.1 note.tmp.1.x");
    program_succeeds(folder, "mkdir left/step-00000002.tmp && touch left/step-00000002.tmp/config.json");
    program_succeeds(folder, RESUME " --out=left --steps=1 -q");
    const Ran *ran = program_succeeds(folder, "cd left && find . -name '*.tmp*' | sort");
    assert_string_equal(ran->output, "./note.tmp.\n./note.tmp.1\n./note.tmp.1.x\n./note.tmp.x.1\n");
}

/* More threads than the system or OpenMP can start. */
static void test_threads(void **state) {
    const char *folder = *state;
    program_refuses(folder, ERROR_USAGE, "OMP_NUM_THREADS=100000: at most 4096 threads can be used",
                    "export OMP_NUM_THREADS=100000; train " QUICK "--steps=1 -q");
    program_refuses(folder, ERROR_USAGE, "--threads=2: OMP_THREAD_LIMIT allows 1",
                    "export OMP_THREAD_LIMIT=1; train " QUICK "--steps=1 --threads=2 -q");
    program_succeeds(folder, "export OMP_THREAD_LIMIT=1 OMP_NUM_THREADS=2 OMP_DYNAMIC=true; "
                             "timeout 60 train " QUICK "--width=512 --fused=0 --steps=1 -q");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hangup),        cmocka_unit_test(test_nohup),
        cmocka_unit_test(test_nobody_reads),  cmocka_unit_test(test_closed_output),
        cmocka_unit_test(test_limited_log),   cmocka_unit_test(test_limited_curves),
        cmocka_unit_test(test_removed_out),   cmocka_unit_test(test_shortened_data),
        cmocka_unit_test(test_nothing_saved), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_leftovers),
    };
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
