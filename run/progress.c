#include "run/progress.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "kernels/device/device.h"
#include "base/stats.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LATEST = 32, NARROWEST = 40, WIDEST_BAR = 40 };

struct Progress {
    FILE *lines, *bar;
    bool terminal, quiet;
    bool drawn; // the bar is in the last line, without a newline
    int64_t done, total;
    double seconds[LATEST]; // times of the latest steps, a ring buffer
    int64_t timed;          // number of timed steps
    double next_drawing;    // earliest time of the next drawing
};

Progress *progress_open(FILE *lines, FILE *bar, int64_t done, int64_t total, bool quiet) {
    Progress *p = memory_allocate(sizeof *p);
    p->lines = lines;
    p->bar = bar;
    p->quiet = quiet;
    p->terminal = !quiet && isatty(fileno(bar));
    p->done = done;
    p->total = total;
    return p;
}

/* ---- time ---- */

double progress_left(const Progress *p) {
    double sorted[LATEST];
    int64_t count = p->timed < LATEST ? p->timed : LATEST;
    if (count == 0) return -1;
    memcpy(sorted, p->seconds, (size_t)count * sizeof *sorted);
    return median(sorted, count) * (double)(p->total - p->done);
}

/* "0:07", "12:34", "1:23:45", "3 days" */
static void duration_text(double seconds, char *text, size_t room) {
    int64_t s = seconds < 1e9 ? (int64_t)(seconds + 0.5) : 1000000000;
    if (s >= 2 * 86400)
        snprintf(text, room, "%" PRId64 " days", s / 86400);
    else if (s >= 3600)
        snprintf(text, room, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(text, room, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

/* ---- the bar ---- */

static int terminal_columns(FILE *stream) {
    struct winsize size = {0};
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

/* " 37% [=======> ] 74/200 1:23 left", never wider than the terminal, because a wrapped line cannot be
 * cleared. If space is short, the bar is omitted first. */
static void draw(Progress *p) {
    char left[32] = "", numbers[128];
    double seconds = progress_left(p), share = p->total > 0 ? (double)p->done / (double)p->total : 1;
    if (share > 1) share = 1;
    if (seconds >= 0) {
        duration_text(seconds, left, sizeof left - 8);
        strcat(left, " left");
    }
    snprintf(numbers, sizeof numbers, "%" PRId64 "/%" PRId64 "  %s", p->done, p->total, left);
    int room = terminal_columns(p->bar) - 1, bar = room - (int)strlen(numbers) - 8;
    if (bar > WIDEST_BAR) bar = WIDEST_BAR;
    fprintf(p->bar, "\r\033[K");
    if (room < NARROWEST || bar < 4) {
        fprintf(p->bar, "%.*s", room > 0 ? room : 0, numbers);
    } else {
        char cells[WIDEST_BAR + 1];
        int full = (int)(share * bar);
        memset(cells, ' ', sizeof cells);
        memset(cells, '=', (size_t)full);
        if (full < bar) cells[full] = '>';
        fprintf(p->bar, "%3d%% [%.*s] %s", (int)(100 * share), bar, cells, numbers);
    }
    fflush(p->bar);
    p->drawn = true;
}

void progress_hide(Progress *p) {
    if (!p->drawn) return;
    fprintf(p->bar, "\r\033[K");
    fflush(p->bar);
    p->drawn = false;
}

void progress_step(Progress *p, int64_t done, double seconds) {
    p->done = done;
    p->seconds[p->timed++ % LATEST] = seconds;
    if (!p->terminal) return;
    double time = device_clock();
    if (time < p->next_drawing && done < p->total) return;
    p->next_drawing = time + 0.1;
    draw(p);
}

void progress_line(Progress *p, const char *format, ...) {
    if (p->quiet) return;
    bool redraw = p->drawn;
    progress_hide(p);
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *line = length < 0 ? NULL : memory_allocate((size_t)length + 1);
    if (line) {
        vsnprintf(line, (size_t)length + 1, format, again);
        if (isatty(fileno(p->lines))) utf8_tame(line, length, true); // samples and folder names are untrusted
        fprintf(p->lines, "%s%s", line, length && line[length - 1] == '\n' ? "" : "\n");
        fflush(p->lines);
    }
    memory_free(line);
    va_end(again);
    va_end(arguments);
    if (redraw) draw(p);
}

void progress_close(Progress *p) {
    if (!p) return;
    progress_hide(p);
    memory_free(p);
}
