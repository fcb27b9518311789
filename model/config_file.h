/* config_file: reads and writes a Config as Hugging Face's config.json, by the keys of its family's row
 * (model/architectures.h). A file with an unsupported setting is refused. Dropout rates are ignored. */
#pragma once

#include "model/config.h"

/* Reads a config from text, which need not be zero-terminated; errors call it `name`. ERROR_FORMAT names
 * the value that is missing, malformed or not supported. The config is named after the preset that it
 * equals, else "custom". */
CHECKED Status config_parse(const char *text, int64_t length, const char *name, Config *config);

CHECKED Status config_read(const char *path, Config *config);

/* ---- config_write.c ---- */

/* Writes the file atomically. end_of_text: the id that begins and ends texts, or -1. ERROR_USAGE if the
 * file cannot express the config. */
CHECKED Status config_write(const char *path, const Config *config, int64_t end_of_text);
