/* text_file: prints a file into memory, then writes it at once. */
#pragma once

#include "base/status.h"

#include <stdio.h>

typedef struct {
    FILE *file;
    char *text;
    size_t length;
} TextFile;

CHECKED Status text_file_open(TextFile *text);

/* Closes it and writes its text to `folder` under `name`. */
CHECKED Status text_file_save(TextFile *text, const char *folder, const char *name);
