#include "run/print_text.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>
#include <unistd.h>

Status print_text(void *unused, const void *bytes, int64_t count) {
    (void)unused;
    OWNED char *text = memory_text_slice(bytes, (size_t)count);
    if (isatty(STDOUT_FILENO)) utf8_tame(text, count, true);
    bool written = fwrite(text, 1, (size_t)count, stdout) == (size_t)count && fflush(stdout) == 0;
    return written ? OK : fail(ERROR_FILE, "cannot write the text to standard output");
}

void print_name(const char *name, FILE *file) {
    OWNED char *text = memory_text(name);
    utf8_tame(text, (int64_t)strlen(text), false);
    (void)fputs(text, file);
}
