/* The chat templates of tests/fixtures/make_chat.py, and tokenizers that have their marks. */
#pragma once

#include <jansson.h>

/* The fixture: its "cases" are what is of use. `date` is the day that they were rendered on. json_decref
 * it. */
json_t *chat_cases(const char **date);

json_t *chat_case(const json_t *root, const char *name);      // the fixture's
const char *case_text(const json_t *object, const char *key); // the text under a key, or NULL

/* Writes a case's tokenizer into the folder: one of tests/fixtures/chains with the template's marks added,
 * and the template. */
void chat_write_tokenizer(const char *folder, const json_t *one);

/* program_setup, and a folder "model" with the fixture's weights and the tokenizer of the case "smollm2", and
 * "lessons.jsonl". */
int chat_setup(void **state);
