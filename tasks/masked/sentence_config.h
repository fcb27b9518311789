/* sentence_config: how a folder of sentence-transformers makes one vector of a text. */
#pragma once

#include "tasks/masked/infer.h"

typedef struct {
    int64_t most; // tokens of a text; 0: not said
    bool has_pooling;
    Pooling pooling; // mean or first
    bool normalize;  // to length 1
} SentenceConfig;

/* From sentence_bert_config.json, modules.json and the pooling's config.json, as far as they are there; all
 * zero for another folder. ERROR_FORMAT for a module or a pooling that is not done here. */
CHECKED Status sentence_config_read(const char *folder, SentenceConfig *config);
