/* A run's output: the event log, the progress bar, and the JSON for both. */
#define _GNU_SOURCE
#include "base/utf8.h"
#include "base/json_writer.h"
#include "profile/events.h"
#include "run/progress.h"
#include "tests/support/expect.h"
#include "tests/support/terminal.h"

#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

/* ---- JSON ---- */

static void test_numbers(void **state) {
    (void)state;
    const double values[] = {0,       -0.0,    0.1,    1.0 / 3,       1e-5, 1e300,
                             DBL_MAX, DBL_MIN, 5e-324, 123456789.123, 3e-4, 5};
    const char *const texts[] = {"0",  "-0", "0.1", "0.333333333333333", NULL,     "1e+300",
                                 NULL, NULL, NULL,  "123456789.123",     "0.0003", "5"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        JsonWriter w = {0};
        json_write_number(&w, values[i]);
        assert_true(strtod(w.text, NULL) == values[i]);
        if (texts[i] && i != 3) assert_string_equal(w.text, texts[i]);
        json_writer_free(&w);
    }
    const double wild[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        JsonWriter w = {0};
        json_write_number(&w, wild[i]);
        assert_string_equal(w.text, "null");
        json_writer_free(&w);
    }
}

static void test_structure(void **state) {
    (void)state;
    JsonWriter w = {0};
    json_write_open(&w, '{');
    json_write_key(&w, "a,");
    json_write_open(&w, '[');
    json_write_integer(&w, INT64_MIN);
    json_write_boolean(&w, true);
    json_write_string(&w, "[", 1);
    json_write_open(&w, '{');
    json_write_close(&w, '}');
    json_write_close(&w, ']');
    json_write_line(&w, 2, true);
    json_write_key(&w, "b");
    json_write_json(&w, "null");
    json_write_line(&w, 0, false);
    json_write_close(&w, '}');
    assert_string_equal(w.text, "{\"a,\":[-9223372036854775808,true,\"[\",{}],\n  \"b\":null\n}");
    json_writer_free(&w);
}

/* Any bytes make valid JSON; valid UTF-8 is restored unchanged. */
static void test_strings(void **state) {
    (void)state;
    const struct {
        const char *bytes, *json;
    } cases[] = {
        {"a\"b\\c/\n\t\r\x01\x7f", "\"a\\\"b\\\\c/\\n\\t\\r\\u0001\x7f\""},
        {"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", "\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\""},
        {"\xC0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},                 /* overlong */
        {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""}, /* a surrogate */
        {"\xF4\x90\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xE2\x82", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""}, /* cut short */
        {"\xE2z", "\"\xEF\xBF\xBDz\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        JsonWriter w = {0};
        json_write_string(&w, cases[i].bytes, (int64_t)strlen(cases[i].bytes));
        assert_string_equal(w.text, cases[i].json);
        json_writer_free(&w);
    }
    uint64_t random = 1;
    for (int round = 0; round < 2000; round++) {
        char bytes[24];
        for (size_t i = 0; i < sizeof bytes; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (char)((random >> 40) | (i % 3 ? 0x80 : 0));
        }
        JsonWriter w = {0};
        json_write_string(&w, bytes, sizeof bytes);
        json_t *value = json_loads(w.text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        json_decref(value);
        json_writer_free(&w);
    }
}

/* ---- the log ---- */

static char log_path[64];

static int make_folder(void **state) {
    if (scratch_setup(state)) return -1;
    snprintf(log_path, sizeof log_path, "%s/log.jsonl", (const char *)*state);
    return 0;
}

static void read_log(char *text, size_t room) {
    FILE *file = fopen(log_path, "r");
    assert_non_null(file);
    text[fread(text, 1, room - 1, file)] = 0;
    fclose(file);
}

static void write_log(const char *text) {
    FILE *file = fopen(log_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_lines(void **state) {
    (void)state;
    char text[1000];
    Events *events;
    write_log("old\n");
    assert_null(events_open(log_path, false, &events));
    JsonWriter *line = events_begin(events, "step");
    json_member_integer(line, "step", 1);
    json_member_number(line, "loss", 3.25);
    json_member_number(line, "norm", NAN);
    assert_null(events_end(events));
    read_log(text, sizeof text); /* at once, not when closed */
    assert_string_equal(text, "{\"event\":\"step\",\"step\":1,\"loss\":3.25,\"norm\":null}\n");
    line = events_begin(events, "sample");
    json_member_text(line, "text", "int\nmain");
    json_write_key(line, "bytes");
    json_write_string(line, "a\0b", 3);
    json_write_key(line, "last");
    json_write_boolean(line, false);
    json_write_key(line, "plan");
    json_write_json(line, "{\n  \"a\": [1]\n}");
    assert_null(events_end(events));
    events_close(events);
    read_log(text, sizeof text);
    assert_string_equal(
        strchr(text, '\n') + 1,
        "{\"event\":\"sample\",\"text\":\"int\\nmain\",\"bytes\":\"a\\u0000b\",\"last\":false,"
        "\"plan\":{   \"a\": [1] }}\n");
}

static void test_append(void **state) {
    (void)state;
    static char text[20000], large[10000];
    memset(large, 'x', sizeof large - 1);
    const char *const before[] = {"", "one\n", "one\ntwo\n{\"half", "{\"half", "one\n\n"};
    const char *const kept[] = {"", "one\n", "one\ntwo\n", "", "one\n\n"};
    for (int i = 0; i < 5; i++) {
        for (int long_tail = 0; long_tail < 2; long_tail++) {
            Events *events;
            snprintf(text, sizeof text, "%s%s", before[i], long_tail ? large : "");
            write_log(text);
            assert_null(events_open(log_path, true, &events));
            events_begin(events, "end");
            assert_null(events_end(events));
            events_close(events);
            read_log(text, sizeof text);
            assert_int_equal(strncmp(text, kept[i], strlen(kept[i])), 0);
            assert_string_equal(text + strlen(kept[i]), "{\"event\":\"end\"}\n");
        }
    }
}

static void test_failures(void **state) {
    (void)state;
    Events *events;
    Status status = events_open("/nowhere/at/all/log.jsonl", false, &events);
    assert_int_equal(status_code(status), ERROR_FILE);
    assert_string_equal(status_message(status),
                        "cannot open the log /nowhere/at/all/log.jsonl: No such file or directory");
    assert_null(events);
    status_free(status);
    if (access("/dev/full", W_OK) == 0) {
        assert_null(events_open("/dev/full", true, &events));
        events_begin(events, "end");
        status = events_end(events);
        assert_int_equal(status_code(status), ERROR_FILE);
        status_free(status);
        events_close(events);
    }
    assert_null(events_open("", false, &events)); /* no log */
    json_member_number(events_begin(events, "step"), "loss", 1);
    assert_null(events_end(events));
    events_close(events);
    events_close(NULL);
}

/* ---- progress ---- */

/* A terminal of 60 columns: output of `stream` can be read from `master`. */
static FILE *open_terminal(int *master) {
    char path[64];
    *master = terminal_open(60, path);
    int slave = open(path, O_RDWR | O_NOCTTY);
    if (slave < 0) skip();
    struct termios modes;
    tcgetattr(slave, &modes);
    cfmakeraw(&modes);
    tcsetattr(slave, TCSANOW, &modes);
    return fdopen(slave, "w");
}

static void read_terminal(int master, char *text, size_t room) {
    fcntl(master, F_SETFL, O_NONBLOCK);
    size_t used = 0;
    for (ssize_t got; used < room - 1 && (got = read(master, text + used, room - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = 0;
}

static int count_text(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text++) count++;
    return count;
}

static void test_bar(void **state) {
    (void)state;
    char text[8000];
    int master;
    FILE *stream = open_terminal(&master);
    Progress *progress;
    progress = progress_open(stream, stream, 0, 200, false);
    progress_line(progress, "first %d", 1);
    read_terminal(master, text, sizeof text);
    assert_string_equal(text, "first 1\n"); /* no bar yet, none to clear */
    progress_step(progress, 100, 1.5);
    read_terminal(master, text, sizeof text);
    assert_string_equal(text, "\r\033[K 50% [================>                ] 100/200  2:30 left");
    progress_line(progress, "step %d\n", 100);
    read_terminal(master, text, sizeof text);
    assert_string_equal(
        text, "\r\033[Kstep 100\n\r\033[K 50% [================>                ] 100/200  2:30 left");
    progress_hide(progress);
    progress_hide(progress);
    progress_line(progress, "%s", "");
    read_terminal(master, text, sizeof text);
    assert_string_equal(text, "\r\033[K\n");
    progress_step(progress, 200, 1.5); /* the last step is always drawn */
    progress_close(progress);
    read_terminal(master, text, sizeof text);
    assert_non_null(strstr(text, "100% [=================================] 200/200  0:00 left\r\033[K"));
    fclose(stream);
    close(master);
}

static void test_rate(void **state) {
    (void)state;
    static char text[100000];
    int master;
    FILE *stream = open_terminal(&master);
    Progress *progress;
    progress = progress_open(stream, stream, 0, 100000, false);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 1; i < 1000; i++) progress_step(progress, i, 0.001);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    read_terminal(master, text, sizeof text);
    assert_in_range(count_text(text, "\r\033[K"), 1, (int)(10 * seconds) + 1);
    progress_close(progress);
    fclose(stream);
    close(master);
}

static void test_plain(void **state) {
    (void)state;
    char text[1000];
    for (int quiet = 0; quiet < 2; quiet++) {
        FILE *file = tmpfile();
        Progress *progress;
        progress = progress_open(file, file, 0, 10, quiet);
        progress_step(progress, 1, 0.5);
        progress_line(progress, "step %d", 1);
        progress_close(progress);
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        assert_string_equal(text, quiet ? "" : "step 1\n");
        fclose(file);
    }
    progress_close(NULL);
}

/* The median of the latest steps: neither the slow first step nor old ones count. */
static void test_time_left(void **state) {
    (void)state;
    Progress *progress;
    progress = progress_open(stdout, stdout, 100, 1100, true);
    assert_true(progress_left(progress) < 0);
    progress_step(progress, 101, 60);
    assert_true(progress_left(progress) == 60 * 999.0);
    for (int i = 2; i <= 40; i++) progress_step(progress, 100 + i, 0.5);
    assert_true(progress_left(progress) == 0.5 * 960);
    for (int i = 41; i <= 72; i++) progress_step(progress, 100 + i, i % 2 ? 1 : 3);
    assert_true(progress_left(progress) == 2.0 * 928);
    progress_close(progress);
}

static void what_a_terminal_obeys_is_tamed(void **unused) {
    (void)unused;
    char text[] = "a\033[31m\n\tb\x7F\xC2\x9B"
                  "31m\u00e9\x9B\xFF\U0001F600\u00a0",
         kept[sizeof text];
    memcpy(kept, text, sizeof text);
    utf8_tame(text, (int64_t)strlen(text), true);
    assert_string_equal(text, "a?[31m\n\tb???31m\u00e9??\U0001F600\u00a0");
    utf8_tame(kept, (int64_t)strlen(kept), false);
    assert_string_equal(kept, "a?[31m??b???31m\u00e9??\U0001F600\u00a0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_terminal_obeys_is_tamed),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_time_left),
    };
    return cmocka_run_group_tests(tests, make_folder, scratch_teardown);
}
