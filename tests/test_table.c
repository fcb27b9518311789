/* A report's table in its four forms. */
#define _GNU_SOURCE
#include "report/table_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static const TableColumn columns[] = {{"name", "Name", CELL_TEXT},
                                      {"time_ns", "Time", CELL_TIME},
                                      {"share", "Share", CELL_SHARE},
                                      {"bytes", "Size", CELL_BYTES}};

static Table example(void) {
    Table t = table_make("example", "Example", columns, 4);
    const char *names[] = {"a|b", "c,\"d\"", "e"};
    const double times[] = {1500, 2.5e9, 3e6}, shares[] = {0.25, 0.5, NAN}, sizes[] = {1024, INFINITY, 3};
    for (int i = 0; i < 3; i++) {
        table_add_row(&t);
        table_set_text(&t, 0, names[i]);
        table_set(&t, 1, times[i]);
        table_set(&t, 2, shares[i]);
        table_set(&t, 3, sizes[i]);
    }
    table_note(&t, "%d rows", 3);
    return t;
}

static char *printed(const Table *t, const TableView *view,
                     void (*print)(const Table *, const TableView *, FILE *)) {
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    if (print)
        print(t, view, file);
    else
        table_print_csv(t, file);
    fclose(file);
    return text;
}

static void test_text(void **state) {
    (void)state;
    Table t = example();
    char *text = printed(&t, NULL, table_print_text);
    assert_string_equal(text, "Example\n"
                              "-----  --------  ------  --------\n"
                              "Name       Time   Share      Size\n"
                              "-----  --------  ------  --------\n"
                              "a|b    1.500 us  25.00%  1.00 KiB\n"
                              "c,\"d\"   2.500 s  50.00%          \n"
                              "e      3.000 ms            3.00 B\n"
                              "-----  --------  ------  --------\n"
                              "3 rows\n");
    free(text);
    table_free(&t);
}

static void test_other_forms(void **state) {
    (void)state;
    Table t = example();
    char *text = printed(&t, NULL, table_print_markdown);
    assert_non_null(strstr(text, "| a\\|b | 1.500 us | 25.00% | 1.00 KiB |\n"));
    assert_non_null(strstr(text, "|---|---:|---:|---:|\n"));
    free(text);
    text = printed(&t, NULL, NULL);
    assert_string_equal(text, "name,time_ns,share,bytes\na|b,1500,0.25,1024\n"
                              "\"c,\"\"d\"\"\",2500000000,0.5,\ne,3000000,,3\n");
    free(text);
    JsonWriter w = {0};
    fields_write(&w, table_fields, &t);
    json_t *json = json_loads(w.text, 0, NULL), *rows = json_object_get(json, "rows");
    assert_int_equal(json_array_size(rows), 3);
    assert_true(json_is_null(json_array_get(json_array_get(rows, 2), 2)));
    assert_string_equal(json_string_value(json_array_get(json_array_get(rows, 1), 0)), "c,\"d\"");
    json_decref(json);
    json_writer_free(&w);
    table_free(&t);
}

static void test_arranged(void **state) {
    (void)state;
    Table t = example();
    TableView view = {.unit = UNIT_MILLISECONDS, .limit = 2, .sort = "time_ns"};
    assert_true(table_column(&t, "time_ns") >= 0);
    assert_false(table_column(&t, "Time") >= 0);
    table_arrange(&t, &view);
    assert_int_equal(t.rows, 3);
    char *text = printed(&t, &view, table_print_text);
    assert_non_null(strstr(text, "2500.0000 ms"));
    assert_true(strstr(text, "c,\"d\"") < strstr(text, "3.0000 ms"));
    assert_null(strstr(text, "a|b"));
    assert_non_null(strstr(text, "1 more row left out"));
    free(text);
    table_free(&t);
}

static void test_long_names(void **state) {
    (void)state;
    Table t = table_make("t", "T", columns, 1);
    char name[200];
    memset(name, 'n', 199);
    name[199] = 0;
    memcpy(name + 52, "\xC3\xA9", 2); // a character of two bytes across the cut
    table_add_row(&t);
    table_set_text(&t, 0, name);
    char *cut = printed(&t, NULL, table_print_text),
         *full = printed(&t, &(TableView){.full_names = true}, table_print_text);
    assert_non_null(strstr(full, name));
    assert_null(strstr(cut, name));
    assert_non_null(strstr(cut, "n..."));
    free(cut);
    free(full);
    table_free(&t);
}

static void test_numbers(void **state) {
    static const struct {
        double number;
        const char *text;
    } numbers[] = {
        {13750, "13750"}, {0, "0"}, {8.995e-05, "0.000090"}, {0.0125, "0.0125"}, {31.694, "31.69"}};
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[CELL_TEXT_BYTES];
        cell_format(CELL_NUMBER, numbers[i].number, UNIT_AUTO, text);
        assert_string_equal(text, numbers[i].text);
    }
}

/* The last columns that do not fit are named below the table, and notes are wrapped. */
static void test_width(void **state) {
    (void)state;
    Table t = example();
    table_note(&t, "a note that is rather long");
    char *text = printed(&t, &(TableView){.width = 24}, table_print_text);
    assert_string_equal(text, "Example\n"
                              "-----  --------  ------\n"
                              "Name       Time   Share\n"
                              "-----  --------  ------\n"
                              "a|b    1.500 us  25.00%\n"
                              "c,\"d\"   2.500 s  50.00%\n"
                              "e      3.000 ms        \n"
                              "-----  --------  ------\n"
                              "no room for Size\n"
                              "3 rows\n"
                              "a note that is rather\n"
                              "  long\n");
    free(text);
    text = printed(&t, &(TableView){.width = 33}, table_print_text);
    assert_null(strstr(text, "no room"));
    free(text);
    for (int64_t row = 0; row < t.rows; row++) t.cells[row * t.column_count + 2].number = NAN;
    text = printed(&t, &(TableView){.width = 18, .split = true}, table_print_text);
    assert_non_null(strstr(text, "Size"));
    assert_null(strstr(text, "Share")); // empty in every row
    int named = 0;                      // printed in both parts
    for (const char *at = text; (at = strstr(at, "Name")); at++) named++;
    assert_int_equal(named, 2);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        assert_true(end - line <= 18);
    free(text);
    table_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text),     cmocka_unit_test(test_other_forms),
                                       cmocka_unit_test(test_arranged), cmocka_unit_test(test_long_names),
                                       cmocka_unit_test(test_width),    cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
