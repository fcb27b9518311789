/* diff: two bundles compared, operation by operation. */
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

/* Compares the paths of the same label, or each bundle's only path. Slower or faster is what differs by more
 * than 1% and by more than chance lets medians differ (medians_differ, stats.h): all else is the same within
 * noise. Prints a table to `file`, and first in what the two configurations differ. `exceeded` tells how many
 * of the limits were passed by what is not the same, each of which is printed. ERROR_USAGE for bundles
 * without a path in common, or a limit on a figure that neither has. */
CHECKED Status diff_bundles(const Bundle *before, const Bundle *after, const DiffLimit *limits,
                            int limit_count, FILE *file, int *exceeded);
