/* The interpreter of chat templates against transformers' jinja2 (tests/fixtures/make_jinja.py), and its
 * bounds. */
#define _GNU_SOURCE // strptime
#include "base/json_read.h"
#include "tasks/chat/jinja/jinja.h"
#include "tests/support/expect.h"

#include <string.h>

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static json_t *read_cases(struct tm *now) {
    json_t *root;
    *now = (struct tm){0};
    expect_ok(json_read("tests/fixtures/chat/jinja.json", 1 << 20, &root));
    assert_non_null(strptime(text_of(root, "now"), "%Y-%m-%d %H:%M:%S", now));
    return root;
}

static Status render(const json_t *root, const char *source, const struct tm *now, JinjaOutput *output) {
    JinjaTemplate *template;
    *output = (JinjaOutput){0};
    TRY(jinja_compile(source, (int64_t)strlen(source), &template));
    Status status = jinja_render(template, json_object_get(root, "variables"), now, output);
    jinja_free(template);
    return status;
}

static void constructs(void **state) {
    struct tm now;
    json_t *root = read_cases(&now), *one;
    size_t i;
    int differ = 0;
    (void)state;
    json_array_foreach(json_object_get(root, "cases"), i, one) {
        const char *source = text_of(one, "template"), *expected = text_of(one, "text");
        JinjaOutput output;
        Status status = render(root, source, &now, &output);
        bool same = status ? !expected : expected && strcmp(output.text, expected) == 0;
        if (!same)
            print_error("%s\n  is  %s\n  not %s\n", source, status ? status_message(status) : output.text,
                        expected ? expected : "an error");
        differ += !same;
        if (status && strstr(status_message(status), "not supported") && expected) differ++;
        assert_true(!status || status_code(status) == ERROR_FORMAT);
        status_free(status);
        jinja_output_free(&output);
    }
    assert_int_equal(differ, 0);
    json_decref(root);
}

/* Features of transformers that are unsupported are refused, with their line. */
static void what_is_not_supported(void **state) {
    struct tm now;
    json_t *root = read_cases(&now), *one;
    size_t i;
    (void)state;
    json_array_foreach(json_object_get(root, "unsupported"), i, one) {
        JinjaOutput output;
        Status status = render(root, json_string_value(one), &now, &output);
        if (!status) fail_msg("%s is rendered", json_string_value(one));
        if (!strstr(status_message(status), "not supported"))
            print_error("%s: %s\n", json_string_value(one), status_message(status));
        expect_error(status, ERROR_FORMAT, "not supported");
    }
    json_decref(root);
}

/* A line is counted where its newline is part of text, a tag, a string or a comment. */
static void lines(void **state) {
    struct tm now;
    json_t *root = read_cases(&now);
    JinjaOutput output;
    (void)state;
    expect_error(render(root, "a\n{% if true\n%}{# \n #}{{ '\n' }}\n{{ 1 + 'a' }}{% endif %}", &now, &output),
                 ERROR_FORMAT, "line 6: this operator does not take a int and a str");
    expect_error(render(root, "\n\n{% nosuch %}", &now, &output), ERROR_FORMAT, "line 3: {% nosuch %}");
    expect_error(render(root, "\n{{ raise_exception('Turns must alternate') }}", &now, &output), ERROR_FORMAT,
                 "line 2: the template says: Turns must alternate");
    json_decref(root);
}

/* Limits for untrusted templates. */
static void bounds(void **state) {
    static const char *const endless[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 9999999999 }}",
        "{{ [1] * 9999999999 }}",
        "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='xx') %}{% for i in range(99) %}{% set ns.x = ns.x.replace('x', ns.x) %}{% "
        "endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
        "ns.x }}",
        "{% set ns = namespace(x=[], y=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}"
        "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ "
        "ns.x|tojson }}",
        "{{ 'abc'.replace('', 'x' * 99999999) }}",
        "{{ ('a' * 9999999).rfind('a' * 4999999 ~ 'b') }}",
    };
    struct tm now;
    json_t *root = read_cases(&now);
    (void)state;
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        JinjaOutput output;
        Status status = render(root, endless[i], &now, &output);
        if (!status) fail_msg("%s is rendered", endless[i]);
        expect_error(status, ERROR_FORMAT, "too many steps, too much memory or too deep");
    }
    json_decref(root);
}

/* Repeats `begin` and `end` `count` times around `inside`. */
static Status compile_nested(const char *before, const char *begin, int count, const char *inside,
                             const char *end, const char *behind) {
    JinjaTemplate *template;
    char source[1 << 14];
    strcpy(source, before);
    for (int i = 0; i < count; i++) strcat(source, begin);
    strcat(source, inside);
    for (int i = 0; i < count; i++) strcat(source, end);
    strcat(source, behind);
    Status status = jinja_compile(source, (int64_t)strlen(source), &template);
    jinja_free(template);
    return status;
}

static void depths(void **state) {
    JinjaTemplate *template;
    (void)state;
    expect_ok(compile_nested("", "{% if true %}", 40, "{{ ((((((((((1)))))))))) }}", "{% endif %}", ""));
    expect_error(compile_nested("", "{% if true %}", 200, "", "{% endif %}", ""), ERROR_FORMAT, "too deep");
    expect_error(jinja_compile("\xff", 1, &template), ERROR_FORMAT, "not UTF-8");
    expect_error(compile_nested("{{ ", "(", 150, "1", ")", " }}"), ERROR_FORMAT, "too deep");
    expect_error(compile_nested("{{ ", "not ", 150, "1", "", " }}"), ERROR_FORMAT, "too deep");
    expect_error(compile_nested("{{ ", "-", 150, "1", "", " }}"), ERROR_FORMAT, "too deep");
}

/* Which bytes generation blocks have printed. */
static void generation(void **state) {
    static const char source[] = "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content|trim }};"
                                 "{% endgeneration %}{% endfor %}";
    struct tm now;
    json_t *root = read_cases(&now);
    JinjaOutput output;
    (void)state;
    expect_ok(render(root, source, &now, &output));
    assert_int_equal(output.spans_count, 4);
    assert_int_equal(output.spans[0][0], 7);
    assert_memory_equal(output.text + output.spans[0][0], "Be short.;",
                        (size_t)(output.spans[0][1] - output.spans[0][0]));
    assert_int_equal(output.spans[3][1], output.length);
    assert_false(output.hidden);
    jinja_output_free(&output);
    expect_ok(
        render(root, "{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}", &now, &output));
    assert_true(output.hidden);
    jinja_output_free(&output);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructs), cmocka_unit_test(what_is_not_supported),
        cmocka_unit_test(lines),      cmocka_unit_test(bounds),
        cmocka_unit_test(depths),     cmocka_unit_test(generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
