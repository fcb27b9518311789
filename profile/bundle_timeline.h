/* bundle_timeline: one recorded step of a trace, event by event, for people to look at. */
#pragma once

#include "base/json_writer.h"
#include "profile/trace.h"

/* An object, as docs/profile-schema.md has it. */
void bundle_timeline(const Trace *trace, JsonWriter *writer);
