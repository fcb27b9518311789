#include "data/tokenizer_json.h"

#include "base/json_read.h"

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

bool json_is_off(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return !value || json_is_null(value) || json_is_false(value) || json_is_text(value, "") ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

Status json_check_keys(const json_t *object, const char *const *keys, const char *path, const char *what) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        int i = 0;
        while (keys[i] && strcmp(keys[i], key) != 0) i++;
        if (!keys[i])
            return fail(ERROR_FORMAT, "%s: %s has a key \"%.40s\" that is not supported", path, what, key);
    }
    return OK;
}

Status json_read_flag(const json_t *object, const char *name, bool otherwise, const char *path, bool *flag) {
    const json_t *value = json_object_get(object, name);
    *flag = json_is_true(value) || (otherwise && !json_is_false(value));
    if (!value || json_is_null(value) || json_is_boolean(value)) return OK;
    return fail(ERROR_FORMAT, "%s: %s is neither true nor false", path, name);
}
