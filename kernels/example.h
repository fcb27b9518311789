/* example: a call of an operation by itself, of sizes that are asked for (./infer --op=norm). Each operation defines one,
 * NAME_example, in its folder's example.c: how a caller fills the contract in the way most models do. */
#pragma once

#include "kernels/op.h"

typedef struct {
    int64_t batch, seq;      // B, T
    int64_t width, hidden;   // C; width of a feed-forward layer
    int64_t heads, kv_heads; // each of C / heads columns
    int64_t vocab, padded;   // rows of the head's weight: the vocabulary's, and those that fill its tiles
    bool first;              // tensors are given values; in later calls they keep what is in them
    uint64_t stream;         // of the next tensor's random numbers (base/random.h); the caller sets it to 0
} ExampleCall;

typedef struct {
    const char *what; // one line: what is computed, of which sizes
    /* Takes the tensors and calls the operation: forward, and with ctx->training backward, too. The same sizes take
     * the same memory each time. ERROR_USAGE for sizes of which there is no such call. */
    Status (*run)(Ctx *ctx, ExampleCall *call);
    bool composed; // the naive form is other operations (kernels/decode/decode.h)
} Example;

#define OPERATION(name, NAME, CATEGORY) extern const Example name##_example;
#include "kernels/ops.def"
#undef OPERATION

/* Take a tensor from ARENA_PARAMETERS: of normal random numbers of this standard deviation (0: zeros) in a float dtype; of
 * random integers in [0, below); of these bytes, as the dtype has them. */
CHECKED Status example_normals(Ctx *ctx, ExampleCall *call, const char *name, Dtype dtype, Shape shape,
                               double deviation, Tensor *tensor);
CHECKED Status example_integers(Ctx *ctx, ExampleCall *call, const char *name, Shape shape, int64_t below,
                                Tensor *tensor);
CHECKED Status example_values(Ctx *ctx, const ExampleCall *call, const char *name, Dtype dtype, Shape shape,
                              const void *values, Tensor *tensor);
