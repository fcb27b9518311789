/* Conversations against transformers' (tests/fixtures/make_chat.py): the text that each template makes of them, its
 * tokens, which of them are the assistant's, and what goes from an answer to the next. */
#include "base/json_read.h"
#include "base/memory.h"
#include "data/chat.h"
#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 8, JSON_MOST = 1 << 20 };

static json_t *read_cases(const char **date) {
    json_t *root;
    expect_ok(json_read("tests/fixtures/chat.json", JSON_MOST, &root));
    *date = json_string_value(json_object_get(root, "date"));
    return root;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static Status read_template(const json_t *one, const char *date, ChatTemplate *template) {
    return chat_template_read(text_of(one, "template"), text_of(one, "begin"), text_of(one, "end"), date,
                              template);
}

static int64_t read_messages(const json_t *conversation, ChatMessage messages[MOST_MESSAGES]) {
    const json_t *list = json_object_get(conversation, "messages"), *message;
    size_t i;
    json_array_foreach(list, i, message) {
        const char *role = text_of(message, "role"), *content = text_of(message, "content");
        messages[i] = (ChatMessage){ROLE_SYSTEM, content, (int64_t)strlen(content)};
        while (strcmp(chat_role_name(messages[i].role), role) != 0) messages[i].role++;
    }
    return (int64_t)json_array_size(list);
}

static bool is_added(const json_t *added, const char *text) {
    const json_t *token;
    size_t i;
    json_array_foreach(added, i, token) if (strcmp(text_of(token, "content"), text) == 0) return true;
    return false;
}

/* The tokenizer's folder: that of tests/fixtures/chains with the template's marks added. */
static Tokenizer *open_tokenizer(const char *folder, const json_t *one) {
    char path[256];
    json_t *root, *token;
    size_t i;
    int64_t next = 0;
    snprintf(path, sizeof path, "tests/fixtures/chains/%s/tokenizer.json", text_of(one, "tokenizer"));
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
    root = json_pack("{ssssss}", "bos_token", text_of(one, "begin"), "eos_token", text_of(one, "end"),
                     "chat_template", text_of(one, "template"));
    assert_int_equal(json_dump_file(root, inside(folder, "tokenizer_config.json"), 0), 0);
    json_decref(root);
    Tokenizer *tokenizer;
    expect_ok(tokenizer_open(folder, &tokenizer));
    return tokenizer;
}

static void expect_numbers(const char *what, const json_t *expected, const TokenList *ids,
                           const Bytes *bytes) {
    int64_t count = ids ? ids->count : bytes->count;
    assert_int_equal(count, json_array_size(expected));
    for (int64_t i = 0; i < count; i++) {
        int64_t value = json_integer_value(json_array_get(expected, (size_t)i));
        if (value != (ids ? ids->ids[i] : bytes->bytes[i])) fail_msg("%s: number %d differs", what, (int)i);
    }
}

static void expect_conversation(const char *name, const Chat *chat, const json_t *conversation) {
    ChatMessage messages[MOST_MESSAGES];
    int64_t count = read_messages(conversation, messages), content;
    bool ask = json_is_true(json_object_get(conversation, "ask"));
    const char *expected = text_of(conversation, "text");
    Bytes text = {0}, answers = {0};
    TokenList ids = {0};
    if (!expected) {
        expect_error(chat_render(&chat->template, messages, count, ask, &text, NULL), ERROR_FORMAT,
                     "chat template");
        memory_free(text.bytes);
        return;
    }
    expect_ok(chat_render(&chat->template, messages, count, ask, &text, NULL));
    bytes_put(&text, "", 1);
    if (strcmp((char *)text.bytes, expected) != 0)
        fail_msg("%s:\n%s\nnot\n%s", name, (char *)text.bytes, expected);
    expect_ok(chat_encode(chat, messages, count, ask, &ids, &content));
    expect_numbers(name, json_object_get(conversation, "ids"), &ids, NULL);
    if (json_is_array(json_object_get(conversation, "answers"))) {
        ids.count = 0;
        expect_ok(chat_encode_answers(chat, messages, count, &ids, &answers));
        expect_numbers(name, json_object_get(conversation, "answers"), NULL, &answers);
    }
    memory_free(text.bytes);
    memory_free(answers.bytes);
    token_list_free(&ids);
}

static void templates(void **state) {
    const char *date;
    json_t *root = read_cases(&date), *one, *conversation;
    size_t i, j;
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        Chat chat;
        const char *name = text_of(one, "name");
        if (!text_of(one, "tokenizer")) {
            expect_error(read_template(one, date, &chat.template), ERROR_FORMAT, "not known here");
            continue;
        }
        Tokenizer *tokenizer = open_tokenizer(*state, one);
        expect_ok(chat_open(tokenizer, "", &chat));
        chat_template_free(&chat.template);
        expect_ok(read_template(one, date, &chat.template)); /* of that day */
        json_array_foreach(json_object_get(one, "conversations"), j, conversation)
            expect_conversation(name, &chat, conversation);
        chat_close(&chat);
        tokenizer_free(tokenizer);
    }
    json_decref(root);
}

/* Turn by turn the tokens are those of the whole conversation, with an answer's end that was drawn or was not; and
 * what stands before a message's content is the same before each. */
static void turns(void **state) {
    static const ChatMessage messages[] = {
        {ROLE_USER, "the box", 7}, {ROLE_ASSISTANT, "a door", 6}, {ROLE_USER, "one two", 7}};
    const char *date;
    json_t *root = read_cases(&date), *one;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        Chat chat;
        TokenList whole = {0}, ids = {0}, answer = {0};
        Bytes answers = {0};
        int64_t content, first, next;
        if (!text_of(one, "tokenizer") || strcmp(text_of(one, "name"), "qwen3") == 0)
            continue; /* thoughts go */
        Tokenizer *tokenizer = open_tokenizer(*state, one);
        expect_ok(chat_open(tokenizer, "", &chat));
        expect_ok(chat_encode(&chat, messages, 3, true, &whole, &content));
        expect_ok(chat_encode_answers(&chat, messages, 2, &answer, &answers));
        for (int ended = 0; ended < 2; ended++) {
            ids.count = 0;
            expect_ok(chat_encode(&chat, messages, 1, true, &ids, &first));
            for (int64_t k = 0; k < answers.count; k++)
                if (answers.bytes[k] && (ended || answer.ids[k] != chat.end))
                    token_list_add(&ids, answer.ids[k]);
            int64_t follows = ids.count;
            expect_ok(chat_encode_next(&chat, &messages[2], ended, &ids, &next));
            assert_int_equal(ids.count, whole.count);
            assert_memory_equal(ids.ids, whole.ids, (size_t)ids.count * sizeof *ids.ids);
            assert_int_equal(follows + next, content);
            assert_int_equal(ids.ids[first - 1], ids.ids[content - 1]);
        }
        token_list_free(&whole);
        token_list_free(&ids);
        token_list_free(&answer);
        memory_free(answers.bytes);
        chat_close(&chat);
        tokenizer_free(tokenizer);
    }
    json_decref(root);
}

static void named(void **state) {
    static const struct {
        const char *name, *text;
    } forms[] = {
        {"chatml", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"},
        {"llama3", "<s><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"zephyr", "<|user|>\nhi</s>\n<|assistant|>\n"},
        {"mistral", "<s>[INST] hi[/INST]"},
    };
    const ChatMessage message = {ROLE_USER, "hi", 2};
    (void)state;
    ChatTemplate template;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        Bytes text = {0};
        expect_ok(chat_template_named(forms[i].name, "<s>", "</s>", &template));
        expect_ok(chat_render(&template, &message, 1, true, &text, NULL));
        bytes_put(&text, "", 1);
        assert_string_equal((char *)text.bytes, forms[i].text);
        memory_free(text.bytes);
        chat_template_free(&template);
    }
    expect_error(chat_template_named("alpaca", "", "", &template), ERROR_USAGE,
                 "no chat template named alpaca");
    expect_error(chat_template_named("zephyr", "<s>", "", &template), ERROR_USAGE, "end token");
    Tokenizer *bytes;
    Chat chat;
    expect_ok(tokenizer_open("bytes", &bytes));
    expect_error(chat_open(bytes, "", &chat), ERROR_USAGE, "no chat template: choose");
    expect_error(chat_open(bytes, "chatml", &chat), ERROR_USAGE, "<|im_end|>, which is no token");
    tokenizer_free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(templates, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(turns, scratch_setup, scratch_teardown),
        cmocka_unit_test(named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
