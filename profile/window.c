#include "profile/window.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MOST = 1000000000 };

static Status malformed(const char *text, const char *why) {
    return fail(ERROR_USAGE,
                "--profile=%.100s: %s; expected skip,closed,ready,record,repeat such as 3,0,2,10,1, or steps "
                "such as [10,20),[50,60)",
                text, why);
}

/* Reads an integer and advances `at` past it. */
static bool read_number(const char **at, int64_t *value) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    errno = 0;
    long long number = strtoll(*at, &end, 10);
    if (errno || number > NUMBER_MOST) return false;
    *at = end;
    *value = number;
    return true;
}

static Status parse_cycles(const char *text, Window *w) {
    enum { SKIP, CLOSED, READY, RECORD, REPEAT, FIELDS };
    int64_t n[FIELDS];
    const char *at = text;
    for (int i = 0; i < FIELDS; i++) {
        if (i && *at++ != ',') return malformed(text, "five numbers are needed");
        if (!read_number(&at, &n[i])) return malformed(text, "a number is wrong");
    }
    if (*at) return malformed(text, "five numbers are needed");
    if (n[RECORD] < 1) return malformed(text, "at least one step must be recorded");
    if (n[REPEAT] < 1 || n[REPEAT] > WINDOW_SEGMENTS) return malformed(text, "repeat goes from 1 to 1000");
    w->from_start = true;
    int64_t step = 1 + n[SKIP];
    for (int64_t i = 0; i < n[REPEAT]; i++) {
        int64_t ready = step + n[CLOSED], begin = ready + n[READY];
        step = begin + n[RECORD];
        w->segments[w->count++] = (WindowSegment){ready, begin, step};
    }
    return OK;
}

static Status parse_ranges(const char *text, Window *w) {
    int64_t count = 0, after = 1; // the first step after the previous segment
    for (const char *at = text; *at; at++) count += *at == '[';
    if (count > WINDOW_SEGMENTS) return malformed(text, "there are too many segments");
    for (const char *at = text;;) {
        int64_t begin, end;
        if (*at++ != '[' || !read_number(&at, &begin) || *at++ != ',' || !read_number(&at, &end) ||
            *at++ != ')')
            return malformed(text, "a segment is not of the form [a,b)");
        if (begin < after || end <= begin)
            return malformed(
                text,
                "steps count from 1, and each segment has at least one step and follows the one before");
        w->segments[w->count++] = (WindowSegment){begin > after ? begin - 1 : begin, begin, end};
        after = end;
        if (!*at) return OK;
        if (*at++ != ',') return malformed(text, "segments are separated by commas");
    }
}

Status window_parse(const char *text, Window *window) {
    *window = (Window){0};
    Status status = *text == '[' ? parse_ranges(text, window) : parse_cycles(text, window);
    if (status) window->count = 0;
    return status;
}

/* The end of the timed pass after a segment. */
static int64_t timed_end(const Window *w, int64_t i) {
    const WindowSegment *s = &w->segments[i];
    int64_t end = w->untimed ? s->end : s->end + (s->end - s->begin);
    return i + 1 < w->count && w->segments[i + 1].ready < end ? w->segments[i + 1].ready : end;
}

StepUse window_use(const Window *w, int64_t step, int64_t *segment) {
    int64_t i = w->count - 1;
    while (i >= 0 && step < w->segments[i].ready) i--;
    *segment = i;
    if (i < 0) return STEP_OUTSIDE;
    const WindowSegment *s = &w->segments[i];
    return step < s->begin          ? STEP_READY
           : step < s->end          ? STEP_RECORD
           : step < timed_end(w, i) ? STEP_TIMED
                                    : STEP_OUTSIDE;
}

int64_t window_last_recorded(const Window *w) {
    return w->count ? w->segments[w->count - 1].end - 1 : 0;
}

int64_t window_last(const Window *w) {
    return w->count ? timed_end(w, w->count - 1) - 1 : 0;
}
