/* events: the --log file. One JSON object on each line, {"event":"step","step":1,...}, written whole and at
 * once, so that whoever reads along sees complete lines only. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Events Events;

/* Opens the file. `append` goes on with one that exists, as a resumed run does; the half of a line that a
 * killed run left at its end is cut off. Otherwise what was there is gone. */
CHECKED Status events_open(const char *path, bool append, Events **events);
void events_close(Events *events);

/* An event: begin, its fields in order, end, which writes it. All do nothing when `events` is NULL, so that
 * without --log no caller has to ask. Numbers that are not finite are written as null; bytes that are not
 * UTF-8 as U+FFFD. `json` is a value that is JSON already. ERROR_FILE when the line could not be written. */
void events_begin(Events *events, const char *event);
void events_integer(Events *events, const char *key, int64_t value);
void events_number(Events *events, const char *key, double value);
void events_boolean(Events *events, const char *key, bool value);
void events_text(Events *events, const char *key, const char *text);
void events_bytes(Events *events, const char *key, const void *bytes, int64_t count);
void events_json(Events *events, const char *key, const char *json);
CHECKED Status events_end(Events *events);
