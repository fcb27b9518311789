/* signals: how a program ends where it is told to, or where what it reads or writes goes away under it. */
#pragma once

#include <stdbool.h>

/* For both programs, before anything else. A standard stream that is closed is made one that fails, so that
 * no file that is opened later is taken for it. A file that becomes shorter while it is mapped ends the
 * program with a line and the code of ERROR_FILE; one that becomes longer than the system allows fails to be
 * written. */
void signals_prepare(void);

/* For a run that saves before it ends: SIGINT, SIGTERM and SIGHUP (but not under nohup) are waited for, and a
 * second one ends the program at once, with 128 and its number. */
void signals_catch(void);
bool signals_caught(void);

/* A pipe that nobody reads fails to be written, and does not end the program. */
void signals_ignore_pipe(void);

/* Ends the program as the signal that was caught would have, if there was one: what started the program is
 * to know that it did not do everything. */
void signals_repeat(void);

/* For a conversation: SIGINT alone is waited for, and interrupts what waits for input. A second one before
 * signals_take ends the program at once. */
void signals_catch_interrupt(void);
bool signals_take(void); // there was one, which is forgotten now
