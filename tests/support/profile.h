/* profile: synthetic traces as a GPU would give them: three steps of a small model, naive or fused. */
#pragma once

#include "report/tables.h"

enum { SAMPLE_STEPS = 3, SAMPLE_STEP_NS = 1000000 };

/* A finished trace. A step is a reader's wait, forward, backward and optimizer; each kernel starts `latency`
 * ns after the previous one. The caller closes it. */
Trace *sample_trace(Form form, int64_t latency);

/* All tables of a trace without known figures. */
CHECKED Status tables_of_trace(const Trace *trace, unsigned names, Tables *tables);

/* The number of failed findings of a trace. */
int64_t audit_failures(const Trace *trace);

/* By key; NULL if there is no such table. */
const Table *tables_find(const Tables *tables, const char *key);
