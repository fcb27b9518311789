/* Reports fit a terminal: every line of every report has at most REPORT_WIDTH columns. */
#define _GNU_SOURCE // posix_openpt
#include "base/memory.h"
#include "base/wrap.h"
#include "tests/support/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define RUN     "train " TINY " --val-every=0 --sample-every=0 "
#define MEASURE "infer --model=runs --device=cpu --peaks=0 --seq-lens=16 "

static int64_t columns(const char *line, const char *end) {
    int64_t count = 0;
    for (; line < end; line++) count += ((unsigned char)*line & 0xC0) != 0x80;
    return count;
}

static void expect_fits(const char *what, const char *text) {
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        if (columns(line, end) > REPORT_WIDTH)
            fail_msg("%s: wider than %d: %.*s", what, REPORT_WIDTH, (int)(end - line), line);
}

static void test_reports(void **state) {
    static const char *const commands[] = {
        RUN "--steps=3 --peaks=1",
        RUN "--compare --out=compared",
        RUN "--compare --peaks=1 --profile=0,0,0,2,1 --report=questions",
        RUN "--compare --profile=0,0,0,2,1 --report=tables --torch-compat",
        RUN "--compare --profile=0,0,0,2,1",
        RUN "--profile=0,0,0,2,1 --report=tables --profile-out=profiled",
        RUN "--profile=0,0,0,2,1 --report=questions --steps=3",
        RUN "--profile=0,0,0,2,1 --timer-only --steps=3",
        RUN "--steps=2 --save-every=2 --out=runs",
        MEASURE "--batch-sizes=1 --repeats=2",
        MEASURE "--batch-sizes=1 --compare --repeats=2",
        MEASURE "--batch-sizes=1,2 --profile=0,0,0,2,1 --profile-out=swept",
        MEASURE "--batch-sizes=1 --profile=0,0,0,2,1 --report=tables",
        "infer --op=norm --compare --device=cpu --peaks=1 --batch=2 --seq=16 --width=32",
        "profile tables profiled/profiling_stats.json",
        "profile questions profiled/profiling_stats.json",
        "profile diff profiled/profiling_stats.json profiled/profiling_stats.json",
        "profile check profiled/profiling_stats.json",
        "profile anatomy",
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        expect_fits(commands[i], program_succeeds(*state, "%s 2>&1", commands[i])->output);
}

/* Lines are broken at blanks; a word longer than a line is cut, and text beyond the last line is omitted. */
static void test_wrapped(void **state) {
    static const struct {
        const char *text, *printed;
        int lines;
    } cases[] = {{"", "", 9},
                 {"one", "head one\n", 9},
                 {"one two three", "head one two\n     three\n", 9},
                 {"one two three", "head one two\n", 1},
                 {"incomprehensible", "head incompreh\n     ensible\n", 9},
                 {"exactly9", "head exactly9\n", 9}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OWNED char *printed = NULL;
        size_t size;
        FILE *file = open_memstream(&printed, &size);
        print_wrapped("head", 5, cases[i].text, 14, cases[i].lines, file);
        fclose(file);
        assert_string_equal(printed, cases[i].printed);
    }
}

/* On a terminal of 80 columns a report has 80; in a file it has REPORT_WIDTH. */
static void test_terminal(void **state) {
    const struct winsize size = {.ws_row = 24, .ws_col = 80};
    (void)state;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    FILE *file = fopen(ptsname(terminal), "r+");
    assert_true(file && ioctl(fileno(file), TIOCSWINSZ, &size) == 0);
    assert_int_equal(report_width(file), 80);
    fclose(file);
    close(terminal);
    assert_non_null(file = tmpfile());
    assert_int_equal(report_width(file), REPORT_WIDTH);
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrapped), cmocka_unit_test(test_terminal),
                                       cmocka_unit_test(test_reports)};
    return cmocka_run_group_tests(tests, program_setup, scratch_teardown);
}
