/* pairs_internal: what the reader of pairs and their batch maker share. */
#pragma once

#include "data/pairs.h"

typedef struct {
    int32_t pad, begin, end;
} PairTokens;

PairTokens pairs_special(const PairSource *pairs);
int64_t pairs_seq(const PairSource *pairs); // the most tokens of a row
