/* tokenize FOLDER [special]: the ids of texts, for tests/peers/tokens.py. Reads a text as a JSON string from
 * each line, and answers with its ids. tokenize save FOLDER TO: writes the tokenizer's files into TO. */
#include "data/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Status answer(Tokenizer *tokenizer, const char *line, bool special) {
    TokenList list = {0};
    json_t *text = json_loads(line, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL), *ids = json_array();
    if (!text) return fail(ERROR_FORMAT, "not a JSON string: %.80s", line);
    EncodeCursor cursor = {
        .text = json_string_value(text), .length = (int64_t)json_string_length(text), .special = special};
    Status status = tokenizer_encode_step(tokenizer, &cursor, INT64_MAX, &list);
    for (int64_t i = 0; i < list.count; i++) json_array_append_new(ids, json_integer(list.ids[i]));
    json_dumpf(ids, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(text);
    json_decref(ids);
    token_list_free(&list);
    return status;
}

int main(int count, char **arguments) {
    Tokenizer *tokenizer;
    char *line = NULL;
    size_t room = 0;
    bool save = count == 4 && strcmp(arguments[1], "save") == 0;
    if (count < 2) return status_exit(fail(ERROR_USAGE, "tokenize FOLDER [special]"), "tokenize");
    Status status = tokenizer_open(arguments[save ? 2 : 1], &tokenizer);
    if (!status && save) status = tokenizer_save(tokenizer, arguments[3]);
    while (!status && !save && getline(&line, &room, stdin) > 0) status = answer(tokenizer, line, count > 2);
    free(line);
    if (!status) tokenizer_free(tokenizer);
    return status_exit(status, "tokenize");
}
