/* status: the result of every function that can fail. NULL is success; anything else is an error that owns
 * its message. A message is one line: what was wrong, where, and what to do. Only main() turns an error
 * into an exit. */
#pragma once

#include <sys/cdefs.h> // __BEGIN_DECLS: C++ sees these as C

__BEGIN_DECLS

/* The values are the programs' exit codes, documented in docs/running.md. */
typedef enum {
    ERROR_INTERNAL = 1,  // an error in fusebox itself
    ERROR_USAGE = 2,     // an unknown, malformed or contradictory option
    ERROR_FILE = 3,      // a file is missing or cannot be read or written
    ERROR_FORMAT = 4,    // a file is truncated or malformed, or does not fit
    ERROR_MEMORY = 5,    // not enough host or device memory
    ERROR_DEVICE = 6,    // no such device, or the device failed
    ERROR_NONFINITE = 7, // training diverged
} ErrorCode;

typedef struct Error Error;
typedef Error *Status;

#define OK      ((Status)0)
#define CHECKED __attribute__((warn_unused_result))

/* Returns a new error with a printf-style message. Never returns OK, even if memory has run out. */
CHECKED Status fail(ErrorCode code, const char *format, ...)
    __attribute__((format(printf, 2, 3), returns_nonnull));

/* Prefixes the message of `inner` with "where: ". Returns OK for OK. */
CHECKED Status fail_at(Status inner, const char *format, ...) __attribute__((format(printf, 2, 3)));

ErrorCode status_code(Status status);
const char *status_message(Status status);
void status_free(Status status);

/* Prints "program: message" to standard error, frees the status, and returns the exit code. OK gives 0, or
 * ERROR_FILE if standard output could not be written (for example, a full disk). */
int status_exit(Status status, const char *program);

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        Status try_status_ = (call);                                                                         \
        if (try_status_) return try_status_;                                                                 \
    } while (0)

__END_DECLS
