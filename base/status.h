/* status: how every fallible function answers. NULL is success; otherwise an error that owns its message.
 * A message is one line: what was wrong, where, and what to do. Only main() turns one into an exit. */
#pragma once

#include <sys/cdefs.h> // __BEGIN_DECLS: what C++ reads is C here

__BEGIN_DECLS

/* The numbers are the programs' exit codes; docs/running.md documents them. */
typedef enum {
    ERROR_INTERNAL = 1,  // a fault of fusebox itself
    ERROR_USAGE = 2,     // an unknown, malformed or contradictory option
    ERROR_FILE = 3,      // a file that is missing, or cannot be read or written
    ERROR_FORMAT = 4,    // a file that is truncated, malformed or does not fit
    ERROR_MEMORY = 5,    // host or device memory does not suffice
    ERROR_DEVICE = 6,    // no such device, or the device failed
    ERROR_NONFINITE = 7, // training diverged
} ErrorCode;

typedef struct Error Error;
typedef Error *Status;

#define OK      ((Status)0)
#define CHECKED __attribute__((warn_unused_result))

/* Returns a new error; printf-style. Never returns OK, even when memory has run out. */
CHECKED Status fail(ErrorCode code, const char *format, ...)
    __attribute__((format(printf, 2, 3), returns_nonnull));

/* Puts "where: " before the message of `inner`, which it takes over. Returns OK for OK. */
CHECKED Status fail_at(Status inner, const char *format, ...) __attribute__((format(printf, 2, 3)));

ErrorCode status_code(Status status);
const char *status_message(Status status);
void status_free(Status status);

/* Prints "program: message" to standard error, frees the status, and returns the exit code: 0 for OK, unless
 * what was printed could not be written (a full disk): that is ERROR_FILE. */
int status_exit(Status status, const char *program);

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        Status try_status_ = (call);                                                                         \
        if (try_status_) return try_status_;                                                                 \
    } while (0)

__END_DECLS
