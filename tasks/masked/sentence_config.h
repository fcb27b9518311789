/* sentence_config: the pooling settings of a sentence-transformers folder. */
#pragma once

#include "tasks/masked/infer.h"

typedef struct {
    int64_t most; // tokens per text; 0: not set
    bool has_pooling;
    Pooling pooling; // mean or first
    bool normalize;  // normalize embeddings to length 1
} SentenceConfig;

/* Reads sentence_bert_config.json, modules.json and the pooling's config.json, if they exist; all zero
 * otherwise. ERROR_FORMAT for an unsupported module or pooling. */
CHECKED Status sentence_config_read(const char *folder, SentenceConfig *config);
