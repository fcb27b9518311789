/* kept: keys of config.json and generation_config.json that fusebox does not use, such as "pad_token_id" and
 * "temperature". They are preserved when the model is saved. */
#pragma once

#include "base/json_writer.h"
#include "base/status.h"

#include <jansson.h>

typedef struct {
    json_t *config;     // all of config.json; NULL: no folder
    json_t *generation; // all of generation_config.json; NULL: no such file
} Kept;

/* ERROR_FORMAT for a file that is not JSON. */
CHECKED Status kept_read(const char *folder, Kept *kept);
void kept_free(Kept *kept);

/* Writes a value as it was read, on one line. */
void kept_write(JsonWriter *writer, const json_t *value);
