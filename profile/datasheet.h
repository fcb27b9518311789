/* datasheet: what makers' data sheets promise of their machines. */
#pragma once

#include "profile/peaks.h"

/* Dense rates of products and of memory, by the device's name; all 0 where the sheet is not known. */
Peaks datasheet_peaks(const char *device, Dtype dtype, bool tf32);
