#include "data/lines.h"

#include "base/memory.h"
#include "data/text_map.h"

#include <string.h>

/* The line at `at`, before `end`; `next` is set to the start of the next line. */
static Line line_at(const char *at, const char *end, const char **next) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    int64_t length = (newline ? newline : end) - at;
    *next = newline ? newline + 1 : end;
    if (length > 0 && at[length - 1] == '\r') length--;
    return (Line){at, length};
}

Status lines_open(const char *path, Lines *lines) {
    *lines = (Lines){0};
    TRY(text_map(path, &lines->map));
    const char *text = (const char *)lines->map.data, *end = text + lines->map.size, *next;
    int64_t count = 0;
    for (const char *at = text; at < end; at = next, count++) line_at(at, end, &next);
    lines->list = memory_array((size_t)count, sizeof *lines->list);
    for (const char *at = text; at < end; at = next) lines->list[lines->count++] = line_at(at, end, &next);
    return OK;
}

void lines_close(Lines *lines) {
    memory_free(lines->list);
    file_unmap(&lines->map);
    *lines = (Lines){0};
}
