/* op: the entry for all operations. A room's public function (norm_forward, ...) checks its contract,
 * counts its work and calls op_run(), which selects the form, records time, checks and hashes. */
#pragma once

#include "kernels/ctx.h"

__BEGIN_DECLS

/* ---- slots ---- */

/* The table of implementations. A form is registered beside its function, once per dtype:
 *     SLOT(NORM, FORWARD, CPU, FUSED, F32, norm_forward_cpu_fused);
 * Unregistered slots are empty, for example all CUDA slots of a CPU-only build. Filling a slot twice does
 * not link, because both define slot_NORM_FORWARD_CPU_FUSED_F32. */

/* An implementation; it casts `contract` to its type. */
typedef Status (*OpFunction)(Ctx *ctx, const void *contract);

typedef struct {
    OpFunction function;
    Operation operation;
    Pass pass;
    Backend backend;
    Form form;
    Dtype dtype;
} Slot;

/* The linker collects all slots in one section, which op.c reads before main begins. The explicit
 * alignment prevents the compiler from adding gaps. */
#define SLOT(OPERATION, PASS, BACKEND, FORM, DTYPE, function)                                                \
    SLOT_AS(OPERATION, PASS, BACKEND, FORM, DTYPE, function)
#define SLOT_AS(OPERATION, PASS, BACKEND, FORM, DTYPE, function)                                             \
    SLOT_NAMED(slot_##OPERATION##_##PASS##_##BACKEND##_##FORM##_##DTYPE, function, OP_##OPERATION,           \
               PASS_##PASS, BACKEND_##BACKEND, FORM_##FORM, DTYPE)
#define SLOT_NAMED(name, ...)                                                                                \
    __BEGIN_DECLS extern const Slot name;                                                                    \
    __END_DECLS                                                                                              \
    __attribute__((used, section("op_slots"), aligned(8))) const Slot name = {__VA_ARGS__}

/* The function of a slot, or NULL. */
OpFunction slot_function(Backend backend, Dtype dtype, Operation operation, Pass pass, Form form);

/* Whether the operation has this pass, in any form. */
bool slots_have_pass(Operation operation, Pass pass);

/* Whether the form exists for every pass of the operation. */
bool slots_filled(Backend backend, Dtype dtype, Operation operation, Form form);

CHECKED Status op_run(Ctx *ctx, const Call *call);

/* The form that runs for tensors of this dtype: fused if the operation's fuse is on and each of its passes
 * has a fused slot for this backend and dtype. */
Form op_form(const Ctx *ctx, Operation operation, Dtype dtype);

/* Whether every operation that has a fused form on this device runs in it. Collectives do not count: each is
 * one launch in either form. */
bool op_all_fused(const Ctx *ctx);

/* Takes a tensor from an arena. Inside a block, its name in the memory plan is "block.<layer>.<name>". */
CHECKED Status take(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape, Tensor *tensor);
/* The same, unless the tensor already has memory. */
CHECKED Status take_missing(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape,
                            Tensor *tensor);

/* Takes a tensor quantized by groups (base/groups.h) and its scales. */
CHECKED Status take_groups(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape,
                           Tensor *tensor);

static inline TorchName torch_none(void) {
    const TorchName none = {NULL, false};
    return none;
}
static inline TorchName torch_call(const char *name) {
    const TorchName call = {name, false};
    return call;
}
static inline TorchName torch_part(const char *name) {
    const TorchName part = {name, true};
    return part;
}

/* Marks the next statement or block as a primitive of the running operation:
 *     PRIMITIVE(ctx, "scale", ATTENTION) TRY(scale(ctx, scores));
 * The third argument is the category CATEGORY_ATTENTION (base/terms.h). Optional further arguments are
 * PyTorch's name and the tensors that the primitive fills first, to which the profile attributes their
 * memory (products pass these themselves):
 *     PRIMITIVE(ctx, "mean", NORMALIZATION, torch_part("aten::native_layer_norm"), &n->mean) ...
 * Skipped while measuring, so an implementation takes its scratch outside and computes only inside. Never
 * left by break or goto; leaving by return (TRY) ends the run. PRIMITIVE_OF names another pass than the
 * operation's, for work that a form does early (the loss's gradient), so that each pass is given its own
 * time; it takes the category and the arithmetic as enum values. */
#define PRIMITIVE(ctx, name, CATEGORY, ...)                                                                  \
    PRIMITIVE_OF (ctx, (ctx)->pass, name, CATEGORY_##CATEGORY, ARITHMETIC_PLAIN __VA_OPT__(, ) __VA_ARGS__)
#define PRIMITIVE_OF(ctx, pass, name, category, arithmetic, ...)                                             \
    for (bool primitive_open_ =                                                                              \
             primitive_begin(ctx, pass, name, category, arithmetic, SOURCE_LINE,                             \
                             PRIMITIVE_TORCH(__VA_ARGS__ __VA_OPT__(, ) torch_none(), ),                     \
                             PRIMITIVE_FILLS(__VA_ARGS__ __VA_OPT__(, ) NULL, NULL, NULL, NULL, ));          \
         primitive_open_; primitive_open_ = primitive_end(ctx))
#define PRIMITIVE_TORCH(torch, ...)          torch
#define PRIMITIVE_FILLS(torch, a, b, c, ...) a, b, c
bool primitive_begin(Ctx *ctx, Pass pass, const char *name, Category category, Arithmetic arithmetic,
                     const char *source, TorchName torch, const Tensor *first, const Tensor *second,
                     const Tensor *third);
bool primitive_end(Ctx *ctx);
#define SOURCE_LINE                SOURCE_LINE_OF(__FILE__, __LINE__) // "kernels/norm/cpu_naive.c:71"
#define SOURCE_LINE_OF(file, line) file ":" SOURCE_LINE_TEXT(line)
#define SOURCE_LINE_TEXT(line)     #line

/* Ranges of the program, shown in the profile and as NVTX ranges. A step and its phases have fixed names.
 * A part (a layer), host work (beam search) and a user's range take a name that must live as long as the
 * device. Nothing happens while measuring. Call begin and end, or use the macro around a statement without
 * break or goto:  PROFILE_SCOPE(ctx, "sort by length") { ... } */
#define PROFILE_SCOPE(ctx, name) SCOPE_AT(ctx, scope_begin_own(ctx, name), __LINE__)
#define STEP_SCOPE(ctx)          SCOPE_AT(ctx, scope_begin_step(ctx), __LINE__)
#define PHASE_SCOPE(ctx, PHASE)  SCOPE_AT(ctx, scope_begin_phase(ctx, PHASE_##PHASE), __LINE__)
#define PART_SCOPE(ctx, name)    SCOPE_AT(ctx, scope_begin_part(ctx, name), __LINE__)
#define HOST_SCOPE(ctx, name)    SCOPE_AT(ctx, scope_begin_host(ctx, name), __LINE__)
#define SCOPE_AT(...)            SCOPE_AS(__VA_ARGS__)
#define SCOPE_AS(c, begin, n)    for (bool in##n = begin; in##n; in##n = scope_end(c))
bool scope_begin_own(Ctx *ctx, const char *name); // returns true; the next four functions do, too
bool scope_begin_step(Ctx *ctx);
bool scope_begin_phase(Ctx *ctx, Phase phase);
bool scope_begin_part(Ctx *ctx, const char *name);
bool scope_begin_host(Ctx *ctx, const char *name);
bool scope_end(Ctx *ctx); // returns false

/* Records a CPU library call as a kernel of the profile. */
void library_begin(Ctx *ctx, const char *name);
void library_end(Ctx *ctx);

__END_DECLS
