#include "tasks/chat/chat_template.h"

#include <string.h>

const char *chat_role_name(ChatRole role) {
    static const char *const names[ROLE_COUNT] = {"system", "user", "assistant"};
    return names[role];
}

/* ---- templates by name ---- */

static const char chatml[] = "{% for message in messages %}"
                             "{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}"
                             "{% endfor %}"
                             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static const char llama3[] =
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ message.content | trim ~ "
    "'<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

static const char zephyr[] = "{% for message in messages %}"
                             "{{ '<|' ~ message.role ~ '|>\\n' ~ message.content ~ eos_token ~ '\\n' }}"
                             "{% endfor %}"
                             "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

static const char mistral[] =
    "{{ bos_token }}"
    "{% if messages and messages[0].role == 'system' %}"
    "{% set before = messages[0].content ~ '\\n\\n' %}{% set messages = messages[1:] %}"
    "{% endif %}"
    "{% for message in messages %}"
    "{% if message.role != ('assistant' if loop.index0 % 2 else 'user') %}"
    "{{ raise_exception('user and assistant must take turns') }}"
    "{% elif message.role == 'user' %}"
    "{{ '[INST] ' ~ (before if loop.first) ~ message.content ~ '[/INST]' }}"
    "{% else %}"
    "{{ ' ' ~ message.content ~ eos_token }}"
    "{% endif %}"
    "{% endfor %}";

static const struct {
    const char *name, *source;
} forms[] = {{"chatml", chatml}, {"llama3", llama3}, {"zephyr", zephyr}, {"mistral", mistral}};

const char *chat_template_named(const char *name) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(name, forms[i].name) == 0) return forms[i].source;
    return NULL;
}

static Status find_source(const Tokenizer *tokenizer, const char *name, const char **source) {
    *source = *name ? chat_template_named(name) : tokenizer_chat_template(tokenizer);
    if (*source) return OK;
    if (*name)
        return fail(ERROR_USAGE,
                    "there is no chat template named %.40s, only chatml, llama3, zephyr and mistral", name);
    return fail(ERROR_USAGE,
                "the model has no chat template: choose one of chatml, llama3, zephyr and mistral "
                "with --template");
}

/* ---- opening ---- */

static json_t *token_text(const Tokenizer *t, int32_t id) {
    int64_t length;
    const uint8_t *bytes = tokenizer_decode(t, id, &length);
    return bytes ? json_stringn((const char *)bytes, (size_t)length) : NULL;
}

/* Unless the configuration names them, the tokens for beginning and end are the vocabulary's. */
static json_t *find_variables(const Tokenizer *t) {
    const json_t *names = tokenizer_names(t);
    json_t *variables = json_pack("{s:n, s:n}", "tools", "documents"), *value;
    int32_t last = tokenizer_special(t, TOKEN_END);
    const char *key;
    json_object_foreach((json_t *)names, key, value) if (json_is_string(value))
        json_object_set(variables, key, value);
    if (!json_object_get(names, "bos_token"))
        json_object_set_new(variables, "bos_token", token_text(t, tokenizer_special(t, TOKEN_BEGIN)));
    if (!json_object_get(names, "eos_token"))
        json_object_set_new(variables, "eos_token",
                            token_text(t, last >= 0 ? last : tokenizer_end_of_text(t)));
    return variables;
}

Status chat_template_compile(const Tokenizer *tokenizer, const char *source, ChatTemplate *chat) {
    time_t now = time(NULL);
    *chat = (ChatTemplate){0};
    localtime_r(&now, &chat->now);
    TRY(fail_at(jinja_compile(source, (int64_t)strlen(source), &chat->jinja), "the chat template"));
    chat->variables = find_variables(tokenizer);
    return OK;
}

Status chat_template_open(const Tokenizer *tokenizer, const char *name, ChatTemplate *chat) {
    const char *source;
    *chat = (ChatTemplate){0};
    TRY(find_source(tokenizer, name, &source));
    return chat_template_compile(tokenizer, source, chat);
}

void chat_template_free(ChatTemplate *chat) {
    jinja_free(chat->jinja);
    json_decref(chat->variables);
    *chat = (ChatTemplate){0};
}

/* ---- rendering ---- */

Status chat_template_render(const ChatTemplate *chat, const ChatMessage *messages, int64_t count, bool ask,
                            JinjaOutput *output) {
    json_auto_t *variables = json_copy(chat->variables);
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        json_t *message = json_object();
        json_object_set_new(message, "role", json_string(chat_role_name(messages[i].role)));
        json_object_set_new(message, "content",
                            json_stringn_nocheck(messages[i].text, (size_t)messages[i].length));
        json_array_append_new(list, message);
    }
    json_object_set_new(variables, "messages", list);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(ask));
    return fail_at(jinja_render(chat->jinja, variables, &chat->now, output), "the chat template");
}
