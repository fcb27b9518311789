/* bundle_guide: what scripts that read a PyTorch profile ask of its JSON: operations by PyTorch's names,
 * kernels and sums, under the keys that guides use. Times are milliseconds, of all recorded steps. */
#pragma once

#include "profile/trace.h"

/* JSON texts, each to be freed with memory_free. */
typedef struct {
    char *config, *summary, *top_operators, *top_aten_operators, *top_cuda_kernels, *category_statistics;
} BundleGuide;

BundleGuide bundle_guide(const Trace *trace);
void bundle_guide_free(const BundleGuide *guide);
