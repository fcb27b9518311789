#include "data/tokenizer_post.h"

#include "data/tokenizer_json.h"

#include <string.h>

static Status add_id(const Tokenizer *t, const json_t *id, const char *path, TokenList *list) {
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= t->vocab)
        return fail(ERROR_FORMAT, "%s: post_processor names a token that does not exist", path);
    token_list_add(list, (int32_t)value);
    return OK;
}

/* {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
 *  "special_tokens": {"<s>": {"ids": [1]}}} */
static Status take_template(Tokenizer *t, const json_t *post, const char *path) {
    const json_t *single = json_object_get(post, "single"), *tokens = json_object_get(post, "special_tokens");
    TokenList *list = &t->before;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i), *special = json_object_get(part, "SpecialToken");
        if (json_object_get(part, "Sequence")) list = &t->after;
        if (!special) continue;
        const char *name = json_string_value(json_object_get(special, "id"));
        const json_t *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
        if (json_array_size(ids) == 0)
            return fail(ERROR_FORMAT, "%s: post_processor.single names a token without ids", path);
        for (size_t j = 0; j < json_array_size(ids); j++) TRY(add_id(t, json_array_get(ids, j), path, list));
    }
    return OK;
}

/* {"cls": ["[CLS]", 101], "sep": ["[SEP]", 102]} */
static Status take_pair(Tokenizer *t, const json_t *post, const char *path) {
    TRY(add_id(t, json_array_get(json_object_get(post, "cls"), 1), path, &t->before));
    return add_id(t, json_array_get(json_object_get(post, "sep"), 1), path, &t->after);
}

Status tokenizer_read_post(Tokenizer *t, const json_t *post, const char *path) {
    if (!post || json_is_null(post)) return OK;
    const json_t *type = json_object_get(post, "type"), *members = json_object_get(post, "processors");
    if (json_is_text(type, "ByteLevel")) return OK; /* it only moves offsets */
    if (json_is_text(type, "TemplateProcessing")) return take_template(t, post, path);
    if (json_is_text(type, "RobertaProcessing") || json_is_text(type, "BertProcessing"))
        return take_pair(t, post, path);
    if (!json_is_text(type, "Sequence"))
        return fail(ERROR_FORMAT, "%s: post_processor.type \"%s\" is not supported", path,
                    json_is_string(type) ? json_string_value(type) : "");
    for (size_t i = 0; i < json_array_size(members); i++)
        TRY(tokenizer_read_post(t, json_array_get(members, i), path));
    return OK;
}
