/* bundle_guide: values for scripts that read the JSON of a PyTorch profile. */
#pragma once

#include "report/bundle_schema.h"

BundleGuide bundle_guide(const Figures *figures);
void bundle_guide_free(const BundleGuide *guide);
