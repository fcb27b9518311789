/* bundle_check: whether the figures of a bundle agree with each other. bundle_read checks its form alone. */
#pragma once

#include "report/bundle_schema.h"

/* ERROR_FORMAT, with both figures, where a sum is not that of its parts, where the same figure stands twice
 * and differs, or where an audit's verdict is not what its figures say. */
CHECKED Status bundle_check(const Bundle *bundle);
