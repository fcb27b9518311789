#include "data/json_lines.h"

#include "base/json_read.h"
#include "data/lines.h"

static Status read_line(const Line *line, JsonLine take, void *context) {
    json_t *object;
    TRY(json_parse(line->text, line->length, NULL, &object));
    Status status = json_is_object(object) ? take(context, object) : fail(ERROR_FORMAT, "not a JSON object");
    json_decref(object);
    return status;
}

Status json_lines_read(const char *path, JsonLine take, void *context) {
    Lines lines;
    TRY(lines_open(path, &lines));
    Status status = OK;
    for (int64_t i = 0; i < lines.count && !status; i++) {
        if (lines.list[i].length == 0) continue;
        status = read_line(&lines.list[i], take, context);
        if (status) status = fail_at(status, "%s, line %lld", path, (long long)i + 1);
    }
    lines_close(&lines);
    return status;
}

Status json_line_text(const json_t *object, const char *key, const char **text, int64_t *length) {
    const json_t *value = json_object_get(object, key);
    *text = json_string_value(value);
    *length = (int64_t)json_string_length(value);
    return *text ? OK : fail(ERROR_FORMAT, "the object has no text under \"%.80s\"", key);
}
