#include "base/json_read.h"

#include "base/files.h"
#include "base/memory.h"

/* jansson does not check all of its allocations. The project's allocator ends the program when memory runs
 * out. It must be installed before any call of jansson, hence before main(). */
static void *allocate(size_t bytes) {
    return memory_resize(NULL, bytes);
}

__attribute__((constructor)) static void take_over_allocation(void) {
    json_set_alloc_funcs(allocate, memory_free);
}

static Status parse(const char *text, int64_t length, const char *name, size_t flags, json_t **root) {
    json_error_t error;
    *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES | flags, &error);
    if (*root) return OK;
    if (!name) return fail(ERROR_FORMAT, "not valid JSON at column %d: %s", error.column, error.text);
    return fail(ERROR_FORMAT, "%s: line %d, column %d: not valid JSON: %s", name, error.line, error.column,
                error.text);
}

Status json_parse(const char *text, int64_t length, const char *name, json_t **root) {
    return parse(text, length, name, 0, root);
}

static Status read_with(const char *path, int64_t limit, size_t flags, json_t **root) {
    OWNED char *text = NULL;
    int64_t length;
    *root = NULL;
    TRY(file_read(path, limit, &text, &length));
    return parse(text, length, path, flags, root);
}

Status json_read(const char *path, int64_t limit, json_t **root) {
    return read_with(path, limit, 0, root);
}

Status json_read_optional(const char *path, int64_t limit, json_t **root) {
    PathKind kind;
    *root = NULL;
    TRY(path_kind(path, &kind));
    return kind == PATH_ABSENT ? OK : json_read(path, limit, root);
}

Status json_read_without_integers(const char *path, int64_t limit, json_t **root) {
    return read_with(path, limit, JSON_DECODE_INT_AS_REAL, root);
}
