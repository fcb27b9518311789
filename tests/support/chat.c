#include "tests/support/chat.h"

#include "base/json_read.h"
#include "tests/support/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_MOST = 1 << 20 };

json_t *chat_cases(const char **date) {
    json_t *root;
    expect_ok(json_read("tests/fixtures/chat/templates.json", JSON_MOST, &root));
    *date = case_text(root, "date");
    return root;
}

const char *case_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

json_t *chat_case(const json_t *root, const char *name) {
    json_t *one, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, one) if (strcmp(case_text(one, "name"), name) == 0)
        found = one;
    assert_non_null(found);
    return found;
}

static bool is_added(const json_t *added, const char *text) {
    const json_t *token;
    size_t i;
    json_array_foreach(added, i, token) if (strcmp(case_text(token, "content"), text) == 0) return true;
    return false;
}

/* NULL for a token that a case leaves out. */
static const char *named(const json_t *one, const char *key) {
    const char *text = case_text(one, key);
    return text && *text ? text : NULL;
}

void chat_write_tokenizer(const char *folder, const json_t *one) {
    char path[256];
    json_t *root, *token;
    size_t i;
    int64_t next = 0;
    snprintf(path, sizeof path, "tests/fixtures/chains/%s/tokenizer.json", case_text(one, "tokenizer"));
    expect_ok(json_read(path, JSON_MOST, &root));
    json_t *added = json_object_get(root, "added_tokens");
    json_array_foreach(added, i, token) {
        json_object_set_new(token, "normalized", json_false());
        next = json_integer_value(json_object_get(token, "id")) + 1;
    }
    json_array_foreach(json_object_get(one, "added"), i, token) {
        const char *text = json_string_value(token);
        if (is_added(added, text)) continue;
        json_array_append_new(added,
                              json_pack("{sIsssbsbsbsbsb}", "id", next++, "content", text, "single_word", 0,
                                        "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    }
    json_object_set_new(root, "post_processor", json_null());
    assert_int_equal(json_dump_file(root, inside(folder, "tokenizer.json"), 0), 0);
    json_decref(root);
    root = json_pack("{ss?ss?ss}", "bos_token", named(one, "begin"), "eos_token", named(one, "end"),
                     "chat_template", case_text(one, "template"));
    assert_int_equal(json_dump_file(root, inside(folder, "tokenizer_config.json"), 0), 0);
    json_decref(root);
}

int chat_setup(void **state) {
    const char *date;
    char here[4096];
    json_t *root = chat_cases(&date);
    int status = program_setup(state);
    assert_non_null(realpath("tests/fixtures/chat", here));
    program_run(*state, "cp -r %s/model . && cp %s/conversations.jsonl lessons.jsonl", here, here);
    chat_write_tokenizer(inside(*state, "model"), json_array_get(json_object_get(root, "cases"), 0));
    json_decref(root);
    return status;
}
