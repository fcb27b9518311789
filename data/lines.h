/* lines: a text, mapped and cut into lines. */
#pragma once

#include "base/files.h"

typedef struct {
    const char *text; // in the mapped file, without its end ("\n" or "\r\n")
    int64_t length;
} Line;

typedef struct {
    Line *list;
    int64_t count;
    FileMap map;
} Lines;

CHECKED Status lines_open(const char *path, Lines *lines);
void lines_close(Lines *lines); // accepts all-zero lines
