#include "base/status.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct Error {
    ErrorCode code;
    char message[1000];
};

/* Messages quote text from files. Line breaks and escape sequences in it must not reach the terminal. */
static void make_one_line(char *text) {
    utf8_tame(text, (int64_t)strlen(text), false);
}

Status fail(ErrorCode code, const char *format, ...) {
    Error *error = memory_allocate(sizeof *error);
    error->code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    make_one_line(error->message);
    return error;
}

Status fail_at(Status inner, const char *format, ...) {
    if (!inner) return inner;
    char joined[sizeof inner->message];
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(joined, sizeof joined, format, arguments);
    va_end(arguments);
    if (used >= 0 && (size_t)used < sizeof joined)
        snprintf(joined + used, sizeof joined - (size_t)used, ": %s", inner->message);
    make_one_line(joined);
    memcpy(inner->message, joined, sizeof joined);
    return inner;
}

ErrorCode status_code(Status status) {
    return status ? status->code : (ErrorCode)0;
}

const char *status_message(Status status) {
    return status ? status->message : "success";
}

void status_free(Status status) {
    memory_free(status);
}

int status_exit(Status status, const char *program) {
    if (!status && fflush(stdout) == 0 && !ferror(stdout)) return 0;
    if (!status) status = fail(ERROR_FILE, "cannot write to standard output");
    int code = (int)status->code;
    fprintf(stderr, "%s: %s\n", program, status->message);
    status_free(status);
    return code;
}
