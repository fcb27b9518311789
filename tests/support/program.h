/* program: runs the built train and infer like a user: a command, a folder, an exit code and two texts. The
 * binaries are those of the test's own build, in the folder above the test's. */
#pragma once

#include "tests/support/expect.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct {
    int code;             // the exit code, or 128 + the signal that ended it
    char output[1 << 17]; // zero-terminated; truncated if longer
    char error[1 << 16];  // likewise
} Ran;

/* Common options of these runs: a model that takes milliseconds. Later options override them. */
#define TINY "--layers=2 --width=32 --heads=2 --context=32 --batch=2 --data=text.txt --device=cpu --peaks=0"
/* Resumes without measuring the machine's limits, which takes seconds and concerns only their own tests. */
#define RESUME "train --peaks=0 --resume"

/* For cmocka_run_group_tests: *state is the path of a scratch folder with text.txt, 20,000 bytes of words,
 * and validation.txt, 257 bytes: eight windows of 32 and the target of the last. */
int program_setup(void **state);

/* Runs a command such as "train --steps=3 >file" in the folder, in a shell. The result is valid until the
 * fourth call after it. */
const Ran *program_run(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, and fails the test unless the exit code is 0. */
const Ran *program_succeeds(const char *folder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, and fails the test unless the exit code is `code` and the only line on standard error is
 * "program: " and a message that contains `part` (for ERROR_MEMORY the last line, after the plan). */
const Ran *program_refuses(const char *folder, ErrorCode code, const char *part, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Skips the test if train finds no GPU. */
void program_needs_gpu(const char *folder);

/* Starts a program without waiting; program_end waits for it. */
pid_t program_start(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));
const Ran *program_end(const char *folder, pid_t program);
bool program_runs(pid_t program);
/* Waits until the program handles the signal; fails the test if the program ends before. */
void program_wait_handler(pid_t program, int number);
void wait_ms(int ms);
/* Starts a command with --output=FILE and interrupts it when FILE.part holds some answers. */
const Ran *program_interrupt_answers(const char *folder, const char *file, const char *command);

/* The events of a --log file, as an array to free with json_decref. An incomplete last line is ignored while
 * the program runs, and fails the test otherwise. */
json_t *log_read(const char *folder, const char *log, bool running);
/* The last event of this name, or NULL. */
const json_t *log_last(const json_t *events, const char *event);
int64_t log_step(const json_t *event); // -1 for NULL
/* Waits until the log has an event of this name at `step` or later. */
void log_wait(const char *folder, const char *log, pid_t program, const char *event, int64_t step);
/* The losses of the events of this name ("step", "val") after step `after`, at most `most`; returns their
 * number. */
int log_losses(const char *folder, const char *log, const char *event, int64_t after, double *losses,
               int most);
/* All numbers that a run computes after step `after`, with all digits: step, loss, norm and learning rate of
 * its steps, validations and skipped steps in order. Equal texts mean bitwise equal runs. Valid until the
 * fourth call after it. */
const char *log_numbers(const char *folder, const char *log, int64_t after);

/* Fails the test unless both files are equal. */
void expect_same_file(const char *folder, const char *one, const char *other);
/* Fails the test unless each line of the report has at most REPORT_WIDTH columns. */
void expect_width(const char *report);
/* Fails the test unless `text` contains `part`. */
void expect_text(const char *text, const char *part);
