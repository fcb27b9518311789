/* watch: records a device's copies and fills for sources that do not see them. */
#pragma once

#include "kernels/record.h"

/* Between watch_begin and watch_end the device's fill, upload, download and copy are recorded in `recorder`.
 * A device has at most one watcher. */
void watch_begin(Device *device, Recorder *recorder);
void watch_end(Device *device);
