/* trace_pack: a trace as bytes, for another rank of the same run; everything that can be recomputed, and the
 * tensors, are omitted. */
#pragma once

#include "report/trace.h"

/* The caller frees `data` with memory_free. */
void trace_pack(Trace *trace, void **data, size_t *bytes);

/* Returns a finished trace. ERROR_FORMAT for invalid bytes, or bytes of a build with another layout. */
CHECKED Status trace_unpack(const void *data, size_t bytes, Trace **trace);
