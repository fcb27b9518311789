/* slot: the table of implementations. A form is registered next to its function, once per dtype:
 *     SLOT(NORM, FORWARD, CPU, FUSED, F32, norm_forward_cpu_fused);
 * Unregistered slots are empty, for example all CUDA slots of a CPU-only build. Filling a slot twice does
 * not link, because both define slot_NORM_FORWARD_CPU_FUSED_F32. */
#pragma once

#include "kernels/ctx.h"

__BEGIN_DECLS

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

/* The linker collects all slots in one section, which slot.c reads before main begins. The explicit
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

__END_DECLS
