/* torch: what PyTorch's profiler calls the host's events of the naive path, and the device's. */
#pragma once

#include "report/trace.h"

enum { TORCH_NAME_BYTES = 2 * LABEL_BYTES };

/* Whether PyTorch has a row for the event, and under which name: the operator that a primitive is or is a part
 * of ("aten::addmm"), a range's own, "fusebox::linear forward" of what has no operator there. It has none for a
 * layer or an operation that is made of calls: their time is that of what encloses them. */
bool torch_row(const TraceEvent *event, char name[TORCH_NAME_BYTES]);

/* The name of a device event's row there: a kernel's, "Memcpy HtoD (Pinned -> Device)", "Memset (Device)". With
 * `full` a kernel's has its parameters and namespaces. */
void torch_device_row(const TraceEvent *event, bool full, char name[TORCH_NAME_BYTES]);
