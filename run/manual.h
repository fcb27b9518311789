/* manual: sections of the manual pages after the options, and suggestions for unknown names. */
#pragma once

#include "base/options.h"

extern const OptionNote train_manual[], infer_manual[];
extern const OptionNote train_absent[], infer_absent[];
