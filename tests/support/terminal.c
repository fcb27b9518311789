#define _GNU_SOURCE
#include "tests/support/terminal.h"

#include "tests/support/expect.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

int terminal_open(int columns, char path[64]) {
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) skip();
    assert_int_equal(ptsname_r(terminal, path, 64), 0);
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
    return terminal;
}

void terminal_type(int terminal, const char *text) {
    assert_int_equal(write(terminal, text, strlen(text)), strlen(text));
}

const char *terminal_expect(int terminal, const char *text) {
    static char got[1 << 14];
    size_t length = 0;
    for (;;) {
        struct pollfd ready = {.fd = terminal, .events = POLLIN};
        got[length] = 0;
        if (strstr(got, text)) return got;
        ssize_t more =
            poll(&ready, 1, PATIENCE_MS) == 1 ? read(terminal, got + length, sizeof got - 1 - length) : 0;
        if (more <= 0) fail_msg("\"%s\" has not come behind: %s", text, got);
        length += (size_t)more;
    }
}
