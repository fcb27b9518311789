/* line_editor: line editing at a terminal, with a history until the program ends. In a build without libedit
 * (EDIT=0) these functions are NULL. */
#pragma once

#include <stdint.h>

typedef struct LineEditor LineEditor;

/* Prompts go to standard error. NULL if the terminal cannot move its cursor. */
__attribute__((weak)) LineEditor *line_editor_open(void);
__attribute__((weak)) void line_editor_close(LineEditor *editor);

/* Shows the prompt and returns the next line without its end, valid until the next call; NULL at the end of
 * the input, or after a signal. */
__attribute__((weak)) const char *line_editor_read(LineEditor *editor, const char *prompt, int64_t *length);
