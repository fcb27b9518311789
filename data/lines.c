#include "data/lines.h"

#include "base/memory.h"
#include "data/text_map.h"
#include "base/json_read.h"

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

/* ---- JSON lines ---- */

static Status read_line(const Line *line, JsonLine take, void *context) {
    json_auto_t *object = NULL;
    TRY(json_parse(line->text, line->length, NULL, &object));
    return json_is_object(object) ? take(context, object) : fail(ERROR_FORMAT, "not a JSON object");
}

Status json_lines_read(const char *path, JsonLine take, void *context) {
    CLOSED_BY(lines_close) Lines lines = {0};
    TRY(lines_open(path, &lines));
    for (int64_t i = 0; i < lines.count; i++)
        if (lines.list[i].length)
            TRY(fail_at(read_line(&lines.list[i], take, context), "%s, line %lld", path, (long long)i + 1));
    return OK;
}

Status json_line_text(const json_t *object, const char *key, const char **text, int64_t *length) {
    const json_t *value = json_object_get(object, key);
    *text = json_string_value(value);
    *length = (int64_t)json_string_length(value);
    return *text ? OK : fail(ERROR_FORMAT, "the object has no text under \"%.80s\"", key);
}
