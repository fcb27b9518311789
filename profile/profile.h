/* profile: makes a profile of finished traces. */
#pragma once

#include "report/profile.h"

/* Folds and audits finished traces, which the caller closes after profile_free. Adds a finding for each
 * check. */
CHECKED Status profile_make(Trace *const *traces, int count, const Difference *differences,
                            int difference_count, Profile *profile);
void profile_free(Profile *profile);
