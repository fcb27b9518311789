#include "data/json_lines.h"

#include "base/json_read.h"
#include "base/memory.h"
#include "data/lines.h"

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
