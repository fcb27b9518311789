/* chat: the chat templates of tests/fixtures/make_chat.py, and tokenizers with their special tokens. */
#pragma once

#include <jansson.h>

/* The fixture, whose "cases" are the templates. `date` is the day on which they were rendered. Free with
 * json_decref. */
json_t *chat_cases(const char **date);

json_t *chat_case(const json_t *root, const char *name);      // the fixture's
const char *case_text(const json_t *object, const char *key); // the text under a key, or NULL

/* Writes a case's tokenizer to the folder: one of tests/fixtures/chains with the template's tokens added, and
 * the template. */
void chat_write_tokenizer(const char *folder, const json_t *one);

/* program_setup, and a folder "model" with the fixture's weights and the tokenizer of the case "smollm2", and
 * "lessons.jsonl". */
int chat_setup(void **state);
