#define _GNU_SOURCE
#include "report/text_file.h"

#include "base/files.h"
#include "base/memory.h"

#include <stdlib.h>

Status text_file_open(TextFile *t) {
    *t = (TextFile){0};
    t->file = open_memstream(&t->text, &t->length);
    return t->file ? OK : fail(ERROR_MEMORY, "out of host memory for a report");
}

Status text_file_save(TextFile *t, const char *folder, const char *name) {
    OWNED char *path = path_join(folder, name);
    Status status = fclose(t->file) == 0 ? OK : fail(ERROR_MEMORY, "out of host memory for %s", name);
    if (!status) status = file_write(path, t->text, (int64_t)t->length);
    free(t->text); // allocated by the C library
    return status;
}
