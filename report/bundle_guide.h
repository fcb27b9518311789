/* bundle_guide: what scripts that read a PyTorch profile ask of its JSON: operations by PyTorch's names,
 * kernels and sums, under the keys that guides use. Times are milliseconds, of all recorded steps. */
#pragma once

#include "report/bundle_schema.h"

BundleGuide bundle_guide(const Figures *figures);
void bundle_guide_free(const BundleGuide *guide);
