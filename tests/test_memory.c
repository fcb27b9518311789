/* base/memory, and jansson's use of it. */
#include "base/memory.h"
#include "base/json_read.h"
#include "tests/support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Under the address sanitizer, too, an allocation that is too large fails like any other. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

static const size_t too_many = SIZE_MAX / 4; // bytes, which no machine has

enum { PRINTED = 10000 };

/* Runs `body` in a process of its own; returns its exit code, and what it printed to standard error. */
static int run_process(void (*body)(int), int argument, char printed[PRINTED]) {
    int pipes[2], status;
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        body(argument);
        _exit(0);
    }
    close(pipes[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(pipes[0], printed + used, PRINTED - 1 - used)) > 0;) used += (size_t)got;
    printed[used] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The documented exit code for lack of memory, and a last line that reports it, after a sanitizer's own
 * lines. */
static void expect_shortage(int code, const char *printed) {
    const char *said = strstr(printed, "out of host memory");
    assert_int_equal(code, ERROR_MEMORY);
    assert_non_null(said);
    assert_ptr_equal(strchr(said, '\n'), printed + strlen(printed) - 1);
}

static void library_ends(void) {
    fputs("a library ended while threads may be using it\n", stderr);
}

static void ask_for_too_much(int which) {
    int64_t room = 0;
    (void)atexit(library_ends);
    switch (which) {
    case 0: memory_free(memory_allocate(too_many)); break;
    case 1: memory_free(memory_array(too_many, 8)); break;
    case 2: memory_free(memory_resize(NULL, too_many)); break;
    case 3: memory_free(memory_grow(NULL, &room, INT64_MAX, 8)); break;
    default: memory_free(memory_grow(NULL, &room, INT64_MAX / 4, 1)); break;
    }
}

static void a_shortage_ends_the_program(void **state) {
    (void)state;
    char printed[PRINTED];
    for (int which = 0; which < 5; which++)
        expect_shortage(run_process(ask_for_too_much, which, printed), printed);
    assert_null(memory_reserve(too_many));
}

static void growing_keeps_what_is_there(void **state) {
    (void)state;
    int64_t *list = NULL, room = 0, moves = 0;
    for (int64_t i = 0; i < 100000; i++) {
        int64_t before = room;
        list = memory_grow(list, &room, i + 1, sizeof *list);
        assert_true(room > i);
        moves += room != before;
        list[i] = i;
    }
    assert_true(moves < 40); // amortized constant time
    for (int64_t i = 0; i < 100000; i++) assert_int_equal(list[i], i);
    assert_ptr_equal(memory_grow(list, &room, 5, sizeof *list), list);
    memory_free(list);
}

/* ---- jansson ---- */

static json_malloc_t given;
static int left; // allocations until one fails

static void *fail_later(size_t bytes) {
    return given(left-- == 0 ? too_many : bytes);
}

static Status parse(json_t **root) {
    static const char text[] = "{\"list\": [1, 2.5, true, null, \"a text that is longer than a few bytes\"],"
                               " \"object\": {\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6}}";
    return json_parse(text, sizeof text - 1, "text", root);
}

/* Whichever allocation fails, the program must end before jansson continues with NULL. */
static void parse_with_failure(int allocation) {
    json_free_t release;
    json_t *root;
    json_get_alloc_funcs(&given, &release);
    json_set_alloc_funcs(fail_later, release);
    left = allocation;
    Status status = parse(&root);
    _exit(left >= 0 && !status ? 0 : 100); // 100: it failed, and the program went on
}

static void a_shortage_inside_jansson_ends_the_program(void **state) {
    (void)state;
    char printed[PRINTED];
    int allocation = 0, code;
    while ((code = run_process(parse_with_failure, allocation, printed)) != 0) {
        expect_shortage(code, printed);
        allocation++;
    }
    assert_in_range(allocation, 20, 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shortage_ends_the_program),
        cmocka_unit_test(growing_keeps_what_is_there),
        cmocka_unit_test(a_shortage_inside_jansson_ends_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
