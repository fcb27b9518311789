/* profile: makes a profile of finished traces, and checks it; every report lists the failures at its end. */
#pragma once

#include "report/profile.h"

/* Folds and audits finished traces, which the caller closes after profile_free. Adds a finding for each
 * check. */
CHECKED Status profile_make(Trace *const *traces, int count, const Difference *differences,
                            int difference_count, Profile *profile);
void profile_free(Profile *profile);

/* Adds a finding to `trace` for each check of the trace and its figures: minimum <= average <= maximum; self
 * times sum to the total; phases sum to the step within 1%; at least 98% of the step is attributed; records =
 * launches; nothing dropped; everything finite; no operation above the machine's limit; tracing costs under
 * 10%; with several ranks, records from all, the same collectives, and no rank that leaves one before all
 * have entered it. */
void audit_profile(Trace *trace, const Figures *figures);
