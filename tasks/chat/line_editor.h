/* line_editor: lines as a user types them at a terminal: they can be edited, and earlier ones come back with the
 * arrow keys until the program ends. In a build without libedit (EDIT=0) these functions are NULL. */
#pragma once

#include <stdint.h>

typedef struct LineEditor LineEditor;

/* Prompts go to standard error. NULL where the terminal cannot move its cursor. */
__attribute__((weak)) LineEditor *line_editor_open(void);
__attribute__((weak)) void line_editor_close(LineEditor *editor);

/* The next line without its end, until the next call; NULL at the end of the input, or where a signal came. The
 * prompt is shown before it. */
__attribute__((weak)) const char *line_editor_read(LineEditor *editor, const char *prompt, int64_t *length);
