/* timeline: one recorded step of a trace, event by event, for display. */
#pragma once

#include "base/json_writer.h"
#include "report/trace.h"

/* Writes the object "timeline" of a bundle. */
void timeline_write(const Trace *trace, JsonWriter *writer);
