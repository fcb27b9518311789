/* window: which steps of a run are traced, and which are only timed. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* What a step is to the profile. */
typedef enum {
    STEP_OUTSIDE,
    STEP_READY,  // traced, but what it shows is thrown away: tracing itself warms up
    STEP_RECORD, // traced
    STEP_TIMED,  // of the pass that follows a segment with tracing off: as many steps, if there is room
} StepUse;

/* Recorded steps [begin, end), and from `ready` on the steps before that warm tracing up. */
typedef struct {
    int64_t ready, begin, end;
} WindowSegment;

enum { WINDOW_SEGMENTS = 1000 }; // at most

typedef struct {
    WindowSegment segments[WINDOW_SEGMENTS]; // (count) in order
    int64_t count;
    bool untimed;    // no pass with tracing off follows a segment
    bool from_start; // steps count from the first of this process; else as the run counts them, from 1
} Window;

/* Parses "skip,closed,ready,record,repeat" (steps before everything; then, `repeat` times: steps that are
 * left alone, that warm tracing up, that are recorded) or "[a,b),[c,d)" (steps by number). ERROR_USAGE. */
CHECKED Status window_parse(const char *text, Window *window);

/* What `step` is, and to which segment it belongs (the last begun; -1 before the first). Steps from 1. */
StepUse window_use(const Window *window, int64_t step, int64_t *segment);

/* The last step that the window records, and the last that it times. */
int64_t window_last_recorded(const Window *window);
int64_t window_last(const Window *window);
