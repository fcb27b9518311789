/* kept: what the config.json and generation_config.json of a model's folder say that fusebox does not use, such
 * as "pad_token_id" and "temperature". A model that is saved says it still. */
#pragma once

#include "base/json_writer.h"
#include "base/status.h"

#include <jansson.h>

typedef struct {
    json_t *config;     // the whole of config.json; NULL: there is no folder
    json_t *generation; // the whole of generation_config.json; NULL: there is none
} Kept;

/* ERROR_FORMAT for a file that is not JSON. */
CHECKED Status kept_read(const char *folder, Kept *kept);
void kept_free(Kept *kept);

/* Writes a value as it was read, on one line. */
void kept_write(JsonWriter *writer, const json_t *value);
