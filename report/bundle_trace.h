/* bundle_trace: the trace that the recorded events of a bundle tell, for what is rendered from single events. */
#pragma once

#include "report/bundle_schema.h"

/* Of rank 0, with the other ranks' beside it. It points into the bundle. */
typedef struct {
    Trace trace;
    Trace **others;
} BundleTrace;

/* The finished trace of a path. ERROR_FORMAT where the bundle holds no events, as those of older versions do not. */
CHECKED Status bundle_trace(const Bundle *bundle, int64_t path, BundleTrace *made);
void bundle_trace_free(BundleTrace *made);
