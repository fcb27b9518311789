/* timeline: one recorded step of a trace, event by event, for people to look at. */
#pragma once

#include "base/json_writer.h"
#include "report/trace.h"

/* An object of the bundle. */
void timeline_write(const Trace *trace, JsonWriter *writer);
