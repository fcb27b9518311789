#include "tasks/chat/line_editor.h"

#include "base/memory.h"
#include "run/signals.h"

#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { LINES_KEPT = 1000, LOOKS_MS = 100 };

struct LineEditor {
    EditLine *edit;
    History *history;
    const char *prompt;
};

static const char *prompt_of(EditLine *edit) {
    const LineEditor *editor;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor->prompt;
}

/* Replaces libedit's own function, which misses a signal that arrives just before it reads. Invalid UTF-8 is
 * skipped. */
static int read_character(EditLine *edit, wchar_t *character) {
    struct pollfd typed = {.fd = STDIN_FILENO, .events = POLLIN};
    mbstate_t state = {0};
    char byte;
    (void)edit;
    while (!signals_caught()) {
        if (poll(&typed, 1, LOOKS_MS) <= 0) continue;
        if (read(typed.fd, &byte, 1) != 1) return 0;
        size_t used = mbrtowc(character, &byte, 1, &state);
        if (used == (size_t)-1) used = mbrtowc(character, &byte, 1, memset(&state, 0, sizeof state));
        if (used <= 1) return 1;
        if (used == (size_t)-1) state = (mbstate_t){0};
    }
    return -1;
}

LineEditor *line_editor_open(void) {
    const char *terminal = getenv("TERM");
    if (!terminal || strcmp(terminal, "dumb") == 0) return NULL;
    setlocale(LC_CTYPE, "C.UTF-8"); // only for libedit: texts are UTF-8, whatever the user's locale is
    LineEditor *editor = memory_allocate(sizeof *editor);
    HistEvent event;
    editor->history = history_init();
    editor->edit = el_init("fusebox", stdin, stderr, stderr);
    history(editor->history, &event, H_SETSIZE, LINES_KEPT);
    history(editor->history, &event, H_SETUNIQUE, 1);
    el_set(editor->edit, EL_CLIENTDATA, editor);
    el_set(editor->edit, EL_PROMPT, prompt_of);
    el_set(editor->edit, EL_GETCFN, read_character);
    el_set(editor->edit, EL_EDITOR, "emacs");
    el_set(editor->edit, EL_HIST, history, editor->history);
    el_set(editor->edit, EL_SIGNAL,
           1);                     // restore the terminal's modes when a signal ends or stops the program
    el_source(editor->edit, NULL); // the user's own key bindings
    return editor;
}

void line_editor_close(LineEditor *editor) {
    el_end(editor->edit);
    history_end(editor->history);
    memory_free(editor);
}

const char *line_editor_read(LineEditor *editor, const char *prompt, int64_t *length) {
    HistEvent event;
    int count;
    editor->prompt = prompt;
    el_set(editor->edit, EL_PREP_TERM, 1); // before the prompt, which shows that keys are handled
    const char *line = el_gets(editor->edit, &count);
    if (!line || count <= 0) return NULL;
    if (count > 1) history(editor->history, &event, H_ENTER, line);
    *length = count - (line[count - 1] == '\n');
    return line;
}
