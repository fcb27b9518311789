/* bundle_trace: restores a trace from the events of a bundle, for output that needs single events. */
#pragma once

#include "report/bundle_schema.h"

/* The trace of rank 0, with those of other ranks attached. It points into the bundle. */
typedef struct {
    Trace trace;
    Trace **others;
} BundleTrace;

/* The finished trace of a path. ERROR_FORMAT if the bundle has no events, as in older versions. */
CHECKED Status bundle_trace(const Bundle *bundle, int64_t path, BundleTrace *made);
void bundle_trace_free(BundleTrace *made);
