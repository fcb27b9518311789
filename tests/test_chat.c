/* Conversations against transformers' (tests/fixtures/make_chat.py): the text that each template makes of them, its
 * tokens, which of them are the assistant's, and what goes from an answer to the next. */
#include "base/memory.h"
#include "tasks/chat/chat.h"
#include "tests/support/chat.h"
#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 8 };

static Status read_template(const json_t *one, const char *date, ChatTemplate *template) {
    return chat_template_read(case_text(one, "template"), case_text(one, "begin"), case_text(one, "end"),
                              date, template);
}

static int64_t read_messages(const json_t *conversation, ChatMessage messages[MOST_MESSAGES]) {
    const json_t *list = json_object_get(conversation, "messages"), *message;
    size_t i;
    json_array_foreach(list, i, message) {
        const char *role = case_text(message, "role"), *content = case_text(message, "content");
        messages[i] = (ChatMessage){ROLE_SYSTEM, content, (int64_t)strlen(content)};
        while (strcmp(chat_role_name(messages[i].role), role) != 0) messages[i].role++;
    }
    return (int64_t)json_array_size(list);
}

static Tokenizer *open_tokenizer(const char *folder, const json_t *one) {
    Tokenizer *tokenizer;
    chat_write_tokenizer(folder, one);
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
    const char *expected = case_text(conversation, "text");
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
    json_t *root = chat_cases(&date), *one, *conversation;
    size_t i, j;
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        Chat chat;
        const char *name = case_text(one, "name");
        if (!case_text(one, "tokenizer")) {
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
    json_t *root = chat_cases(&date), *one;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        Chat chat;
        TokenList whole = {0}, ids = {0}, answer = {0};
        Bytes answers = {0};
        int64_t content, first, next;
        if (!case_text(one, "tokenizer") || strcmp(case_text(one, "name"), "qwen3") == 0)
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
