/* wrap: prints text in lines that fit a terminal. */
#pragma once

#include <stdio.h>

/* Columns of reports. */
enum { REPORT_WIDTH = 120 };

/* Prints the text in a column that begins at `indent`, broken at blanks to fit `width` columns, in at most
 * `lines` lines; what has no room in them is left out. `heading` stands in front of the first line and is
 * shorter than the indent. A word longer than a line is cut. */
void print_wrapped(const char *heading, int indent, const char *text, int width, int lines, FILE *file);

/* The same with a format, and with as many lines as the text needs, REPORT_WIDTH wide. */
void print_report(const char *heading, int indent, FILE *file, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
