/* config_file: a Config as Hugging Face's config.json, and back. What fusebox computes is GPT-2 and BERT
 * as released, and the encoder-decoder of Vaswani et al. 2017, for which transformers has no class: its
 * file is fusebox's own. A file that asks for anything else is turned away rather than computed wrongly.
 * Dropout rates are ignored. */
#ifndef MODEL_CONFIG_FILE_H
#define MODEL_CONFIG_FILE_H

#include "model/config.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONFIG_PAIRS_TYPE "fusebox-transformer"

/* Reads a config from text, which need not end in a zero byte; errors call it `name`. ERROR_FORMAT says which
 * value is missing, malformed or not supported, and what is. The config is named after the preset that it
 * equals, else "custom". */
CHECKED Status config_parse(const char *text, int64_t length, const char *name, Config *config);

CHECKED Status config_read(const char *path, Config *config);

/* Writes the file atomically. end_of_text: the id that begins and ends texts, or -1. ERROR_USAGE if the
 * config has no such form. */
CHECKED Status config_write(const char *path, const Config *config, int64_t end_of_text);

#ifdef __cplusplus
}
#endif
#endif
