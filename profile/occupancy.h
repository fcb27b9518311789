/* occupancy: how well a kernel fills a multiprocessor. */
#pragma once

#include "kernels/device/device.h"
#include "report/trace.h"

/* The share of the most warps that a multiprocessor can hold that it can hold of this kernel; 0 where the
 * limits are not known. Registers are given to warps in units of 256, of four equal files. */
double kernel_occupancy(const MultiprocessorLimits *limits, const KernelShape *shape);
