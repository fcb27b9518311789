/* attention_map: draws what the class token attends to. */
#pragma once

#include "tasks/pictures/picture_passes.h"

/* Draws the batch's first picture as the model saw it, enlarged. Brighter and redder patches get more
 * attention from the class token in the last layer, averaged over the heads. */
CHECKED Status attention_map_write(const char *path, const PicturePasses *passes);
