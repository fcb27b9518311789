/* occupancy: how well a kernel fills a multiprocessor. */
#pragma once

#include "kernels/device/device.h"
#include "report/trace.h"

/* The number of this kernel's warps that fit a multiprocessor, as a share of the maximum; 0 if the limits are
 * unknown. Registers are allocated to warps in units of 256, in four equal register files. */
double kernel_occupancy(const MultiprocessorLimits *limits, const KernelShape *shape);
