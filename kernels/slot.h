/* slot: where the forms of the operations are kept. A form is registered in the file in which it is written,
 * once for each dtype that it computes in:
 *     SLOT(NORM, FORWARD, CPU, FUSED, F32, norm_forward_cpu_fused);
 * What nothing registers is an empty slot: in a build without CUDA all of CUDA's. A slot that is filled twice
 * does not link, since both define slot_NORM_FORWARD_CPU_FUSED_F32. */
#pragma once

#include "kernels/ctx.h"

__BEGIN_DECLS

/* Casts `contract` back to its type, and computes. */
typedef Status (*OpFunction)(Ctx *ctx, const void *contract);

typedef struct {
    OpFunction function;
    Operation operation;
    Pass pass;
    Backend backend;
    Form form;
    Dtype dtype;
} Slot;

/* The linker lays all slots one behind the other into a section of their own, which slot.c reads before main
 * begins. The alignment is written out since compilers would raise it, and leave gaps. */
#define SLOT(OPERATION, PASS, BACKEND, FORM, DTYPE, function)                                                \
    SLOT_AS(OPERATION, PASS, BACKEND, FORM, DTYPE, function)
#define SLOT_AS(OPERATION, PASS, BACKEND, FORM, DTYPE, function)                                             \
    SLOT_NAMED(slot_##OPERATION##_##PASS##_##BACKEND##_##FORM##_##DTYPE, function, OP_##OPERATION,           \
               PASS_##PASS, BACKEND_##BACKEND, FORM_##FORM, DTYPE)
#define SLOT_NAMED(name, ...)                                                                                \
    __BEGIN_DECLS extern const Slot name;                                                                    \
    __END_DECLS                                                                                              \
    __attribute__((used, section("op_slots"), aligned(8))) const Slot name = {__VA_ARGS__}

/* NULL where the slot is empty. */
OpFunction slot_function(Backend backend, Dtype dtype, Operation operation, Pass pass, Form form);

/* Whether the form is there for every pass that the operation has. */
bool slots_filled(Backend backend, Dtype dtype, Operation operation, Form form);

__END_DECLS
