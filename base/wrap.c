#include "base/wrap.h"

#include "base/memory.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

void print_wrapped(const char *heading, int indent, const char *text, int width, int lines, FILE *file) {
    const size_t room = (size_t)(width - indent);
    for (; *text && lines > 0; lines--, heading = "") {
        size_t length = strlen(text);
        if (length > room)
            for (length = room; length > 0 && text[length] != ' ';) length--;
        if (length == 0) length = room;
        fprintf(file, "%-*s%.*s\n", indent, heading, (int)length, text);
        text += length + (text[length] == ' ');
    }
}

int report_width(FILE *file) {
    enum { LEAST = 60 };
    struct winsize size;
    if (ioctl(fileno(file), TIOCGWINSZ, &size) != 0 || !size.ws_col) return REPORT_WIDTH;
    return size.ws_col < LEAST ? LEAST : size.ws_col < REPORT_WIDTH ? size.ws_col : REPORT_WIDTH;
}

bool report_is_narrow(FILE *file) {
    return report_width(file) < REPORT_WIDTH;
}

void print_report(const char *heading, int indent, FILE *file, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    OWNED char *text = memory_array((size_t)length + 1, sizeof *text);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(arguments);
    print_wrapped(heading, indent, text, report_width(file), INT_MAX, file);
}
