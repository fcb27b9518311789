/* trace_ranks: gathers the traces of a run's ranks. */
#pragma once

#include "comm/comm.h"
#include "report/trace.h"

/* Collective, with each rank's finished trace: rank 0's trace receives those of the others, converted to its
 * clock. ERROR_DEVICE if a rank is gone. */
CHECKED Status trace_gather(Trace *trace, Comm *comm);
