/* wrap: prints text in lines that fit a terminal. */
#pragma once

#include <stdio.h>

/* Width of reports in columns. */
enum { REPORT_WIDTH = 120 };

/* Prints the text in a column that begins at `indent`, broken at blanks to fit `width` columns, in at most
 * `lines` lines; the rest is omitted. `heading` is printed before the first line and is shorter than the
 * indent. A word longer than a line is cut. */
void print_wrapped(const char *heading, int indent, const char *text, int width, int lines, FILE *file);

/* The same with a printf-style text, REPORT_WIDTH wide, without a limit of lines. */
void print_report(const char *heading, int indent, FILE *file, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
