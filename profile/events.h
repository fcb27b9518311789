/* events: the --log file. One JSON object on each line, {"event":"step","step":1,...}, written whole and at
 * once, so that whoever reads along sees complete lines only. */
#pragma once

#include "base/json_writer.h"

typedef struct Events Events;

/* Opens the file; "" is no log, whose events are not written. `append` goes on with one that exists, as a
 * resumed run does; the half of a line that a killed run left at its end is cut off. Otherwise what was there
 * is gone. */
CHECKED Status events_open(const char *path, bool append, Events **events);
void events_close(Events *events); // NULL is fine

/* An event: begin gives its line, for its fields in order; end writes it. ERROR_FILE when the line could not
 * be written. */
JsonWriter *events_begin(Events *events, const char *event);
CHECKED Status events_end(Events *events);
