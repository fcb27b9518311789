/* attention_map: draws what the class token attends to. */
#pragma once

#include "tasks/pictures/picture_passes.h"

/* Draws the batch's first picture as the model saw it, enlarged and in gray, under the class token's attention in the
 * last layer, averaged over the heads. Colors go from black over red and yellow to white, which is *largest, the largest
 * share that a patch gets. A scale of the colors stands to the right. */
CHECKED Status attention_map_write(const char *path, const PicturePasses *passes, double *largest);
