/* attention_map: a picture of what the class token attends to. */
#pragma once

#include "tasks/pictures/picture_passes.h"

/* The batch's first picture as the model saw it, enlarged: the brighter and redder, the more the class token
 * attends to it in the last layer, averaged over the heads. */
CHECKED Status attention_map_write(const char *path, const PicturePasses *passes);
