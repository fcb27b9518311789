/* samples: answers that ./train writes regularly, from a model that learns conversations. */
#pragma once

#include "tasks/task.h"

extern const Samples chat_samples;
