/* diff: two sides of bundles compared, operation by operation. */
#pragma once

#include "report/bundle_schema.h"

typedef enum {
    DIFF_ADDED,
    DIFF_REMOVED,
    DIFF_SLOWER,
    DIFF_FASTER,
    DIFF_SAME,
    DIFF_UNKNOWN,
    DIFF_KIND_COUNT
} DiffKind;

/* "step>+3%": fails when the named figure grew by more than that. A figure is "step", "memory",
 * "launches", a call of an operation ("attention": all its passes) or a call and a pass ("attention
 * backward"). "<-3%" fails when it shrank. Without a sign or a percent sign it is a malformed limit. */
typedef struct {
    char figure[96];
    bool above; // '>'
    double share;
} DiffLimit;

/* ERROR_USAGE for what does not read so. */
CHECKED Status diff_limit_parse(const char *text, DiffLimit *limit);

enum { DIFF_RUNS_MOST = 64 };

/* Bundles of the same program, each from a process of its own. */
typedef struct {
    const Bundle *runs;
    int count; // 1 to DIFF_RUNS_MOST
} DiffSide;

/* Compares two sides' paths of the same label, or each bundle's only path. Each run gives one value, its median:
 * steps of one process are not independent. Slower or faster is what differs by more than 1%, and by more than the
 * spread between the runs explains (runs_ratio, stats.h): once in a hundred times for the step, and once for all
 * rows together. Times of runs in which others had the cores are left out; with fewer than two others on a side
 * no time is judged. Prints a table to `file`, and first in what the two configurations differ. `exceeded` tells
 * how many of the limits were passed by what was judged slower, faster, added or removed. ERROR_USAGE for bundles
 * without a path in common, or a limit on a figure that neither side has. */
CHECKED Status diff_bundles(const DiffSide sides[2], const DiffLimit *limits, int limit_count, FILE *file,
                            int *exceeded);
