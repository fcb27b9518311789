#include "tests/support/expect.h"

#include "base/directories.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void expect_ok(Status status) {
    if (status) fail_msg("%s", status_message(status));
}

void expect_error(Status status, ErrorCode code, const char *part) {
    if (!status) fail_msg("no error, where one with \"%s\" is due", part);
    if (status_code(status) != code)
        fail_msg("code %d, not %d: %s", status_code(status), code, status_message(status));
    if (!strstr(status_message(status), part)) fail_msg("\"%s\" is not in: %s", part, status_message(status));
    status_free(status);
}

int scratch_setup(void **state) {
    char *folder = strdup("/tmp/fusebox-test-XXXXXX");
    *state = mkdtemp(folder);
    return *state ? 0 : -1;
}

int scratch_teardown(void **state) {
    Status status = directory_remove(*state);
    free(*state);
    status_free(status);
    return status ? -1 : 0;
}

const char *inside(const char *folder, const char *name) {
    static char paths[16][512];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

bool path_exists(const char *path) {
    PathKind kind;
    expect_ok(path_kind(path, &kind));
    return kind != PATH_ABSENT;
}

void write_bytes(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

void write_text_file(const char *path, const char *text) {
    write_bytes(path, text, strlen(text));
}
