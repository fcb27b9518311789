/* attention_map: draws the class token's attention. */
#pragma once

#include "tasks/pictures/picture_passes.h"

/* Draws the class token's attention in the last layer, averaged over the heads, as a heat map over the
 * batch's first picture, enlarged and in gray. Colors go from black through red and yellow to white, which
 * stands for *largest, the largest share of a patch. A color scale is drawn at the right. */
CHECKED Status attention_map_write(const char *path, const PicturePasses *passes, double *largest);
