/* bundle_guide: makes what scripts that read a PyTorch profile ask of its JSON. */
#pragma once

#include "report/bundle_schema.h"

BundleGuide bundle_guide(const Figures *figures);
void bundle_guide_free(const BundleGuide *guide);
