/* tokenizer_load: selects the files that a tokenizer is read from. Fills the result of tokenizer_new. */
#pragma once

#include "base/status.h"
#include "data/tokenizer_state.h"

#include <jansson.h>

/* The byte tokenizer, which needs no files. */
void tokenizer_load_bytes(Tokenizer *tokenizer);

/* Whether `folder` has a tokenizer's files. */
CHECKED Status tokenizer_load_present(const char *folder, bool *present);

/* Reads the first kind of files that `folder` has; see tokenizer_open. */
CHECKED Status tokenizer_load_folder(Tokenizer *tokenizer, const char *folder);

/* Reads a tokenizer.json of a BPE or a WordPiece. The unused parameter gives it the signature of the other
 * readers. */
CHECKED Status tokenizer_load_json(Tokenizer *tokenizer, const char *path, const char *unused,
                                   const json_t *unused_config);
