/* ctx: what travels with every call of an operation (the device, the arenas, the fuses, what runs now), and
 * the names of operations. It lies below the door (op.h), so that what the door itself uses
 * (record.h, guard.h) can read it. */
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

/* A fuse that is no operation's form but a precision: products of blocks read e4m3 (kernels/linear/linear.h). It is
 * off unless it is named. */
#define FUSE_FP8 (1u << OP_COUNT)

typedef enum {
    ARENA_PARAMETERS, // weights in the dtype of the computation
    ARENA_GRADIENTS,  // fp32 gradients of the parameters
    ARENA_OPTIMIZER,  // moments, and fp32 master weights where the weights are not fp32
    ARENA_SAVED,      // what the forward pass leaves for the backward pass
    ARENA_SCRATCH,    // everything else: taken and given back inside an operation or a block
    ARENA_COUNT,
    ARENA_CACHE = ARENA_COUNT // keys and values of generation, which lie among ARENA_SAVED
} ArenaKind;

struct Recorder; // kernels/record.h
struct Call;

typedef struct Ctx {
    Device *device;
    Dtype dtype;    // of the model's weights and activations: F32, BF16, F64 (CPU, naive only)
    bool tf32;      // fp32 products may round their inputs to tf32 (CUDA)
    bool measuring; // the door is closed: arenas count, nothing is computed
    bool training;  // the forward pass saves what the backward pass needs
    bool graphs;    // work that repeats may be captured and launched as a whole (run/replay.h)
    uint32_t fuses; // bit `Operation` set: that operation runs fused
    Arena arenas[ARENA_COUNT];
    int layer;           // block that runs, 0-based; -1 outside the blocks
    Operation operation; // what runs, in which pass and form: set by the door
    Pass pass;
    Form form;
    bool marked;               // the running primitive is being recorded
    const char *call;          // which call this is: "attention.projection", "mlp.expand", ...
    struct Recorder *recorder; // NULL: timing per operation is off
    bool check;                // --check: outputs finite, canaries whole, after every operation
    Status (*observe)(struct Ctx *ctx, const struct Call *call); // called after every operation, or NULL
    void *observer;                                              // what observe works with
    /* Asked whether the gradients of a linear layer's weights, a LinearBackward's, are made later in the pass,
     * by whoever says yes; NULL: nothing is put off. */
    bool (*puts_off)(struct Ctx *ctx, const void *linear);
    void *putter;   // what puts_off works with
    bool backward;  // the backward pass is running
    double padding; // share of the batch's positions that are padding
    int64_t step;   // for messages
    Work work;      // of all operations so far, while measuring too: the caller clears it
} Ctx;

/* The operator of PyTorch's that a primitive is, "aten::bmm", or one part of which it is, as "softmax max" is of
 * "aten::_softmax"; NULL: PyTorch has none. */
typedef struct {
    const char *name;
    bool part;
} TorchName;

/* A tensor that an operation writes: what is checked, hashed and compared. */
typedef struct {
    const char *name;
    Tensor tensor;
} Output;

enum { CALL_INPUTS = 5, CALL_OUTPUTS = 4 };

/* One operation, checked and counted, on its way through the door. */
typedef struct Call {
    Operation operation;
    Pass pass;
    Dtype dtype;          // of the contract's activations (AdamW's: its weights): chooses the slot
    const void *contract; // NormForward, ...: what the implementation casts it back to
    /* What it reads, in the order of the contract, of a backward pass the gradient first: the shapes that a
     * profile prints. What the contract has none of stays empty. */
    Tensor inputs[CALL_INPUTS];
    Work work;
    Traffic traffic;              // of OP_COMM
    Output outputs[CALL_OUTPUTS]; // ends at an empty tensor; checked and hashed after the call
} Call;

const char *operation_name(Operation operation);
Category operation_category(Operation operation); // as ops.def says it

/* Parses "0", "1", "norm,attention", "1,-attention" or "-attention", which is the same, into fuses.
 * ERROR_USAGE names the operations. */
CHECKED Status fuses_parse(const char *text, uint32_t *fuses);

/* The dtype of statistics, losses and parameter gradients: fp32, or fp64 where everything is. */
static inline Dtype wide_dtype(const Ctx *ctx) {
    return ctx->dtype == F64 ? F64 : F32;
}

__END_DECLS
