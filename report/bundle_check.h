/* bundle_check: checks that the figures of a bundle agree with each other; bundle_read checks only its
 * form. */
#pragma once

#include "report/bundle_schema.h"

/* ERROR_FORMAT, with both figures, if a sum differs from that of its parts, if two copies of a figure differ,
 * or if an audit's verdict contradicts its figures. */
CHECKED Status bundle_check(const Bundle *bundle);
