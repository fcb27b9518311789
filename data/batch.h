/* batch: the input of one forward pass, in host memory. */
#pragma once

#include <stdint.h>

/* The share of a row's tokens that is masked in a masked-token batch (Devlin et al. 2019, section 3.1). */
#define MASKED_SHARE 0.15

/* Members that a task does not use are NULL or 0. */
typedef struct {
    const int32_t *inputs, *targets; // (batch, seq); targets of -1 are ignored
    const int32_t *segments;         // (batch, seq); NULL: all 0
    const int32_t *starts;           // (batch, seq) where each token's document begins in its row; NULL: 0
    const int32_t *lengths;          // (batch) lengths of rows without padding; NULL: full
    const uint8_t *pictures;         // (batch, height, width, channels) for classification, whose seq is 1
    const int32_t *source;           // (batch, source_seq) for pairs
    const int32_t *source_lengths;   // (batch) lengths of the source rows without padding; NULL: full
    int64_t rows; // number of rows if it varies: as many rows of `seq` as the batch's tokens allow; else 0
    int64_t seq, source_seq; // row lengths of this batch if they vary; 0: the longest that the reader accepts
    int64_t position;        // position of the first row
    int64_t tokens;          // targets that are not ignored
    int64_t step_tokens;     // tokens over all batches of the step; 0: as if all batches equalled this one
    int worker;              // the thread that prefetched it, from 1; 0: none
    double begun, done;      // when reading it began and ended; seconds, monotonic clock
} Batch;

/* For rows of varying length: the widths of batches of at most `seq` are multiples of this, and `seq`. */
static inline int64_t batch_width_step(int64_t seq) {
    enum { WIDTHS = 64, LEAST = 8 };
    return (seq + WIDTHS * LEAST - 1) / (WIDTHS * LEAST) * LEAST;
}
