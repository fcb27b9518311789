/* A profile made by hand, as a GPU would give it: three steps of a small model, naive or fused. */
#pragma once

#include "profile/trace.h"

enum { SAMPLE_STEPS = 3, SAMPLE_STEP_NS = 1000000 };

/* Finished. A step is a reader's wait, forward, backward and optimizer; each kernel starts `latency` ns
 * after the one before it. The caller closes it. */
Trace *sample_trace(Form form, int64_t latency);
