/* What tables.c is made of: a table each, `names` as in trace.h. */
#pragma once

#include "profile/stats.h"
#include "profile/table.h"
#include "profile/trace.h"

Table table_operations(const Trace *trace, unsigned names);
Table table_operations_by_shape(const Trace *trace); // by PyTorch's names
Table table_kernels(const Trace *trace, unsigned names);
Table table_latency(const Trace *trace, unsigned names);
Table table_copies(const Trace *trace);
Table table_ranges(const Trace *trace);
Table table_categories(const Trace *trace);
Table table_sources(const Trace *trace);
Table table_device(const Trace *trace);
Table table_overview(const Trace *trace);
Table table_model(const Trace *trace);
Table table_distribution(const Trace *trace);
Table table_communication(const Trace *trace);
Table table_perf(const Trace *trace);
Status table_work(const Trace *trace, Table *table); // ERROR_FORMAT without a recorded step
Table table_memory(const Trace *trace);
Table table_timeline(const Trace *trace);
Table table_tensors(const Trace *trace);
