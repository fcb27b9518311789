/* diff: compares two sides of bundles, operation by operation. */
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

/* "step>+3%": fails if the named figure grew by more than that. A figure is "step", "memory", "launches", a
 * call of an operation ("attention": all its passes) or a call and a pass ("attention backward"). "<-3%"
 * fails if the figure shrank by more than that. A limit without a sign or a percent sign is malformed. */
typedef struct {
    char figure[96];
    bool above; // '>'
    double share;
} DiffLimit;

/* ERROR_USAGE for a malformed limit. */
CHECKED Status diff_limit_parse(const char *text, DiffLimit *limit);

enum { DIFF_RUNS_MOST = 64 };

/* Bundles of the same program, each from a separate process. */
typedef struct {
    const Bundle *runs;
    int count; // 1 to DIFF_RUNS_MOST
} DiffSide;

/* Compares paths with the same label on both sides, or each bundle's only path. Each run contributes one
 * value, its median, because steps of one process are not independent. A figure is slower or faster if it
 * differs by more than 1%, and by more than the spread between runs explains (runs_ratio, stats.h): the
 * probability of a false alarm is at most 2% for the step, and 2% for all rows together. Times of runs that
 * shared their cores are left out; with fewer than two other runs on a side, times are not judged. Prints
 * first the differences of the two configurations, then a table, to `file`. `exceeded` is set to the number
 * of limits that were exceeded by a figure judged slower, faster, added or removed. ERROR_USAGE for bundles
 * without a common path, or a limit on a figure that neither side has. */
CHECKED Status diff_bundles(const DiffSide sides[2], const DiffLimit *limits, int limit_count, FILE *file,
                            int *exceeded);
