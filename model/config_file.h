/* config_file: a Config as Hugging Face's config.json, and back, by the keys of its family's row
 * (model/architectures.h). A file that asks for what fusebox does not compute is turned away rather than
 * computed wrongly. Dropout rates are ignored. */
#pragma once

#include "model/config.h"

/* Reads a config from text, which need not end in a zero byte; errors call it `name`. ERROR_FORMAT says which
 * value is missing, malformed or not supported, and what is. The config is named after the preset that it
 * equals, else "custom". */
CHECKED Status config_parse(const char *text, int64_t length, const char *name, Config *config);

CHECKED Status config_read(const char *path, Config *config);

/* Writes the file atomically. end_of_text: the id that begins and ends texts, or -1. ERROR_USAGE if the file
 * would not be read as the same config. */
CHECKED Status config_write(const char *path, const Config *config, int64_t end_of_text);
