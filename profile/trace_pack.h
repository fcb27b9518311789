/* trace_pack: a trace as bytes, for another rank of the same run: what can be computed anew, and the tensors,
 * are left out. */
#pragma once

#include "report/trace.h"

/* To be freed with memory_free. */
void trace_pack(Trace *trace, void **data, size_t *bytes);

/* A finished trace. ERROR_FORMAT for what is not such bytes, or of a build that keeps traces otherwise. */
CHECKED Status trace_unpack(const void *data, size_t bytes, Trace **trace);
