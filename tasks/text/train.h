/* train: text samples that ./train writes regularly, from a model that continues texts. */
#pragma once

#include "tasks/task.h"

extern const OptionTable text_train;
extern const Samples text_samples;

/* The options of ./train that they use: names for TaskRow.reads. */
#define TEXT_SAMPLES "sample-every sample-tokens sample-prompt"

/* For TaskRow.check. */
CHECKED Status text_check_train(const OptionSet *set);
