/* brief: a profile summary that fits a screen. */
#pragma once

#include "profile/profile.h"

/* At most 25 lines for one path or two: what ran, the step, its phases, the five operations that take
 * longest, the bottleneck, the audit. No line is wider than `width` columns, at least 60. */
void brief_print(const Profile *profile, int width, FILE *file);
