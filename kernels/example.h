/* example: one call of an operation with given sizes (./infer --op=norm). Each operation defines NAME_example
 * in its folder's example.c: it fills the contract as most models do. */
#pragma once

#include "kernels/op.h"

typedef struct {
    int64_t batch, seq;      // B, T
    int64_t width, hidden;   // C; width of a feed-forward layer
    int64_t heads, kv_heads; // each has C / heads columns
    int64_t vocab, padded;   // rows of the head's weight: the vocabulary, and with padding
    bool first;              // fill the tensors; later calls keep their values
    uint64_t stream;         // random stream of the next tensor (base/random.h); the caller sets it to 0
} ExampleCall;

typedef struct {
    const char *what; // one line: the computation and its sizes
    /* Takes the tensors and calls the operation: forward, and with ctx->training also backward. Equal sizes
     * take the same memory each time. ERROR_USAGE for unsupported sizes. */
    Status (*run)(Ctx *ctx, ExampleCall *call);
    bool composed; // the naive form consists of other operations (kernels/decode/decode.h)
} Example;

#define OPERATION(name, NAME, CATEGORY) extern const Example name##_example;
#include "kernels/ops.def"
#undef OPERATION

/* Take a tensor from ARENA_PARAMETERS: normal random numbers with this standard deviation (0: zeros) in a
 * float dtype; random integers in [0, below); or these bytes, in the dtype's format. */
CHECKED Status example_normals(Ctx *ctx, ExampleCall *call, const char *name, Dtype dtype, Shape shape,
                               double deviation, Tensor *tensor);
CHECKED Status example_integers(Ctx *ctx, ExampleCall *call, const char *name, Shape shape, int64_t below,
                                Tensor *tensor);
CHECKED Status example_values(Ctx *ctx, const ExampleCall *call, const char *name, Dtype dtype, Shape shape,
                              const void *values, Tensor *tensor);
