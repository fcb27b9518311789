/* window: which steps of a run are traced, and which are only timed. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The profiler's use of a step. */
typedef enum {
    STEP_OUTSIDE,
    STEP_READY,  // traced, but discarded: tracing itself warms up
    STEP_RECORD, // traced
    STEP_TIMED,  // timed with tracing off, after a segment: as many steps, if they fit before the next
                 // segment
} StepUse;

/* Recorded steps [begin, end); the steps from `ready` on warm up tracing. */
typedef struct {
    int64_t ready, begin, end;
} WindowSegment;

enum { WINDOW_SEGMENTS = 1000 }; // limit of segments

typedef struct {
    WindowSegment segments[WINDOW_SEGMENTS]; // (count) in order
    int64_t count;
    bool untimed;    // no timed pass follows a segment
    bool from_start; // steps are numbered from this process's first; else by the run, from 1
} Window;

/* Parses "skip,closed,ready,record,repeat" (skip the first steps; then, `repeat` times: idle steps, warm-up
 * steps, recorded steps) or "[a,b),[c,d)" (steps by number). ERROR_USAGE. */
CHECKED Status window_parse(const char *text, Window *window);

/* The use of `step`, from 1, and its segment (the last one begun; -1 before the first). */
StepUse window_use(const Window *window, int64_t step, int64_t *segment);

/* The last step that the window records, and the last that it times. */
int64_t window_last_recorded(const Window *window);
int64_t window_last(const Window *window);
