/* text_file: a file that is printed into memory and then written whole. */
#pragma once

#include "base/status.h"

#include <stdio.h>

typedef struct {
    FILE *file;
    char *text;
    size_t length;
} TextFile;

CHECKED Status text_file_open(TextFile *text);

/* Closes it and writes what was printed into `folder` under `name`. */
CHECKED Status text_file_save(TextFile *text, const char *folder, const char *name);
