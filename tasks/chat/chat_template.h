/* chat_template: how a model wants a conversation written: its folder's Jinja template, which is run
 * (tasks/chat/jinja/jinja.h) with the variables that transformers' apply_chat_template gives: messages,
 * add_generation_prompt, the names of special tokens, and tools and documents, which are none. */
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
    json_t *variables; // but for the conversation
    struct tm now;     // for templates that ask what day it is
} ChatTemplate;

/* The tokenizer's own template, or the one that `name` names, unless that is "":
 *
 *   chatml    <|im_start|>user\nTEXT<|im_end|>\n
 *   llama3    <|start_header_id|>user<|end_header_id|>\n\nTEXT<|eot_id|>
 *   zephyr    <|user|>\nTEXT</s>\n
 *   mistral   [INST] TEXT[/INST] ANSWER</s>
 *
 * ERROR_USAGE where there is none; ERROR_FORMAT as jinja_compile. */
CHECKED Status chat_template_open(const Tokenizer *tokenizer, const char *name, ChatTemplate *chat);
const char *chat_template_named(const char *name); // its source, or NULL
/* From a template's source. */
CHECKED Status chat_template_compile(const Tokenizer *tokenizer, const char *source, ChatTemplate *chat);
void chat_template_free(ChatTemplate *chat); // an all-zero one is fine

/* Renders a conversation; `ask`: and what asks for an answer. ERROR_FORMAT for what the template refuses,
 * or is not supported of it. jinja_output_free ends the output. */
CHECKED Status chat_template_render(const ChatTemplate *chat, const ChatMessage *messages, int64_t count,
                                    bool ask, JinjaOutput *output);
