/* watch: records a device's copies and fills, for sources that do not see them by themselves. */
#pragma once

#include "kernels/record.h"

/* From watch_begin to watch_end the device's fill, upload, download and copy are records of `recorder`. A
 * device has at most one watcher. */
void watch_begin(Device *device, Recorder *recorder);
void watch_end(Device *device);
