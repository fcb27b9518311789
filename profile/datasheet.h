/* datasheet: what makers' data sheets promise of their machines. */
#ifndef PROFILE_DATASHEET_H
#define PROFILE_DATASHEET_H

#include "profile/peaks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dense rates of products and of memory, by the device's name; all 0 where the sheet is not known. */
Peaks datasheet_peaks(const char *device, Dtype dtype, bool tf32);

#ifdef __cplusplus
}
#endif
#endif
