#include "tasks/masked/sentence_config.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"

#include <string.h>

enum { FILE_LIMIT = 1 << 20 };

/* *root is NULL if there is no such file. */
static Status read_file(const char *folder, const char *name, json_t **root) {
    OWNED char *path = path_join(folder, name);
    return json_read_optional(path, FILE_LIMIT, root);
}

static bool flag(const json_t *root, const char *key) {
    return json_is_true(json_object_get(root, key));
}

/* One of the known modes must be on. */
static Status read_pooling(const char *folder, const char *path, SentenceConfig *config) {
    static const char *const others[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"};
    json_auto_t *root = NULL;
    OWNED char *name = path_join(path, "config.json");
    TRY(read_file(folder, name, &root));
    if (!root) return OK;
    bool first = flag(root, "pooling_mode_cls_token"), mean = flag(root, "pooling_mode_mean_tokens");
    config->has_pooling = true;
    config->pooling = first ? POOLING_FIRST : POOLING_MEAN;
    if (first == mean)
        return fail(ERROR_FORMAT,
                    "%s/%s/config.json: only pooling by the first token or by the mean is supported", folder,
                    path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (flag(root, others[i]))
            return fail(ERROR_FORMAT, "%s/%s/config.json: %s is not supported", folder, path, others[i]);
    return OK;
}

static bool ends(const char *text, const char *ending) {
    return text && path_ends_with(text, ending);
}

static Status read_modules(const char *folder, const json_t *modules, SentenceConfig *config) {
    size_t i;
    json_t *module;
    json_array_foreach(modules, i, module) {
        const char *type = json_string_value(json_object_get(module, "type"));
        const char *path = json_string_value(json_object_get(module, "path"));
        if (ends(type, ".Normalize"))
            config->normalize = true;
        else if (ends(type, ".Pooling"))
            TRY(read_pooling(folder, path ? path : "", config));
        else if (!ends(type, ".Transformer"))
            return fail(ERROR_FORMAT, "%s/modules.json: the module %.80s is not supported", folder,
                        type ? type : "?");
    }
    return OK;
}

Status sentence_config_read(const char *folder, SentenceConfig *config) {
    json_auto_t *lengths = NULL, *modules = NULL;
    *config = (SentenceConfig){0};
    TRY(read_file(folder, "sentence_bert_config.json", &lengths));
    config->most = json_integer_value(json_object_get(lengths, "max_seq_length"));
    TRY(read_file(folder, "modules.json", &modules));
    return read_modules(folder, modules, config);
}
