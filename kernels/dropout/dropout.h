/* dropout: elements put to zero at random. Srivastava et al. 2014, in the form that leaves inference alone.
 *
 *     y  = x * keep / (1 - rate)        keep is 0 with the probability `rate`, else 1
 *     dx = dy * keep / (1 - rate)
 *
 * What is kept is a pure function of (seed, draw, instance, row, column): Philox4x32-10 (base/random.h) under
 * the key `seed`, with the counter (column / 4, row, instance, draw), gives the words of four neighbouring
 * columns; an element is kept where its word is at least rate * 2^32. So every form, and the backward pass,
 * makes the mask anew instead of storing it, and a resumed run draws what it would have drawn. Other rooms
 * take a Dropout as a field of theirs: norm for its skip, attention for its probabilities. */
#pragma once

#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    double rate;       // in [0, 1); 0: nothing is dropped, and the rest is not looked at
    uint64_t seed;     // of the run
    uint32_t instance; // tells the draws of one pass apart
    Tensor draw;       // (1) i32, device memory: tells passes apart, so that captured work can go on
} Dropout;

/* All have one dtype. */
typedef struct {
    Tensor x;        // (..., C)
    Tensor y;        // (..., C); may be x
    Dropout dropout; // its rate is above 0
} DropoutForward;

typedef struct {
    const DropoutForward *forward;
    Tensor dy; // (..., C)
    Tensor dx; // (..., C); written; may be dy
} DropoutBackward;

CHECKED Status dropout_forward(Ctx *ctx, const DropoutForward *d);
CHECKED Status dropout_backward(Ctx *ctx, const DropoutBackward *d);

/* What a room demands of a Dropout in its contract. */
CHECKED Status dropout_check(const char *operation, const Dropout *dropout);

static inline bool dropout_on(const Dropout *dropout) {
    return dropout->rate > 0;
}

__END_DECLS
