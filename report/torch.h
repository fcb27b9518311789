/* torch: what PyTorch calls the host's events of the naive path, and which shapes it prints beside them. */
#pragma once

#include "report/shapes.h"
#include "report/trace.h"

enum { TORCH_DEPTH = 6, TORCH_NAME_BYTES = LABEL_BYTES, TORCH_LETTERS = 12 };

typedef struct {
    char name[TORCH_NAME_BYTES]; // "aten::linear"
    char shapes[SHAPES_BYTES];   // "[[4, 64, 64], [192, 64], [192]]"; "" where not known or not asked for
    bool joins;                  // a call that an earlier part of the same operation began
} TorchCall;

/* The calls that an event is there, from the outermost to the innermost; gives their number. 0: PyTorch has
 * no row for it (a layer, an operation that is made of calls), and its time is that of what encloses it.
 *
 * In torch_names.c letters behind a name say which shapes PyTorch prints beside it:
 *
 *     0 1 2 3 4   what the operation reads (its contract's tensors, in order)
 *     d x         the first and the second of these as matrices
 *     r u         the first without its last axis: as one, and as (B, T, 1)
 *     z           the third, transposed
 *     a b o       the two sides of the product that the primitive is or is next to, and what it writes
 *     g j         a and b, transposed
 *     w c         the weight and the bias of the layer whose product it is: of one with parts a part's
 *     y           what the product writes, with the leading axes of what the operation reads
 *     A B Y       a, b and o of attention, as (B, heads, rows, columns)
 *     H N M       the same, as (B, rows, heads, columns)
 *     k K         keys, where b is: (B, heads, rows, columns) and (B, rows, heads, columns)
 *     m           a mask of Y
 *     S           queries, keys and values in one, as (B, T, all of them); nothing where they lie apart
 *     n t e Q E   an embedding's indices as one axis; a row's; what it writes: (B * T, C), (T, C), (B, T, C)
 *     V           logits
 *     -           a number, or nothing */
int torch_calls(const Trace *trace, int64_t event, bool shapes, TorchCall calls[TORCH_DEPTH]);

/* What PyTorch's profiler calls the primitive, with what it nests in: "aten::matmul[AB]/aten::bmm[ab]", the
 * letters as above; NULL where it has no such operation. `bias`: its operation has one. `joins`:
 * so many of these names, from the first, are calls that the operation's earlier primitives have begun. */
const char *torch_name(const TraceEvent *primitive, bool bias, int *joins);

/* "[[4, 64], []]" of letters; torch_shapes_of: the digits are shapes of such a text. */
void torch_shapes(const Trace *trace, int64_t event, const char *letters, char text[SHAPES_BYTES]);
void torch_shapes_of(const char *outer, const char *letters, char text[SHAPES_BYTES]);
bool torch_has_bias(const Trace *trace, int64_t primitive); // the operation that it is of

/* What PyTorch lists besides, and what here takes no time (report/torch_views.c): beside a primitive, and
 * inside of a call. `but`: what is inside and has a time of its own; NULL: nothing. */
typedef void TorchVisit(void *visitor, const TorchCall *call);
void torch_beside(const Trace *trace, int64_t event, bool shapes, TorchVisit *visit, void *visitor);
void torch_inside(const TorchCall *call, const char *but, bool shapes, TorchVisit *visit, void *visitor);
