#include "data/tokenizer_config.h"
#include "data/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

const char *tokenizer_config_key(SpecialToken token, bool word) {
    static const char *const keys[SPECIAL_COUNT][2] = {{"pad_token", "pad_token"},
                                                       {"bos_token", "cls_token"},
                                                       {"eos_token", "sep_token"},
                                                       {"unk_token", "unk_token"},
                                                       {"mask_token", "mask_token"}};
    return keys[token][word];
}

Status tokenizer_config_added(const json_t *config, const json_t *vocab, const char *const *names,
                              const char *path, json_t **added) {
    json_t *listed = json_object_get(config, "added_tokens_decoder"), *entry;
    const char *key;
    *added = json_array();
    json_object_foreach(listed, key, entry) {
        char *end;
        long id = strtol(key, &end, 10);
        if (*end || end == key || !json_is_object(entry))
            return fail(ERROR_FORMAT, "%s: added_tokens_decoder.%.40s is not a token", path, key);
        json_t *token = json_copy(entry);
        json_object_set_new(token, "id", json_integer(id));
        json_array_append_new(*added, token);
    }
    for (int i = 0; !listed && names[i]; i++) {
        const json_t *id = json_object_get(vocab, names[i]);
        if (!id) continue;
        json_array_append_new(*added, json_pack("{s:I, s:s, s:b}", "id", json_integer_value(id), "content",
                                                names[i], "special", 1));
    }
    return OK;
}

static int32_t find_added(const Tokenizer *t, const char *text) {
    for (int set = 0; set < 2; set++)
        for (int64_t i = 0; text && i < t->added[set].count; i++)
            if (strcmp(t->added[set].tokens[i].text, text) == 0) return t->added[set].tokens[i].id;
    return -1;
}

/* Finds a token named by a config, as its text or as an object with its content. */
static int32_t named(const Tokenizer *t, const json_t *config, const char *key) {
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    return find_added(t, json_string_value(value));
}

void tokenizer_config_special(Tokenizer *t, const json_t *config) {
    bool word = t->kind == TOKENIZER_WORDPIECE;
    for (int i = 0; i < SPECIAL_COUNT; i++) {
        int32_t id = named(t, config, tokenizer_config_key(i, word));
        if (id < 0) id = named(t, config, tokenizer_config_key(i, !word));
        if (id >= 0) t->special[i] = id;
        if (id >= 0 && i == TOKEN_END) t->end_of_text = id;
    }
}

json_t *tokenizer_config_names(const json_t *config, const json_t *map) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    static const char *const plain[] = {"PreTrainedTokenizerFast", "TokenizersBackend"};
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    if (!config) return NULL;
    json_t *names = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(config, keys[i]);
        if (!value) value = json_object_get(map, keys[i]);
        if (json_is_object(value)) value = json_object_get(value, "content");
        for (int k = 0; class && !value && k < 2; k++)
            if (strcmp(class, plain[k]) == 0) value = json_null();
        if (value) json_object_set(names, keys[i], value);
    }
    return names;
}

/* ---- tokens around a text ---- */

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
    if (json_is_text(type, "ByteLevel")) return OK; /* ByteLevel only moves offsets */
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
