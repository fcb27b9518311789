/* torch: what PyTorch calls the host's events of the naive path, and which shapes it prints beside them. */
#pragma once

#include "profile/operands.h"
#include "profile/trace.h"

enum { TORCH_DEPTH = 4, TORCH_NAME_BYTES = LABEL_BYTES };

typedef struct {
    char name[TORCH_NAME_BYTES]; // "aten::linear"
    char shapes[SHAPES_BYTES];   // "[[4, 64, 64], [192, 64], [192]]"; "" where not known or not asked for
    bool joins;                  // a call that an earlier part of the same operation began
} TorchCall;

/* The calls that an event is there, from the outermost to the innermost; gives their number. 0: PyTorch has
 * no row for it (a layer, an operation that is made of calls), and its time is that of what encloses it.
 *
 * In category.c letters behind a name say which shapes PyTorch prints beside it:
 *
 *     0 1 2 3   what the operation reads (profile/operands.h)
 *     a b       the two sides of the product that the primitive is
 *     w c       the weight and the bias of the layer whose product it is: of one with parts a part's
 *     A B       the same of attention, as (B, heads, rows, columns)
 *     y         what the last product wrote, with the leading axes of what the operation reads
 *     Y         the same of attention, as (B, heads, rows, columns)
 *     d         what the operation reads first, as a matrix
 *     -         a number, or nothing */
int torch_calls(const Trace *trace, int64_t event, bool shapes, TorchCall calls[TORCH_DEPTH]);
