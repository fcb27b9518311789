/* terminal: a pseudo terminal, and what a program on it says to whoever types. */
#pragma once

/* The side of the one who types; `path` gets the program's: "program <>PATH >&0 2>&0". Skips the test where there is
 * none. */
int terminal_open(int columns, char path[64]);

void terminal_type(int terminal, const char *text);

/* Reads until the text has come; fails the test where it does not within a minute. Returns all that was read, until
 * the next call. */
const char *terminal_expect(int terminal, const char *text);
