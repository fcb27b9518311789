/* terminal: runs a program on a pseudo terminal, and reads its output. */
#pragma once

/* Returns the user's side of a new terminal; `path` is set to the program's side: "program <>PATH >&0 2>&0".
 * Skips the test if the system has no pseudo terminals. */
int terminal_open(int columns, char path[64]);

void terminal_type(int terminal, const char *text);

/* Reads until the text has appeared; fails the test if it has not within a minute. Returns everything read,
 * valid until the next call. */
const char *terminal_expect(int terminal, const char *text);
