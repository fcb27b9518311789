/* progress: how far a run is, on a terminal as a bar at the bottom that is drawn anew, elsewhere as plain
 * lines only. Whatever else is printed meanwhile goes through progress_line, so that no line meets half a
 * bar. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Progress Progress;

/* A run of `total` steps, of which `done` are behind already (a resumed run). Lines go to `lines`; the bar
 * goes to `bar`, the same stream or another (stdout and stderr), if that is a terminal. `quiet` prints
 * nothing at all. */
Progress *progress_open(FILE *lines, FILE *bar, int64_t done, int64_t total, bool quiet);

/* `done` steps are behind, the last of which took `seconds`. Redraws at most ten times a second. */
void progress_step(Progress *progress, int64_t done, double seconds);

/* Prints a line above the bar, printf-style; the newline at its end may be left out. */
void progress_line(Progress *progress, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Takes the bar away until the next step or line, for output that goes another way (a streamed sample). */
void progress_hide(Progress *progress);

/* Seconds to the end, from the median of the latest steps; negative while nothing is known. */
double progress_left(const Progress *progress);

void progress_close(Progress *progress); // takes the bar away
