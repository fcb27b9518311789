/* dropout: sets random elements to zero. Srivastava et al. 2014, with the scaling at training time.
 *
 *     y  = x * keep / (1 - rate)        keep is 0 with probability `rate`, else 1
 *     dx = dy * keep / (1 - rate)
 *
 * The mask is a pure function of (seed, draw, instance, row, column). Philox4x32-10 (base/random.h) with
 * the key `seed` and the counter (column / 4, row, instance, draw) gives random words for four
 * neighbouring columns; an element is kept if its word is at least rate * 2^32. Every form and the
 * backward pass regenerate the mask instead of storing it, and a resumed run draws the masks of an
 * uninterrupted one. norm (for its skip) and attention (for its probabilities) take a Dropout as a field. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    double rate;       // in [0, 1); with 0 the other fields are ignored
    uint64_t seed;     // seed of the run
    uint32_t instance; // distinguishes the draws within a pass
    Tensor draw;       // (1) i32, device memory: distinguishes passes, so that captured graphs draw new masks
} Dropout;

/* All have one dtype. */
typedef struct {
    Tensor x;        // (..., C)
    Tensor y;        // (..., C); may be x
    Dropout dropout; // with a rate above 0
} DropoutForward;

typedef struct {
    const DropoutForward *forward;
    Tensor dy; // (..., C)
    Tensor dx; // (..., C); written; may be dy
} DropoutBackward;

CHECKED Status dropout_forward(Ctx *ctx, const DropoutForward *d);
CHECKED Status dropout_backward(Ctx *ctx, const DropoutBackward *d);

/* Validates the Dropout of a contract. */
CHECKED Status dropout_check(const char *operation, const Dropout *dropout);

static inline bool dropout_on(const Dropout *dropout) {
    return dropout->rate > 0;
}

__END_DECLS
