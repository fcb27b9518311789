/* A profile made by hand, as a GPU would give it: three steps of a small model, naive or fused. */
#pragma once

#include "report/tables.h"

enum { SAMPLE_STEPS = 3, SAMPLE_STEP_NS = 1000000 };

/* Finished. A step is a reader's wait, forward, backward and optimizer; each kernel starts `latency` ns
 * after the one before it. The caller closes it. */
Trace *sample_trace(Form form, int64_t latency);

/* All tables of a trace, of which no figures are known otherwise. */
CHECKED Status tables_of_trace(const Trace *trace, unsigned names, Tables *tables);

/* How many of a trace's findings did not pass. */
int64_t audit_failures(const Trace *trace);

/* By key; NULL where there is no such table. */
const Table *tables_find(const Tables *tables, const char *key);
