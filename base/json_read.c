#include "base/json_read.h"

#include "base/files.h"
#include "base/memory.h"

Status json_parse(const char *text, int64_t length, const char *name, json_t **root) {
    json_error_t error;
    *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (*root) return OK;
    return fail(ERROR_FORMAT, "%s: line %d, column %d: not valid JSON: %s", name, error.line, error.column,
                error.text);
}

Status json_read(const char *path, int64_t limit, json_t **root) {
    char *text;
    int64_t length;
    *root = NULL;
    TRY(file_read(path, limit, &text, &length));
    Status status = json_parse(text, length, path, root);
    memory_free(text);
    return status;
}
