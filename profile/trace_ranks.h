/* trace_ranks: gathers the traces of a run's ranks. */
#pragma once

#include "comm/comm.h"
#include "report/trace.h"

/* Collective, with each rank's finished trace: rank 0's trace receives those of the others, converted to its
 * clock. ERROR_DEVICE if a rank is gone. */
CHECKED Status trace_gather(Trace *trace, Comm *comm);

/* A trace as bytes, for another rank of the same run; everything that can be recomputed, and the tensors, are
 * omitted. The caller frees `data` with memory_free. */
void trace_pack(Trace *trace, void **data, size_t *bytes);

/* Returns a finished trace. ERROR_FORMAT for invalid bytes, or bytes of a build with another layout. */
CHECKED Status trace_unpack(const void *data, size_t bytes, Trace **trace);
