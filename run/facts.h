/* facts: properties that all ranks of a run must share, as lines of KEY=VALUE: version, options, data. */
#pragma once

#include "comm/rendezvous.h"

__BEGIN_DECLS

enum { FACTS_BYTES = 4096 };

/* Collective: ERROR_USAGE on all ranks if a rank lacks one of rank 0's facts, has another value or an
 * additional fact. The message names rank, key and values. */
CHECKED Status facts_compare(Rendezvous *rendezvous, const char *facts);

__END_DECLS
