#include "kernels/op.h"

#include "base/memory.h"
#include "base/nearest.h"
#include "kernels/guard.h"
#include "kernels/record.h"

#include <stdio.h>
#include <string.h>

/* Slots are weak: one that nothing fills is NULL here, in a CPU-only build all of CUDA's. */
#define OPERATION(name, NAME)
#define ENTRY(operation, pass, NAME, PASS)                                                                   \
    __attribute__((weak)) OpSlot operation##_##pass##_cpu_naive_float;                                       \
    __attribute__((weak)) OpSlot operation##_##pass##_cpu_naive_double;                                      \
    __attribute__((weak)) OpSlot operation##_##pass##_cpu_fused;                                             \
    __attribute__((weak)) OpSlot operation##_##pass##_cuda_naive;                                            \
    __attribute__((weak)) OpSlot operation##_##pass##_cuda_fused;
typedef Status OpSlot(Ctx *ctx, const void *contract);
#include "kernels/ops.def"
#undef OPERATION
#undef ENTRY

typedef struct {
    bool listed;              // the operation has such a pass
    OpFunction specification; // naive in fp64
    OpFunction slots[BACKEND_COUNT][FORM_COUNT];
} Row;

static const Row table[OP_COUNT][PASS_COUNT] = {
#define OPERATION(name, NAME)
#define ENTRY(operation, pass, NAME, PASS)                                                                   \
    [OP_##NAME][PASS_##PASS] = {true,                                                                        \
                                operation##_##pass##_cpu_naive_double,                                       \
                                {{operation##_##pass##_cpu_naive_float, operation##_##pass##_cpu_fused},     \
                                 {operation##_##pass##_cuda_naive, operation##_##pass##_cuda_fused}}},
#include "kernels/ops.def"
#undef OPERATION
#undef ENTRY
};

static const char *const operation_names[OP_COUNT] = {
#define OPERATION(name, NAME) [OP_##NAME] = #name,
#define ENTRY(operation, pass, NAME, PASS)
#include "kernels/ops.def"
#undef OPERATION
#undef ENTRY
};

const char *operation_name(Operation operation) {
    return operation_names[operation];
}

const char *pass_name(Pass pass) {
    static const char *const names[PASS_COUNT] = {"forward", "backward", "update"};
    return names[pass];
}

const char *form_name(Form form) {
    return form == FORM_FUSED ? "fused" : "naive";
}

OpFunction op_function(Backend backend, Dtype dtype, Operation operation, Pass pass, Form form) {
    const Row *row = &table[operation][pass];
    if (dtype == F64) return backend == BACKEND_CPU && form == FORM_NAIVE ? row->specification : NULL;
    if (dtype == BF16 && backend == BACKEND_CPU) return NULL;
    return row->slots[backend][form];
}

bool op_has(const Ctx *ctx, Operation operation, Form form) {
    for (int pass = 0; pass < PASS_COUNT; pass++)
        if (table[operation][pass].listed &&
            !op_function(ctx->device->backend, ctx->dtype, operation, (Pass)pass, form))
            return false;
    return true;
}

Form op_form(const Ctx *ctx, Operation operation) {
    bool fused = (ctx->fuses >> operation & 1) && op_has(ctx, operation, FORM_FUSED);
    return fused ? FORM_FUSED : FORM_NAIVE;
}

static Record record_of(const Ctx *ctx, RecordKind kind, Pass pass, const char *name) {
    return (Record){.kind = kind,
                    .operation = ctx->operation,
                    .pass = pass,
                    .form = ctx->form,
                    .name = name,
                    .call = ctx->call ? ctx->call : operation_names[ctx->operation],
                    .layer = ctx->layer,
                    .step = ctx->step};
}

static Status compute(Ctx *ctx, const Call *call, OpFunction run) {
    Device *device = ctx->device;
    if (ctx->recorder) {
        Record record = record_of(ctx, RECORD_OPERATION, ctx->pass, NULL);
        record.work = call->work;
        record_begin(ctx->recorder, &record);
    }
    device->range_push(device, operation_names[ctx->operation]);
    Status status = run(ctx, call->contract);
    device->range_pop(device);
    if (status) return status;
    if (ctx->recorder) record_end(ctx->recorder);
    TRY(device->launched(device));
    if (ctx->check) TRY(guard_check(ctx, call));
    if (ctx->observe) TRY(ctx->observe(ctx, call));
    return OK;
}

Status op_run(Ctx *ctx, const Call *call) {
    ctx->operation = call->operation;
    ctx->pass = call->pass;
    ctx->form = op_form(ctx, call->operation);
    ctx->work.flops += call->work.flops;
    ctx->work.bytes += call->work.bytes;
    OpFunction run = op_function(ctx->device->backend, ctx->dtype, call->operation, call->pass, ctx->form);
    if (!run)
        return fail(ERROR_INTERNAL, "%s %s has no %s form for %s on this device",
                    operation_names[call->operation], pass_name(call->pass), form_name(ctx->form),
                    dtype_name(ctx->dtype));
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SCRATCH]);
    Status status = ctx->measuring ? run(ctx, call->contract) : compute(ctx, call, run);
    arena_release(&ctx->arenas[ARENA_SCRATCH], mark);
    if (ctx->recorder && !ctx->measuring) record_memory(ctx->recorder, ctx->arenas);
    return fail_at(status, "%s %s %s, layer %d", form_name(ctx->form), operation_names[call->operation],
                   pass_name(call->pass), ctx->layer);
}

bool primitive_begin(Ctx *ctx, Pass pass, const char *name, const char *source) {
    if (ctx->measuring) return false;
    ctx->marked = ctx->recorder && (pass != ctx->pass || recorder_wants(ctx->recorder, RECORD_PRIMITIVE));
    if (ctx->marked) {
        Record record = record_of(ctx, RECORD_PRIMITIVE, pass, name);
        record.source = source;
        record_begin(ctx->recorder, &record);
        ctx->device->range_push(ctx->device, name);
    }
    if (ctx->device->backend == BACKEND_CPU) ctx->device->launches++;
    return true;
}

bool primitive_end(Ctx *ctx) {
    if (ctx->marked) {
        ctx->device->range_pop(ctx->device);
        record_end(ctx->recorder);
    }
    ctx->marked = false;
    return false;
}

bool scope_begin(Ctx *ctx, const char *name) {
    if (ctx->measuring) return true;
    if (ctx->recorder && recorder_wants(ctx->recorder, RECORD_SCOPE)) {
        Record record = record_of(ctx, RECORD_SCOPE, PASS_FORWARD, name);
        record_memory(ctx->recorder, ctx->arenas);
        record_begin(ctx->recorder, &record);
    }
    ctx->device->range_push(ctx->device, name);
    return true;
}

bool scope_end(Ctx *ctx) {
    if (ctx->measuring) return false;
    ctx->device->range_pop(ctx->device);
    if (ctx->recorder && recorder_wants(ctx->recorder, RECORD_SCOPE)) {
        record_end(ctx->recorder);
        record_memory(ctx->recorder, ctx->arenas);
    }
    return false;
}

void library_begin(Ctx *ctx, const char *name) {
    if (!ctx->recorder || !recorder_wants(ctx->recorder, RECORD_LIBRARY)) return;
    Record record = record_of(ctx, RECORD_LIBRARY, ctx->pass, name);
    record_begin(ctx->recorder, &record);
}

void library_end(Ctx *ctx) {
    if (ctx->recorder && recorder_wants(ctx->recorder, RECORD_LIBRARY)) record_end(ctx->recorder);
}

Status take(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape, Tensor *tensor) {
    char full[ARENA_NAME_BYTES];
    if (ctx->layer >= 0) {
        snprintf(full, sizeof full, "block.%d.%s", ctx->layer, name);
        name = full;
    }
    Arena *a = &ctx->arenas[arena];
    TRY(arena_take(a, name, dtype, shape, tensor));
    if (ctx->recorder && !ctx->measuring) record_memory(ctx->recorder, ctx->arenas);
    return a->canaries && a->base ? guard_plant(ctx, a, &a->entries[a->count - 1]) : OK;
}

Status take_missing(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape, Tensor *tensor) {
    return tensor_empty(*tensor) ? take(ctx, arena, name, dtype, shape, tensor) : OK;
}

static Status fuse_named(const char *name, size_t length, uint32_t *bit) {
    for (int i = 0; i < OP_COUNT; i++)
        if (strlen(operation_names[i]) == length && strncmp(operation_names[i], name, length) == 0) {
            *bit = 1u << i;
            return OK;
        }
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)(length < 63 ? length : 63), name);
    const char *nearest = nearest_name(text, operation_names, OP_COUNT);
    return fail(ERROR_USAGE, "--fused: no operation is named '%s'; did you mean '%s'?", text, nearest);
}

Status fuses_parse(const char *text, uint32_t *fuses) {
    const uint32_t all = (1u << OP_COUNT) - 1;
    uint32_t result = 0;
    for (const char *word = text;;) {
        size_t length = strcspn(word, ",");
        uint32_t bit = 0;
        if (length == 1 && (*word == '0' || *word == '1')) {
            if (word != text)
                return fail(ERROR_USAGE,
                            "--fused=%s: 0 or 1 can only come first; write for example 1,-attention", text);
            result = *word == '1' ? all : 0;
        } else if (length > 1 && *word == '-') {
            TRY(fuse_named(word + 1, length - 1, &bit));
            result &= ~bit;
        } else {
            TRY(fuse_named(word, length, &bit));
            result |= bit;
        }
        word += length;
        if (!*word) break;
        word++;
    }
    *fuses = result;
    return OK;
}
