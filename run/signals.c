#define _GNU_SOURCE
#include "run/signals.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* The only variable that a signal handler may write. */
static volatile sig_atomic_t caught; // number of the caught signal

static void catch_as(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void catch_with(int number, void (*handler)(int)) {
    catch_as(number, handler, SA_RESTART);
}

static void on_signal(int number) {
    if (caught) _exit(128 + number);
    caught = number;
}

static void say(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; // stderr is gone as well: nothing can be
                // reported
}

/* Nothing can be saved here, because the faulting thread may be in the middle of anything. */
static void on_bus_error(int number, siginfo_t *about, void *context) {
    (void)context;
    if (about->si_code != BUS_ADRERR) {
        catch_with(number, SIG_DFL); // a bug of the program: the fault recurs and ends it
        return;
    }
    say(program_invocation_short_name);
    say(": a file was shortened by another program, or could not be read, while it was in use\n");
    _exit(ERROR_FILE);
}

void signals_prepare(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
        if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY); // open returns the lowest
                                                                                    // free descriptor
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
    catch_with(SIGXFSZ, SIG_IGN);
}

void signals_catch(void) {
    struct sigaction before;
    catch_with(SIGINT, on_signal);
    catch_with(SIGTERM, on_signal);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) catch_with(SIGHUP, on_signal);
}

void signals_ignore_pipe(void) {
    catch_with(SIGPIPE, SIG_IGN);
}

bool signals_caught(void) {
    return caught;
}

void signals_catch_interrupt(void) {
    catch_as(SIGINT, on_signal, 0);
}

bool signals_take(void) {
    bool was = caught;
    caught = 0;
    return was;
}

void signals_repeat(void) {
    if (!caught) return;
    catch_with(caught, SIG_DFL);
    raise(caught);
}
