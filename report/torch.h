/* torch: PyTorch profiler's names for host and device events of the naive path. */
#pragma once

#include "report/trace.h"

enum { TORCH_NAME_BYTES = 2 * LABEL_BYTES };

/* Whether PyTorch has a row for the event, and its name: the operator that a primitive is, or belongs to
 * ("aten::addmm"), a range's own name, or "fusebox::linear forward" for operations without a PyTorch
 * operator. Layers, and operations made of calls, have no row: their time counts to their parent. */
bool torch_row(const TraceEvent *event, char name[TORCH_NAME_BYTES]);

/* The name of a device event's row in PyTorch: a kernel's name, "Memcpy HtoD (Pinned -> Device)", "Memset
 * (Device)". With `full` a kernel's name includes parameters and namespaces. */
void torch_device_row(const TraceEvent *event, bool full, char name[TORCH_NAME_BYTES]);
