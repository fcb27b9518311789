/* masked: batches for a masked-token model: windows of seq - 2 tokens between a begin and an end token, some
 * replaced by the mask. Targets are the original tokens there, and -1 elsewhere (Devlin et al. 2019, section
 * 3.1). */
#pragma once

#include "tasks/text/windows.h"

/* The special tokens of masking. In each row of n tokens max(1, round(MASKED_SHARE n)) positions are drawn:
 * 80% become the mask, 10% a random token, 10% stay. The choice depends only on seed and position. */
typedef struct {
    int32_t begin, end, mask; // [CLS], [SEP], [MASK]
    int64_t vocab;
} MaskRule;

/* The source must outlive the loader. ERROR_FORMAT if it is too short for one window. */
CHECKED Status loader_open_masked(const LoaderOptions *options, const TokenSource *source,
                                  const MaskRule *rule, Loader **loader);
