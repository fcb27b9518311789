/* chat_template: how a model wants a conversation written. A folder says it as a Jinja template, which is a
 * program; fusebox runs none, but recognizes the forms that most models have by what such a template prints:
 *
 *   chatml    <|im_start|>user\nTEXT<|im_end|>\n                                (Qwen, SmolLM2)
 *   llama3    <|start_header_id|>user<|end_header_id|>\n\nTEXT<|eot_id|>       (Llama 3, 3.1, 3.2)
 *   zephyr    <|user|>\nTEXT</s>\n                                              (Zephyr, TinyLlama)
 *   mistral   [INST] TEXT[/INST] ANSWER</s>                                    (Mistral, in all its spacings)
 *
 * A form becomes a table of texts around each message. Tools and images are left out. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_COUNT } ChatRole;
const char *chat_role_name(ChatRole role); // "system", "user", "assistant"

/* Where a system message goes. */
typedef enum {
    SYSTEM_OWN,   // a message like the others
    SYSTEM_FIRST, // in front of the text of the first message, which is the user's
    SYSTEM_LAST,  // the same of the last message, if that is the user's
    SYSTEM_NONE,  // nowhere
} SystemPlace;

typedef struct {
    char *begin;                                  // before the first message
    char *before[ROLE_COUNT], *after[ROLE_COUNT]; // around a message's text
    char *ask;    // behind the messages where an answer is wanted; before[ROLE_ASSISTANT] begins with it
    char *system; // the system message of a conversation that has none; NULL: none
    char *joint;  // between a system message and the text that it goes in front of
    char *end;    // the text of the token that ends an answer; after[ROLE_ASSISTANT] begins with it
    bool trims[ROLE_COUNT]; // spaces around the text go
    SystemPlace place;
    bool alternates; // user and assistant take turns, or it is an error
    bool thinks;     // Qwen 3: only the answers behind the last question keep what stands before </think>
} ChatTemplate;

/* From a template's source: `begin` and `end` are the texts of bos_token and eos_token, or "". `date`, as in
 * "26 Jul 2024", is for templates that ask for today's. ERROR_FORMAT for a template of another form. */
CHECKED Status chat_template_read(const char *source, const char *begin, const char *end, const char *date,
                                  ChatTemplate *chat);

/* A form by its name. ERROR_USAGE for another. */
CHECKED Status chat_template_named(const char *name, const char *begin, const char *end, ChatTemplate *chat);
void chat_template_free(ChatTemplate *chat); // an all-zero one is fine

/* What a template prints, in a row: expressions joined by +, with neighbouring texts made one, in single
 * quotes (a quote inside is \1), and statements in braces. Spaces outside of texts are gone, and Jinja's
 * rules for those around statements have been applied as transformers sets them. The caller frees it. */
char *chat_template_compact(const char *source);
