/* train: the texts that ./train writes from time to time, of a model that continues texts. */
#pragma once

#include "tasks/task.h"

extern const OptionTable text_train;
extern const Samples text_samples;

/* What ./train reads of them: names for TaskRow.reads. */
#define TEXT_SAMPLES "sample-every sample-tokens sample-prompt"

/* For TaskRow.check. */
CHECKED Status text_check_train(const OptionSet *set);
