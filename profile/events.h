/* events: the --log file: one JSON object per line, {"event":"step","step":1,...}, each written by a single
 * call, so that readers only see complete lines. */
#pragma once

#include "base/json_writer.h"

typedef struct Events Events;

/* Opens the file; "" means no log: events are discarded. `append` continues an existing file, as a resumed
 * run does, after cutting an incomplete last line. Otherwise existing content is overwritten. */
CHECKED Status events_open(const char *path, bool append, Events **events);
void events_close(Events *events); // accepts NULL

/* An event: begin returns its writer, for its fields in order; end writes the line. ERROR_FILE if it could
 * not be written. */
JsonWriter *events_begin(Events *events, const char *event);
CHECKED Status events_end(Events *events);
