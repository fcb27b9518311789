/* trace_ranks: the traces of a run's ranks together. */
#pragma once

#include "comm/comm.h"
#include "report/trace.h"

/* Collective, with each rank's finished trace: rank 0's gets those of the others, moved to its own clock.
 * ERROR_DEVICE where a rank is gone. */
CHECKED Status trace_gather(Trace *trace, Comm *comm);
