/* chat_template: a model's format of conversations: its folder's Jinja template, which is run
 * (tasks/chat/jinja/jinja.h) with the variables of transformers' apply_chat_template: messages,
 * add_generation_prompt, the names of special tokens, and tools and documents, which are always none. */
#pragma once

#include "data/tokenizer.h"
#include "tasks/chat/jinja/jinja.h"

#include <time.h>

typedef enum { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_COUNT } ChatRole;
const char *chat_role_name(ChatRole role); // "system", "user", "assistant"

typedef struct {
    ChatRole role;
    const char *text;
    int64_t length; // bytes
} ChatMessage;

typedef struct {
    JinjaTemplate *jinja;
    json_t *variables; // except the conversation
    struct tm now;     // for templates that ask for the date
} ChatTemplate;

/* Opens the template called `name`, or if that is "" the tokenizer's own:
 *
 *   chatml    <|im_start|>user\nTEXT<|im_end|>\n
 *   llama3    <|start_header_id|>user<|end_header_id|>\n\nTEXT<|eot_id|>
 *   zephyr    <|user|>\nTEXT</s>\n
 *   mistral   [INST] TEXT[/INST] ANSWER</s>
 *
 * ERROR_USAGE if there is no such template; ERROR_FORMAT as jinja_compile. */
CHECKED Status chat_template_open(const Tokenizer *tokenizer, const char *name, ChatTemplate *chat);
const char *chat_template_named(const char *name); // source of the template `name`, or NULL
/* Compiles a template's source. */
CHECKED Status chat_template_compile(const Tokenizer *tokenizer, const char *source, ChatTemplate *chat);
void chat_template_free(ChatTemplate *chat); // accepts an all-zero template

/* Renders a conversation; with `ask` also the prompt for an answer. ERROR_FORMAT if the template refuses it,
 * or uses something unsupported. jinja_output_free ends the output. */
CHECKED Status chat_template_render(const ChatTemplate *chat, const ChatMessage *messages, int64_t count,
                                    bool ask, JinjaOutput *output);
