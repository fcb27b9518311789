#include "data/end_tokens.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "data/kept.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20 /* bytes */ };

static const char generation_name[] = "generation_config.json", config_name[] = "config.json";

static Status add(const json_t *value, const char *path, EndTokens *ends) {
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id > INT32_MAX)
        return fail(ERROR_FORMAT, "%s: \"eos_token_id\" is not a token's id, nor a list of ids", path);
    if (ends->count == END_TOKENS)
        return fail(ERROR_FORMAT, "%s: \"eos_token_id\" names more than %d tokens", path, END_TOKENS);
    ends->ids[ends->count++] = (int32_t)id;
    return OK;
}

static Status add_all(const json_t *root, const char *path, EndTokens *ends) {
    const json_t *value = json_object_get(root, "eos_token_id"), *id;
    size_t i;
    if (!value || json_is_null(value)) return OK;
    if (!json_is_array(value)) return add(value, path, ends);
    json_array_foreach(value, i, id) TRY(add(id, path, ends));
    return OK;
}

static Status read_file(const char *folder, const char *name, EndTokens *ends) {
    OWNED char *path = path_join(folder, name);
    json_auto_t *root = NULL;
    TRY(json_read_optional(path, FILE_LIMIT, &root));
    return add_all(root, path, ends);
}

Status end_tokens_read(const char *folder, EndTokens *ends) {
    *ends = (EndTokens){.count = 0};
    TRY(read_file(folder, generation_name, ends));
    return ends->count ? OK : read_file(folder, config_name, ends);
}

bool end_tokens_hold(const EndTokens *ends, int32_t token) {
    for (int i = 0; i < ends->count; i++)
        if (ends->ids[i] == token) return true;
    return false;
}

void end_tokens_text(const EndTokens *ends, char text[END_TOKENS_TEXT]) {
    bool several = ends->count > 1;
    int length = 0;
    for (int i = 0; i < ends->count; i++)
        length += snprintf(text + length, (size_t)(END_TOKENS_TEXT - length), "%s%" PRId32,
                           i         ? ", "
                           : several ? "["
                                     : "",
                           ends->ids[i]);
    if (several) snprintf(text + length, (size_t)(END_TOKENS_TEXT - length), "]");
}

Status end_tokens_write(const char *folder, const EndTokens *ends, const json_t *kept) {
    static const char own[] = "eos_token_id";
    char ids[END_TOKENS_TEXT];
    const char *key;
    const json_t *value;
    const size_t others = json_object_size(kept) - (json_object_get(kept, own) != NULL);
    if (!ends->count && !others) return OK;
    CLOSED_BY(json_writer_free) JsonWriter w = {0};
    json_write_open(&w, '{');
    if (ends->count) {
        end_tokens_text(ends, ids);
        json_write_line(&w, 2, true);
        json_write_key(&w, own);
        json_write_json(&w, ids);
    }
    json_object_foreach((json_t *)kept, key, value) {
        if (strcmp(key, own) == 0) continue;
        json_write_line(&w, 2, true);
        json_write_key(&w, key);
        kept_write(&w, value);
    }
    json_write_line(&w, 0, false);
    json_write_close(&w, '}');
    OWNED char *path = path_join(folder, generation_name);
    return json_writer_save(&w, path);
}
