/* manual: what the manual pages have behind the options, and what is said of names that are no options. */
#pragma once

#include "base/options.h"

extern const OptionNote train_manual[], infer_manual[];
extern const OptionNote train_absent[], infer_absent[];
