/* program: runs the built train and infer as a user does: a command, a folder, an exit code and two texts.
 * The binaries are those of the test's own build, in the folder above the test's. */
#pragma once

#include "tests/support/expect.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct {
    int code;             // the exit code, or 128 + the signal that ended it
    char output[1 << 17]; // zero-terminated; longer ones are cut off
    char error[1 << 16];  // the same
} Ran;

/* What the runs of these tests have in common: a model that takes milliseconds. A later option wins. */
#define TINY "--layers=2 --width=32 --heads=2 --context=32 --batch=2 --data=text.txt --device=cpu --peaks=0"
/* Going on: the machine's limits, which take seconds to measure, matter to the tests of them alone. */
#define RESUME "train --peaks=0 --resume"

/* For cmocka_run_group_tests: *state is the path of a scratch folder with text.txt, 20,000 bytes of words,
 * and validation.txt, 257 bytes: eight windows of 32 and the target of the last. */
int program_setup(void **state);

/* Runs "train --steps=3 >file" in the folder, in a shell. What it returns stays until the fourth call
 * after it. */
const Ran *program_run(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, and the test fails unless the exit code is 0. */
const Ran *program_succeeds(const char *folder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, and the test fails unless the exit code is `code`, the last line on standard error is "program: "
 * and a message that holds `part`, and it is the only one (but for ERROR_MEMORY, which shows the plan
 * first). */
const Ran *program_refuses(const char *folder, ErrorCode code, const char *part, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Skips the test where train finds no GPU. */
void program_needs_gpu(const char *folder);

/* Starts one and leaves it running; program_end waits for it. */
pid_t program_start(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));
const Ran *program_end(const char *folder, pid_t program);
bool program_runs(pid_t program);
/* Waits until the program has a handler for the signal; fails the test if it ends before. */
void program_wait_handler(pid_t program, int number);
void wait_ms(int ms);

/* The events of a --log file, an array to be freed with json_decref. A half line at the end is passed over
 * when the program still runs, and fails the test otherwise. */
json_t *log_read(const char *folder, const char *log, bool running);
/* The last event of this name, or NULL. */
const json_t *log_last(const json_t *events, const char *event);
int64_t log_step(const json_t *event); // -1 for NULL
/* Waits until the log has an event of this name at `step` or later. */
void log_wait(const char *folder, const char *log, pid_t program, const char *event, int64_t step);
/* The losses of the events of this name ("step", "val") after step `after`, up to `most` of them; their
 * count. */
int log_losses(const char *folder, const char *log, const char *event, int64_t after, double *losses,
               int most);
/* Every number that a run computes: step, loss, norm and learning rate of its steps, validations and skipped
 * steps in order, with all digits: equal texts mean runs that are equal to the last bit. Steps up to
 * `after` are left out. Stays until the fourth call after it. */
const char *log_numbers(const char *folder, const char *log, int64_t after);

/* Fails the test unless both files hold the same bytes. */
void expect_same_file(const char *folder, const char *one, const char *other);
/* Fails the test unless the text occurs. */
void expect_text(const char *text, const char *part);
