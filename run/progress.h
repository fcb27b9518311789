/* progress: on a terminal a progress bar in the last line; elsewhere only plain lines. All other output goes
 * through progress_line meanwhile, so that it does not mix with the bar. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Progress Progress;

/* A run of `total` steps, `done` of which are already complete (a resumed run). Lines go to `lines`; the bar
 * goes to `bar`, the same stream or another (stdout and stderr), if that is a terminal. `quiet` prints
 * nothing at all. */
Progress *progress_open(FILE *lines, FILE *bar, int64_t done, int64_t total, bool quiet);

/* `done` steps are complete, and the last one took `seconds`. Redraws at most ten times a second. */
void progress_step(Progress *progress, int64_t done, double seconds);

/* Prints a line above the bar, printf-style; the newline at its end is optional. */
void progress_line(Progress *progress, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Hides the bar until the next step or line, for output that bypasses progress_line (a streamed sample). */
void progress_hide(Progress *progress);

/* Estimated seconds to the end, from the median of the latest steps; negative if unknown. */
double progress_left(const Progress *progress);

void progress_close(Progress *progress); // removes the bar
