/* The option layer: the command line and configuration files. */
#include "base/files.h"
#include "base/memory.h"
#include "base/options.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_ARGUMENTS = 32 };

typedef enum { RED, GREEN, BLUE } Colour;

typedef struct {
    int64_t batch, seed;
    double rate, share;
    const char *data, *resume;
    bool quiet, verbose;
    Colour colour;
    OptionList sizes;
} Values;

#define FIELD(member) .field = offsetof(Values, member)
static const Option table[] = {
    {OPTION_HEADING, .doc = "Numbers"},
    {OPTION_INTEGER, "batch", .argument = "N", .doc = "rows", .least = 1, .most = 1048576, .travels = true,
     FIELD(batch)},
    {OPTION_INTEGER, "seed", 's', "N", "random seed", .least = 0, .most = INT64_MAX, FIELD(seed)},
    {OPTION_NUMBER, "rate", .argument = "X", .doc = "speed", .low = 0, .high = HUGE_VAL, .above = true,
     FIELD(rate)},
    {OPTION_NUMBER, "share", .argument = "X", .doc = "part", .high = 1, .below = true, FIELD(share)},
    {OPTION_HEADING, .doc = "Words"},
    {OPTION_TEXT, "data", .argument = "FILE", .doc = "what to read", FIELD(data)},
    {OPTION_TEXT, "resume", .argument = "FOLDER", .doc = "go on", .bare = "last", FIELD(resume)},
    {OPTION_FLAG, "quiet", 'q', .doc = "say less", FIELD(quiet)},
    {OPTION_FLAG, "verbose", 'v', .doc = "say more", FIELD(verbose)},
    {OPTION_CHOICE, "colour", .choices = "red|green|blue", .doc = "hue", .travels = true, FIELD(colour)},
    {OPTION_LIST, "sizes", .argument = "LIST", .doc = "sweep", .least = 1, .most = 64, FIELD(sizes)},
    {OPTION_TEXT, "config", .argument = "FILE", .doc = "a file", .command_line_only = true, FIELD(data)},
};
enum { ROWS = sizeof table / sizeof *table };

static const Values defaults = {
    .batch = 8, .seed = 1, .rate = 0.5, .data = "", .resume = "", .colour = GREEN};
static const OptionTable all = {table, ROWS, &defaults, sizeof defaults};

/* ---- helpers ---- */

/* Splits at '\x1f' if arguments contain blanks, else at blanks. */
static int split(const char *line, char *copy, size_t room, char **argv) {
    int argc = 0;
    snprintf(copy, room, "%s", line);
    argv[argc++] = (char *)(uintptr_t) "program";
    for (char *word = strtok(copy, strchr(line, '\x1f') ? "\x1f" : " "); word;
         word = strtok(NULL, strchr(line, '\x1f') ? "\x1f" : " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    return argc;
}

static void open_set(OptionSet *set, Values *values) {
    options_open(set, "program", "program 1.0", "Tests.");
    options_add(set, &all, values);
}

static Status parse(OptionSet *set, const char *line) {
    char copy[1000], *argv[MOST_ARGUMENTS];
    bool printed;
    int argc = split(line, copy, sizeof copy, argv);
    Status status = options_parse(set, argc, argv, &printed);
    assert_false(printed);
    return status;
}

static void expect_error(Status status, ErrorCode code, const char *message) {
    assert_non_null(status);
    assert_string_equal(status_message(status), message);
    assert_int_equal(status_code(status), code);
    status_free(status);
}

static void refuse(const char *line, const char *message) {
    OptionSet set;
    Values values;
    open_set(&set, &values);
    expect_error(parse(&set, line), ERROR_USAGE, message);
    options_close(&set);
}

/* Runs `body` with standard output redirected to a file, and returns its output. */
#define CAPTURE(text, body)                                                                                  \
    do {                                                                                                     \
        fflush(stdout);                                                                                      \
        FILE *capture_ = tmpfile();                                                                          \
        int saved_ = dup(1);                                                                                 \
        dup2(fileno(capture_), 1);                                                                           \
        body;                                                                                                \
        fflush(stdout);                                                                                      \
        dup2(saved_, 1);                                                                                     \
        close(saved_);                                                                                       \
        rewind(capture_);                                                                                    \
        text[fread(text, 1, sizeof text - 1, capture_)] = 0;                                                 \
        fclose(capture_);                                                                                    \
    } while (0)

/* ---- the command line ---- */

static void test_values(void **state) {
    (void)state;
    OptionSet set;
    Values v;
    open_set(&set, &v);
    assert_null(
        parse(&set, "--batch=12 --rate 2.5e-3 --data=a=b --resume --quiet --colour=blue --sizes=1,64,3"));
    assert_int_equal(v.batch, 12);
    assert_true(v.rate == 2.5e-3);
    assert_string_equal(v.data, "a=b");
    assert_string_equal(v.resume, "last");
    assert_true(v.quiet);
    assert_int_equal(v.colour, BLUE);
    assert_int_equal(v.sizes.count, 3);
    assert_int_equal(v.sizes.values[1], 64);
    assert_true(options_given(&set, "batch"));
    assert_false(options_given(&set, "seed"));
    assert_int_equal(v.seed, 1);
    options_close(&set);
}

static void test_forms(void **state) {
    (void)state;
    OptionSet set;
    Values v;
    open_set(&set, &v);
    /* Twice (the last wins), letters together, a value like an option, the end. */
    assert_null(parse(&set, "--batch=1 --batch 3 -qv -s7 --data --quiet --resume=x --"));
    assert_int_equal(v.batch, 3);
    assert_int_equal(v.seed, 7);
    assert_true(v.quiet && v.verbose);
    assert_string_equal(v.data, "--quiet");
    assert_string_equal(v.resume, "x");
    assert_null(parse(&set, "--quiet=0 --verbose=1 --seed=9223372036854775807 --data="));
    assert_false(v.quiet);
    assert_true(v.verbose);
    assert_true(v.seed == INT64_MAX);
    assert_string_equal(v.data, "");
    options_close(&set);
}

static void test_unknown(void **state) {
    (void)state;
    refuse("--bach=3", "unknown option '--bach=3'; did you mean '--batch'?");
    refuse("--batch=3 --helpp", "unknown option '--helpp'; did you mean '--help'?");
    refuse("-batch=3", "unknown option '-batch=3'; did you mean '--batch'?");
    refuse("-qx", "unknown option '-qx'; --help lists them all");
    refuse("--ver", "unknown option '--ver'; did you mean '--verbose' or '--version'?");
    refuse("--colo=red", "unknown option '--colo=red'; did you mean '--colour'?"); // no name is cut short
    refuse("--=3", "unknown option '--=3'; --help lists them all");
    refuse("stray", "unexpected argument 'stray'; options are written --name=value");
    refuse("--quiet 0", "unexpected argument '0'; options are written --name=value");
    refuse("-- --batch=3", "unexpected argument '--batch=3'; options are written --name=value");
    refuse("-", "unexpected argument '-'; options are written --name=value");
    refuse("--batch", "--batch needs a value: --batch=N");
    refuse("--colour", "--colour needs a value: --colour=red|green|blue");
    refuse("--help=1", "--help takes no value");
    refuse("--colour=gren", "--colour=gren: expected red|green|blue; did you mean 'green'?");
}

static void test_bad_numbers(void **state) {
    (void)state;
    const char *const bad[] = {"abc",
                               "",
                               "0",
                               "1048577",
                               "1e3",
                               " 1",
                               "1 ",
                               "1.0",
                               "0x10",
                               "--1",
                               "+",
                               "9223372036854775808",
                               "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[100], message[200];
        snprintf(line, sizeof line, "--batch=%s\x1f", bad[i]);
        snprintf(message, sizeof message, "--batch=%s: expected a whole number from 1 to 1048576", bad[i]);
        refuse(line, message);
    }
    const char *const worse[] = {"nan",   "inf",  "-inf", "1e999", "0", "-1",
                                 "0x1p3", "1.5x", "1e",   ".",     "",  "1,5"};
    for (size_t i = 0; i < sizeof worse / sizeof *worse; i++) {
        char line[100], message[200];
        snprintf(line, sizeof line, "--rate=%s", worse[i]);
        snprintf(message, sizeof message, "--rate=%s: expected a number above 0", worse[i]);
        refuse(line, message);
    }
    refuse("--share=1", "--share=1: expected a number of at least 0 and below 1");
    refuse("--seed=-1", "--seed=-1: expected a whole number of at least 0");
    refuse("--quiet=yes", "--quiet=yes: expected 0 or 1, or no value, which means 1");
    refuse("--sizes=1,65", "--sizes=1,65: number 2 of the list: expected a whole number from 1 to 64");
    refuse("--sizes=1,,2", "--sizes=1,,2: number 2 of the list: expected a whole number from 1 to 64");
    refuse("--sizes=", "--sizes=: number 1 of the list: expected a whole number from 1 to 64");
}

static void test_help(void **state) {
    (void)state;
    OptionSet set;
    Values v;
    open_set(&set, &v);
    const char *const lines[] = {"--batch=3 --help", "-h", "--usage", "--version"};
    const char *const starts[] = {"Usage: program [OPTION...]\n", "Usage: program [OPTION...]\n",
                                  "Usage: program [", "program 1.0\n"};
    for (int i = 0; i < 4; i++) {
        char copy[100], *argv[MOST_ARGUMENTS], text[8000];
        bool printed = false;
        int argc = split(lines[i], copy, sizeof copy, argv);
        Status status;
        CAPTURE(text, status = options_parse(&set, argc, argv, &printed));
        assert_null(status);
        assert_true(printed);
        assert_int_equal(strncmp(text, starts[i], strlen(starts[i])), 0);
        if (i > 1) continue;
        assert_non_null(strstr(text, "\nNumbers\n      --batch=N              rows [8]\n  -s, --seed=N "));
        assert_non_null(strstr(text, "  -q, --quiet                say less\n"));
        assert_non_null(strstr(text, "hue [green]\n"));
        assert_true(strstr(text, "--rate") < strstr(text, "--data")); /* the table's order */
    }
    options_close(&set);
}

/* Several tables form one set. The set may own a table's values, which are initially the defaults. */
static void tables_add_up(void **state) {
    (void)state;
    typedef struct {
        int64_t depth;
        const char *name;
    } More;
    static const Option rows[] = {
        {OPTION_HEADING, .doc = "More"},
        {OPTION_INTEGER, "depth", .argument = "N", .doc = "down", .most = 9, .field = offsetof(More, depth)},
        {OPTION_TEXT, "name", .argument = "TEXT", .doc = "a word", .field = offsetof(More, name)}};
    static const More first = {3, ""};
    static const OptionTable more = {rows, 3, &first, sizeof first};
    OptionSet set;
    Values v;
    char text[8000];
    bool printed;
    open_set(&set, &v);
    options_add(&set, &more, NULL);
    const More *own = options_values(&set, &more);
    assert_int_equal(own->depth, 3);
    CAPTURE(text, assert_null(options_parse(&set, 2, (char *[]){"program", "--help", NULL}, &printed)));
    assert_true(printed && strstr(text, "\nMore\n      --depth=N              down [3]\n"));
    assert_true(options_zero(&set, "quiet") && !options_zero(&set, "depth") && !options_on(&set, "name"));
    assert_null(parse(&set, "--depth=0 --batch=2 --name=x"));
    assert_true(own->depth == 0 && v.batch == 2 && options_given(&set, "depth"));
    assert_true(options_zero(&set, "depth") && options_on(&set, "name") && !options_zero(&set, "name"));
    char *json = options_json(&set, false);
    assert_non_null(strstr(json, "\"depth\":0,\"name\":\"x\""));
    memory_free(json);
    options_close(&set);
}

/* ---- configuration files ---- */

static Status read_text_by(Status (*read_file)(OptionSet *, const char *), OptionSet *set, const char *json) {
    char path[] = "/tmp/fusebox-options-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, json, strlen(json)), (ssize_t)strlen(json));
    close(descriptor);
    Status status = read_file(set, path);
    remove(path);
    return status;
}

static Status read_text(OptionSet *set, const char *json) {
    return read_text_by(options_read_file, set, json);
}

/* The message after the path. */
static void refuse_file(const char *json, ErrorCode code, const char *message) {
    OptionSet set;
    Values v;
    open_set(&set, &v);
    Status status = read_text(&set, json);
    assert_non_null(status);
    assert_int_equal(status_code(status), code);
    assert_string_equal(strchr(status_message(status), ':'), message);
    status_free(status);
    options_close(&set);
}

static void test_file(void **state) {
    (void)state;
    OptionSet set;
    Values v;
    open_set(&set, &v);
    assert_null(parse(&set, "--batch=3"));
    assert_null(read_text(
        &set, "{\"batch\": 99, \"seed\": 1, \"rate\": 2, \"share\": 0.1, \"data\": \"a b\", \"resume\": 1,"
              "\"quiet\": true, \"colour\": \"red\", \"sizes\": [4, 5]}"));
    assert_int_equal(v.batch, 3); /* the command line wins */
    assert_true(v.rate == 2 && v.share == 0.1);
    assert_string_equal(v.data, "a b");
    assert_string_equal(v.resume, "1");
    assert_true(v.quiet);
    assert_int_equal(v.colour, RED);
    assert_int_equal(v.sizes.count, 2);
    assert_true(options_given(&set, "data"));
    assert_false(options_given(&set, "seed")); /* its default, said again */
    assert_null(read_text(&set, "{\"data\": \"later\", \"seed\": 5}"));
    assert_string_equal(v.data, "a b"); /* the first file wins */
    assert_int_equal(v.seed, 5);
    options_close(&set);
}

/* From a file that the user did not name, only options marked `travels` are read, and they do not count as
 * set by the user. */
static void test_travelling_file(void **state) {
    (void)state;
    OptionSet set;
    Values v;
    open_set(&set, &v);
    assert_null(parse(&set, "--colour=blue"));
    assert_null(read_text_by(
        options_read_travelling, &set,
        "{\"batch\": 9, \"colour\": \"red\", \"data\": \"x\", \"seed\": -1, \"config\": \"y\"}"));
    assert_int_equal(v.batch, 9);
    assert_int_equal(v.colour, BLUE);
    assert_string_equal(v.data, "");
    assert_int_equal(v.seed, 1);
    assert_false(options_given(&set, "batch"));
    options_close(&set);
}

static void test_bad_file(void **state) {
    (void)state;
    refuse_file("{\"batch\": 0}", ERROR_USAGE, ": \"batch\": 0: expected a whole number from 1 to 1048576");
    refuse_file("{\"batch\": \"8\"}", ERROR_USAGE, ": \"batch\": expected a whole number");
    refuse_file("{\"batch\": 8.0}", ERROR_USAGE, ": \"batch\": expected a whole number");
    refuse_file("{\"quiet\": 1}", ERROR_USAGE, ": \"quiet\": expected true or false");
    refuse_file("{\"rate\": null}", ERROR_USAGE, ": \"rate\": expected a number");
    refuse_file("{\"data\": []}", ERROR_USAGE, ": \"data\": expected a string");
    refuse_file("{\"sizes\": [1, \"2\"]}", ERROR_USAGE, ": \"sizes\": expected an array of whole numbers");
    refuse_file("{\"sizes\": []}", ERROR_USAGE, ": \"sizes\": expected an array of whole numbers");
    refuse_file("{\"colour\": \"gren\"}", ERROR_USAGE,
                ": \"colour\": \"gren\": expected red|green|blue; did you mean 'green'?");
    refuse_file("{\"bach\": 1}", ERROR_USAGE, ": unknown key \"bach\"; did you mean \"batch\"?");
    refuse_file("{\"a\\nb\": 1}", ERROR_USAGE, ": unknown key \"a\\nb\"");
    refuse_file("{\"config\": \"x\"}", ERROR_USAGE, ": \"config\" belongs on the command line only");
    refuse_file("[1]", ERROR_FORMAT, ": expected a JSON object of option names and values");
    refuse_file("{\"seed\": 1, \"seed\": 2}", ERROR_FORMAT,
                ": line 1, column 18: not valid JSON: duplicate object key near '\"seed\"'");
    refuse_file("{\"seed\": 99999999999999999999}", ERROR_FORMAT,
                ": line 1, column 29: not valid JSON: too big integer near '99999999999999999999'");

    OptionSet set;
    Values v;
    open_set(&set, &v);
    Status status = read_text(&set, "{\"seed\":");
    assert_int_equal(status_code(status), ERROR_FORMAT);
    status_free(status);
    status = options_read_file(&set, "/nowhere/at/all.json");
    assert_int_equal(status_code(status), ERROR_FILE);
    status_free(status);
    char *large = malloc(1100001);
    memset(large, ' ', 1100000);
    large[1100000] = 0;
    status = read_text(&set, large);
    assert_int_equal(status_code(status), ERROR_FORMAT);
    status_free(status);
    free(large);
    options_close(&set);
}

static void test_round_trip(void **state) {
    (void)state;
    OptionSet set, again;
    Values v, w;
    char *first, *second, *line;
    open_set(&set, &v);
    assert_null(parse(&set, "--seed=9223372036854775807 --rate=0.1 --share=0.30000000000000004 "
                            "--data=a\"b\\c --sizes=3,4 -q --colour=red"));
    first = options_json(&set, true);
    line = options_json(&set, false);
    open_set(&again, &w);
    assert_null(read_text(&again, first));
    second = options_json(&again, true);
    assert_string_equal(first, second);
    assert_true(w.share == 0.30000000000000004);
    assert_non_null(strstr(first, "\n    \"rate\": 0.1,\n"));
    assert_null(strstr(first, "config"));
    assert_null(strchr(line, '\n'));
    memory_free(first);
    memory_free(second);
    memory_free(line);
    options_close(&set);
    options_close(&again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_forms),
        cmocka_unit_test(test_unknown),    cmocka_unit_test(test_bad_numbers),
        cmocka_unit_test(test_help),       cmocka_unit_test(tables_add_up),
        cmocka_unit_test(test_file),       cmocka_unit_test(test_bad_file),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_travelling_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
