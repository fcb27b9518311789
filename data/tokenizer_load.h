/* tokenizer_load: which files a tokenizer is read from. Fills what tokenizer_new makes. */
#pragma once

#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

/* The byte tokenizer, which needs no files. */
void tokenizer_load_bytes(Tokenizer *tokenizer);

/* Does `folder` hold a tokenizer's files? */
CHECKED Status tokenizer_load_present(const char *folder, bool *present);

/* Reads the first kind of file that `folder` holds, as tokenizer_open says. */
CHECKED Status tokenizer_load_folder(Tokenizer *tokenizer, const char *folder);

/* Reads a tokenizer.json, of a BPE or of a WordPiece. What is unused makes it a reader like the others. */
CHECKED Status tokenizer_load_json(Tokenizer *tokenizer, const char *path, const char *unused,
                                   const json_t *unused_config);
