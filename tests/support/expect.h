/* expect: checks of statuses in one line, and a folder for a test's files. */
#pragma once

#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Fails the test with the status's message, unless it is OK. Frees it. */
void expect_ok(Status status);
/* Fails the test unless the status has this code and its message contains `part`. Frees it. */
void expect_error(Status status, ErrorCode code, const char *part);

/* For cmocka_unit_test_setup_teardown: *state is the path of an empty folder, removed afterwards. */
int scratch_setup(void **state);
int scratch_teardown(void **state);

/* "folder/name", in a buffer that stays valid for the next 15 calls. */
const char *inside(const char *folder, const char *name);
/* Whether the path exists; fails the test on an error. */
bool path_exists(const char *path);
void write_bytes(const char *path, const void *data, size_t bytes);
void write_text_file(const char *path, const char *text);
