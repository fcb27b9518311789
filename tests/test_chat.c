/* Conversations against transformers (tests/fixtures/make_chat.py): each template's rendering, its tokens,
 * which of them are the assistant's, and the tokens between an answer and the next. */
#define _GNU_SOURCE // strptime
#include "base/memory.h"
#include "tasks/chat/chat.h"
#include "tests/support/chat.h"
#include "tests/support/expect.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MESSAGES = 8 };

/* The date on which the cases were rendered. */
static void set_day(Chat *chat, const char *date) {
    chat->template.now = (struct tm){0};
    assert_non_null(strptime(date, "%d %b %Y", &chat->template.now));
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
    JinjaOutput text = {0};
    Bytes answers = {0};
    TokenList ids = {0};
    if (!expected) {
        expect_error(chat_template_render(&chat->template, messages, count, ask, &text), ERROR_FORMAT,
                     "chat template");
        return;
    }
    expect_ok(chat_template_render(&chat->template, messages, count, ask, &text));
    if (strcmp(text.text, expected) != 0) fail_msg("%s:\n%s\nnot\n%s", name, text.text, expected);
    expect_ok(chat_encode(chat, messages, count, ask, &ids, ask ? &content : NULL));
    expect_numbers(name, json_object_get(conversation, "ids"), &ids, NULL);
    if (json_is_array(json_object_get(conversation, "answers"))) {
        ids.count = 0;
        expect_ok(chat_encode_answers(chat, messages, count, &ids, &answers));
        expect_numbers(name, json_object_get(conversation, "answers"), NULL, &answers);
    }
    jinja_output_free(&text);
    memory_free(answers.bytes);
    token_list_free(&ids);
}

static void templates(void **state) {
    const char *date;
    json_t *root = chat_cases(&date), *one, *conversation;
    size_t i, j;
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        Chat chat;
        Tokenizer *tokenizer = open_tokenizer(*state, one);
        expect_ok(chat_open(tokenizer, "", &chat));
        set_day(&chat, date);
        json_array_foreach(json_object_get(one, "conversations"), j, conversation)
            expect_conversation(case_text(one, "name"), &chat, conversation);
        chat_close(&chat);
        tokenizer_free(tokenizer);
    }
    json_decref(root);
}

/* Whether a conversation can be encoded incrementally: not if thoughts are printed or requested, or if the
 * prompt for an answer is marked as part of the answer. */
static bool told_turn_by_turn(const char *name) {
    static const char *const others[] = {"qwen3", "thinking", "no thoughts asked for",
                                         "marked by generation"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, others[i]) == 0) return false;
    return true;
}

/* Encoded turn by turn, the tokens equal those of the whole conversation, whether an answer's end token was
 * sampled or not; and the text before a message's content is the same for each message. */
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
        if (!told_turn_by_turn(case_text(one, "name"))) continue;
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

/* The texts of templates by name, whose marks the byte tokenizer lacks. */
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
    const char *date;
    json_t *root = chat_cases(&date);
    Tokenizer *tokenizer = open_tokenizer(*state, chat_case(root, "zephyr")), *bytes;
    ChatTemplate template;
    Chat chat;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        JinjaOutput text = {0};
        expect_ok(chat_template_open(tokenizer, forms[i].name, &template));
        expect_ok(chat_template_render(&template, &message, 1, true, &text));
        assert_string_equal(text.text, forms[i].text);
        jinja_output_free(&text);
        chat_template_free(&template);
    }
    expect_error(chat_open(tokenizer, "alpaca", &chat), ERROR_USAGE, "no chat template named alpaca");
    expect_ok(tokenizer_open("bytes", &bytes));
    expect_error(chat_open(bytes, "", &chat), ERROR_USAGE, "no chat template: choose");
    expect_error(chat_open(bytes, "chatml", &chat), ERROR_USAGE, "<|im_end|>, which is no token");
    expect_error(chat_open(bytes, "zephyr", &chat), ERROR_USAGE, "no end token");
    tokenizer_free(bytes);
    tokenizer_free(tokenizer);
    json_decref(root);
}

/* Refused if the renderings are ambiguous; a template that does not end answers trains none. */
static void answers_that_cannot_be_told(void **state) {
    static const struct {
        const char *source, *says;
    } cases[] = {
        {"{% for m in messages %}{{ m.content }}</s>{{ m.content if messages[2] }}{% endfor %}",
         "message 2: the position of the answer"},
        {"{% for m in messages %}{{ m.content }}</s>{{ messages[1].content|length if loop.last }}{% endfor "
         "%}",
         "message 2: the position of the answer"},
        {"{% for m in messages %}{{ m.content }}\n{% endfor %}", "without a token"},
        {"{% for m in messages %}{% set x %}{% generation %}{{ m.content }}{% endgeneration %}{% endset %}{{ "
         "x }}</s>"
         "{% endfor %}",
         "where its position cannot be determined"},
    };
    const ChatMessage messages[] = {
        {ROLE_USER, "the box", 7}, {ROLE_ASSISTANT, "door", 4}, {ROLE_USER, "one", 3}};
    const char *date;
    json_t *root = chat_cases(&date);
    Tokenizer *tokenizer = open_tokenizer(*state, chat_case(root, "zephyr"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Chat chat;
        TokenList ids = {0};
        Bytes answers = {0};
        expect_ok(chat_open_source(tokenizer, cases[i].source, &chat));
        expect_error(chat_encode_answers(&chat, messages, 3, &ids, &answers), ERROR_FORMAT, cases[i].says);
        token_list_free(&ids);
        memory_free(answers.bytes);
        chat_close(&chat);
    }
    tokenizer_free(tokenizer);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(templates, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(turns, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(named, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(answers_that_cannot_be_told, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
