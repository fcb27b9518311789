#include "data/tokenizer_json.h"

#include "base/json_read.h"
#include "data/tokenizer_state.h"

#include <string.h>

static Status check_object(const char *path, json_t **root) {
    if (json_is_object(*root)) return OK;
    json_decref(*root);
    *root = NULL;
    return fail(ERROR_FORMAT, "%s is not a JSON object", path);
}

Status tokenizer_json_read(const char *path, json_t **root) {
    TRY(json_read(path, TOKENIZER_FILE_LIMIT, root));
    return check_object(path, root);
}

Status tokenizer_config_read(const char *path, json_t **root) {
    TRY(json_read_without_integers(path, TOKENIZER_FILE_LIMIT, root));
    return check_object(path, root);
}

bool json_is_text(const json_t *value, const char *text) {
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}
