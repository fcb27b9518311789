/* category: which part of an operation fills what is taken for it. */
#pragma once

#include <stdbool.h>

/* Whether the primitive, or with NULL any, fills what is taken for its operation under this name ("y": its
 * result). */
bool primitive_fills(const char *operation, const char *primitive, const char *name);
