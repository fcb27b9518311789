/* audit: a profile checks itself. What does not hold is said at the foot of every report. */
#pragma once

#include "report/figures.h"

/* Adds a finding to `trace` for each check of it and of its figures: minimum <= average <= maximum; self
 * times sum to the total; phases sum to the step within 1%; at least 98% of the step is attributed;
 * records = launches; none dropped; everything finite; no operation above the machine's limit; tracing
 * costs under 10%; of several ranks, records of all, the same collectives, and no rank that leaves one before
 * all are in it. */
void audit_profile(Trace *trace, const Figures *figures);
