/* picture: the naive and the fused path of one step side by side, operation by operation, as an SVG file made
 * of the compare.json that `./train --compare --out=FOLDER` writes. */
#pragma once

#include "base/status.h"

/* Reads `comparison` and writes the picture to `path`. ERROR_FORMAT for what is not a comparison or has no
 * times. */
CHECKED Status picture_write(const char *comparison, const char *path);
