/* picture: the naive and the fused path of a step side by side, operation by operation, as an SVG file made
 * from the compare.json of `./train --compare --out=FOLDER`. */
#pragma once

#include "base/status.h"

/* Reads `comparison` and writes the picture to `path`. ERROR_FORMAT if it is not a comparison or has no
 * times. */
CHECKED Status picture_write(const char *comparison, const char *path);
