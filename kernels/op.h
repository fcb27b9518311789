/* op: the one door between the model and its kernels. A room's public function (norm_forward, ...) checks its
 * contract, counts its work and comes through op_run(), which picks the form, times, guards and hashes. */
#ifndef KERNELS_OP_H
#define KERNELS_OP_H

#include "base/arena.h"
#include "base/status.h"
#include "base/tensor.h"
#include "kernels/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
#define OPERATION(name, NAME) OP_##NAME,
#define ENTRY(operation, pass, NAME, PASS)
#include "kernels/ops.def"
#undef OPERATION
#undef ENTRY
    OP_COUNT
} Operation;

typedef enum { PASS_FORWARD, PASS_BACKWARD, PASS_UPDATE, PASS_COUNT } Pass;
typedef enum { FORM_NAIVE, FORM_FUSED, FORM_COUNT } Form;
typedef enum {
    ARENA_PARAMETERS, // weights in the dtype of the computation
    ARENA_GRADIENTS,  // fp32 gradients of the parameters
    ARENA_OPTIMIZER,  // moments, and fp32 master weights where the weights are not fp32
    ARENA_SAVED,      // what the forward pass leaves for the backward pass
    ARENA_SCRATCH,    // everything else: taken and given back inside an operation or a block
    ARENA_COUNT
} ArenaKind;

/* The least work that the contract demands, whatever the form: what a perfect kernel would do. */
typedef struct {
    double flops; // 2 for a multiply-add; causal attention counts its triangle
    double bytes; // each input read once, each output written once
} Work;

struct Recorder; // kernels/record.h
struct Call;

typedef struct Ctx {
    Device *device;
    Dtype dtype;    // of weights and activations: F32, BF16 (CUDA), F64 (CPU, naive only)
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
    int64_t step;                                                // for messages
    Work work; // of all operations so far, while measuring too: the caller clears it
} Ctx;

/* A tensor that an operation writes: what is checked, hashed and compared. */
typedef struct {
    const char *name;
    Tensor tensor;
} Output;

/* One operation, checked and counted, on its way through the door. */
typedef struct Call {
    Operation operation;
    Pass pass;
    const void *contract; // NormForward, ...: what the implementation casts it back to
    Work work;
    Output outputs[4]; // ends at an empty tensor; checked and hashed after the call
} Call;

typedef Status (*OpFunction)(Ctx *ctx, const void *contract);

CHECKED Status op_run(Ctx *ctx, const Call *call);

/* The form that will run: fused if its fuse is set and its slots are filled for this backend and dtype. */
Form op_form(const Ctx *ctx, Operation operation);
bool op_has(const Ctx *ctx, Operation operation, Form form);
OpFunction op_function(Backend backend, Dtype dtype, Operation operation, Pass pass, Form form);

const char *operation_name(Operation operation);
const char *pass_name(Pass pass);
const char *form_name(Form form);

/* Parses "0", "1", "norm,attention", "1,-attention" into fuses. ERROR_USAGE names the nearest operation. */
CHECKED Status fuses_parse(const char *text, uint32_t *fuses);

/* The dtype of statistics, losses and parameter gradients: fp32, or fp64 where everything is. */
static inline Dtype wide_dtype(const Ctx *ctx) {
    return ctx->dtype == F64 ? F64 : F32;
}

/* Takes a tensor from an arena; its name in the memory plan is "block.<layer>.<name>" inside a block. */
CHECKED Status take(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape, Tensor *tensor);
/* The same, unless the tensor is there already. */
CHECKED Status take_missing(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape,
                            Tensor *tensor);

/* Marks what follows, one statement or block, as a primitive of the running operation:
 *     PRIMITIVE(ctx, "scale") TRY(scale(ctx, scores));
 * Skipped while measuring, so an implementation takes its scratch outside and computes only inside. Never
 * left by break or goto; leaving by return (TRY) ends the run. PRIMITIVE_OF names another pass than the
 * operation's, for work that a form does early (the loss's gradient), so that each pass is given its own
 * time. */
#define PRIMITIVE(ctx, name) PRIMITIVE_OF(ctx, (ctx)->pass, name)
#define PRIMITIVE_OF(ctx, pass, name)                                                                        \
    for (bool primitive_open_ = primitive_begin(ctx, pass, name, SOURCE_LINE); primitive_open_;              \
         primitive_open_ = primitive_end(ctx))
bool primitive_begin(Ctx *ctx, Pass pass, const char *name, const char *source);
bool primitive_end(Ctx *ctx);
#define SOURCE_LINE                SOURCE_LINE_OF(__FILE__, __LINE__) // "kernels/norm/cpu_naive.c:71"
#define SOURCE_LINE_OF(file, line) file ":" SOURCE_LINE_TEXT(line)
#define SOURCE_LINE_TEXT(line)     #line

/* A named range around part of the program (step, forward, layer, ...): in the profile, and an NVTX range for
 * outside profilers. `name` must live as long as the device. Nothing happens while measuring. As a
 * statement, never left by break or goto:  PROFILE_SCOPE(ctx, "sort by length") { ... }                   */
#define PROFILE_SCOPE(ctx, name)  PROFILE_SCOPE_AT(ctx, name, __LINE__)
#define PROFILE_SCOPE_AT(...)     PROFILE_SCOPE_AS(__VA_ARGS__)
#define PROFILE_SCOPE_AS(c, s, n) for (bool in##n = scope_begin(c, s); in##n; in##n = scope_end(c))
bool scope_begin(Ctx *ctx, const char *name); // true
bool scope_end(Ctx *ctx);                     // false

/* Around a library's call on the CPU, where no profiler can see it: it is a kernel of the profile. */
void library_begin(Ctx *ctx, const char *name);
void library_end(Ctx *ctx);

/* The slots. An implementation that is not linked in leaves its weak symbol NULL: an empty slot. */
#define OPERATION(name, NAME)
#define ENTRY(operation, pass, NAME, PASS)                                                                   \
    CHECKED Status operation##_##pass##_cpu_naive_float(Ctx *ctx, const void *contract);                     \
    CHECKED Status operation##_##pass##_cpu_naive_double(Ctx *ctx, const void *contract);                    \
    CHECKED Status operation##_##pass##_cpu_fused(Ctx *ctx, const void *contract);                           \
    CHECKED Status operation##_##pass##_cuda_naive(Ctx *ctx, const void *contract);                          \
    CHECKED Status operation##_##pass##_cuda_fused(Ctx *ctx, const void *contract);
#include "kernels/ops.def"
#undef OPERATION
#undef ENTRY

#ifdef __cplusplus
}
#endif
#endif
