/* wrap: prints text in lines that fit a terminal. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* Columns of a report in a file, and the most on a terminal. */
enum { REPORT_WIDTH = 120 };

/* The columns of a report: those of the terminal if `file` is a narrower one, but at least 60. */
int report_width(FILE *file);

/* Whether a table must do without the columns that matter least. */
bool report_is_narrow(FILE *file);

/* Prints the text in a column that begins at `indent`, broken at blanks to fit `width` columns, in at most
 * `lines` lines; the rest is omitted. `heading` is printed before the first line and is shorter than the
 * indent. A word longer than a line is cut. */
void print_wrapped(const char *heading, int indent, const char *text, int width, int lines, FILE *file);

/* The same with a printf-style text, report_width() wide, without a limit of lines. */
void print_report(const char *heading, int indent, FILE *file, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
