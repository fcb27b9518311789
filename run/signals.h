/* signals: signals that end a program, and files and pipes that fail under it. */
#pragma once

#include <stdbool.h>

/* For both programs, called first. A closed standard stream is replaced by one that fails, so that no file
 * opened later takes its descriptor. A mapped file that becomes shorter ends the program with a message and
 * the exit code of ERROR_FILE; writing beyond the file size limit becomes an error. */
void signals_prepare(void);

/* For a run that saves before it ends: SIGINT, SIGTERM and SIGHUP (except under nohup) are deferred. A second
 * signal ends the program at once, with exit code 128 plus its number. */
void signals_catch(void);
bool signals_caught(void);

/* Writing to a pipe without a reader fails instead of ending the program. */
void signals_ignore_pipe(void);

/* If a signal was caught, ends the program by that signal, so that the parent process knows that the work is
 * incomplete. */
void signals_repeat(void);

/* For a conversation: only SIGINT is deferred, and interrupts waiting for input. A second one before
 * signals_take ends the program at once. */
void signals_catch_interrupt(void);
bool signals_take(void); // whether a signal was caught; clears it
