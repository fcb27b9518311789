/* ctx: the context passed to every operation (device, arenas, fuses, the running operation), and the names
 * of operations. It is independent of op.h, so that record.h and guard.h can use it. */
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "base/tensor.h"
#include "base/terms.h"
#include "kernels/device/device.h"

__BEGIN_DECLS

typedef enum {
#define OPERATION(name, NAME, CATEGORY) OP_##NAME,
#include "kernels/ops.def"
#undef OPERATION
    OP_COUNT
} Operation;

/* A fuse that selects a precision instead of a form: products of blocks read e4m3
 * (kernels/linear/linear.h). It is off unless named. */
#define FUSE_FP8 (1u << OP_COUNT)

/* A fuse that fixes the order of sums: on the CPU a row's sums are in the same order whatever the number of
 * other rows. It is off unless named. */
#define FUSE_INVARIANT (2u << OP_COUNT)

typedef enum {
    ARENA_PARAMETERS, // weights in the dtype of the computation
    ARENA_GRADIENTS,  // fp32 gradients of the parameters
    ARENA_OPTIMIZER,  // moments, and fp32 master weights if the weights are not fp32
    ARENA_SAVED,      // saved by the forward pass for the backward pass
    ARENA_SCRATCH,    // everything else: released at the end of an operation or a block
    ARENA_COUNT,
    ARENA_CACHE = ARENA_COUNT // keys and values of generation, allocated in ARENA_SAVED
} ArenaKind;

struct Recorder; // kernels/record.h
struct Call;

typedef struct Ctx {
    Device *device;
    Dtype dtype;    // dtype of weights and activations: F32, BF16, F64 (CPU, naive only)
    bool tf32;      // fp32 products may round their inputs to tf32 (CUDA)
    bool measuring; // planning memory: arenas count, nothing is computed
    bool training;  // the forward pass saves what the backward pass needs
    bool graphs;    // work that repeats may be captured and launched as a whole (run/replay.h)
    uint32_t fuses; // bit `Operation` set: that operation runs fused
    bool blas_only; // CPU: fused forms multiply with OpenBLAS, as naive ones do (kernels/gemm/cpu.h)
    bool scaled;    // --fused=fp8: casts get the scales of the previous step (kernels/cast/cast.h)
    Arena arenas[ARENA_COUNT];
    int layer;           // the running block, from 0; -1 outside the blocks
    Operation operation; // the running operation, pass and form, set by op_run
    Pass pass;
    Form form;
    bool marked;               // whether the running primitive is recorded
    const char *call;          // the model's name for this call: "attention.projection", "mlp.expand", ...
    struct Recorder *recorder; // NULL: timing per operation is off
    bool check; // --check: verify after every operation that outputs are finite and canaries intact
    Status (*observe)(struct Ctx *ctx, const struct Call *call); // called after every operation, or NULL
    void *observer;                                              // argument of observe
    /* Returns whether the weight gradients of a linear layer (a LinearBackward) are computed later in the
     * pass, by the callee. NULL: they are computed at once. */
    bool (*defers)(struct Ctx *ctx, const void *linear);
    void *defer_state; // the state of defers
    bool backward;     // the backward pass is running
    double padding;    // share of the batch's positions that are padding
    int64_t step;      // number of the step, for messages
    Work work;         // work of all operations so far, also while measuring; the caller clears it
} Ctx;

/* The PyTorch operator that a primitive corresponds to, "aten::bmm", or is a part of, as "softmax max" is
 * of "aten::_softmax". NULL: none. */
typedef struct {
    const char *name;
    bool part;
} TorchName;

/* An output of an operation, for checks, hashes and comparisons. */
typedef struct {
    const char *name;
    Tensor tensor;
} Output;

enum { CALL_INPUTS = 5, CALL_OUTPUTS = 4 };

/* One call of an operation, with its contract checked and its work counted. */
typedef struct Call {
    Operation operation;
    Pass pass;
    Dtype dtype;          // dtype of the contract's activations (AdamW: weights); selects the slot
    const void *contract; // NormForward, ...; the implementation casts it back
    /* Input tensors, in the order of the contract (backward: the gradient first), for the shapes in a
     * profile. Absent inputs are empty. */
    Tensor inputs[CALL_INPUTS];
    Work work;
    Traffic traffic;              // for OP_COMM
    Output outputs[CALL_OUTPUTS]; // terminated by an empty tensor; checked and hashed after the call
} Call;

const char *operation_name(Operation operation);
Category operation_category(Operation operation); // the category that ops.def gives it

/* Parses "0", "1", "norm,attention", "1,-attention" or the equivalent "-attention" into fuses. ERROR_USAGE
 * lists the operations. */
CHECKED Status fuses_parse(const char *text, uint32_t *fuses);

/* The dtype of statistics, losses and parameter gradients: fp32, or fp64 in fp64. */
static inline Dtype wide_dtype(const Ctx *ctx) {
    return ctx->dtype == F64 ? F64 : F32;
}

__END_DECLS
