/* batch: what a model reads at once, in host memory. */
#pragma once

#include <stdint.h>

/* The share of a row's tokens that a masked-token batch hides (Devlin et al. 2019, section 3.1). */
#define MASKED_SHARE 0.15

/* What a task has no use for is NULL or 0. */
typedef struct {
    const int32_t *inputs, *targets; // (batch, seq); a target of -1 does not count
    const int32_t *segments;         // (batch, seq); NULL: all 0
    const int32_t *starts;           // (batch, seq) where each token's document begins in its row; NULL: 0
    const int32_t *lengths;          // (batch) inputs in each row that are no padding; NULL: all
    const uint8_t *pictures;         // (batch, height, width, channels) of a class task, whose seq is 1
    const int32_t *source;           // (batch, source_seq) of pairs
    const int32_t *source_lengths;   // (batch) the same of the source; NULL: all
    int64_t rows; // where there are others than a batch has: as many of `seq` as its tokens hold; else 0
    int64_t seq, source_seq; // of this batch: pairs vary; 0: the longest that the reader takes
    int64_t position;        // of its first row
    int64_t tokens;          // targets that count
    int64_t step_tokens;     // the same of the whole step's batches; 0: as if all were like this one
    int worker;              // the thread that read it ahead, from 1; 0: none
    double begun, done;      // when that began and ended; seconds, monotonic clock
} Batch;

/* Where rows vary: the widths that batches of at most `seq` have are its multiples, and `seq`. */
static inline int64_t batch_width_step(int64_t seq) {
    enum { WIDTHS = 64, LEAST = 8 };
    return (seq + WIDTHS * LEAST - 1) / (WIDTHS * LEAST) * LEAST;
}
