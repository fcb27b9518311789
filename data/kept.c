#include "data/kept.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20 /* bytes */ };

static Status read_file(const char *folder, const char *name, json_t **root) {
    OWNED char *path = path_join(folder, name);
    return json_read_optional(path, FILE_LIMIT, root);
}

Status kept_read(const char *folder, Kept *kept) {
    *kept = (Kept){0};
    TRY(read_file(folder, "config.json", &kept->config));
    Status status = read_file(folder, "generation_config.json", &kept->generation);
    if (status) kept_free(kept);
    return status;
}

void kept_free(Kept *kept) {
    json_decref(kept->config);
    json_decref(kept->generation);
    *kept = (Kept){0};
}

void kept_write(JsonWriter *w, const json_t *value) {
    const char *key;
    const json_t *item;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        json_write_open(w, '{');
        json_object_foreach((json_t *)value, key, item) {
            json_write_key(w, key);
            kept_write(w, item);
        }
        json_write_close(w, '}');
        break;
    case JSON_ARRAY:
        json_write_open(w, '[');
        json_array_foreach(value, i, item) kept_write(w, item);
        json_write_close(w, ']');
        break;
    case JSON_STRING:
        json_write_string(w, json_string_value(value), (int64_t)json_string_length(value));
        break;
    case JSON_INTEGER: json_write_integer(w, json_integer_value(value)); break;
    case JSON_REAL: json_write_real(w, json_real_value(value)); break;
    case JSON_TRUE:
    case JSON_FALSE: json_write_boolean(w, json_is_true(value)); break;
    case JSON_NULL: json_write_json(w, "null"); break;
    }
}
