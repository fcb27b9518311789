#include "kernels/op.h"

#include "kernels/guard.h"
#include "kernels/record.h"

/* ---- slots ---- */

extern const Slot __start_op_slots[], __stop_op_slots[]; // defined by the linker from the section's name

/* The operation table, filled before main begins and read-only afterwards. */
static struct {
    OpFunction functions[PASS_COUNT][BACKEND_COUNT][FORM_COUNT][DTYPE_COUNT];
    bool filled[BACKEND_COUNT][FORM_COUNT][DTYPE_COUNT]; // every pass of the operation has a slot
} table[OP_COUNT];

bool slots_have_pass(Operation operation, Pass pass) {
    for (const Slot *s = __start_op_slots; s < __stop_op_slots; s++)
        if (s->operation == operation && s->pass == pass) return true;
    return false;
}

__attribute__((constructor)) static void fill_table(void) {
    for (const Slot *s = __start_op_slots; s < __stop_op_slots; s++)
        table[s->operation].functions[s->pass][s->backend][s->form][s->dtype] = s->function;
    for (const Slot *s = __start_op_slots; s < __stop_op_slots; s++) {
        bool filled = true;
        for (int pass = 0; pass < PASS_COUNT; pass++)
            filled &= !slots_have_pass(s->operation, (Pass)pass) ||
                      slot_function(s->backend, s->dtype, s->operation, (Pass)pass, s->form);
        table[s->operation].filled[s->backend][s->form][s->dtype] = filled;
    }
}

OpFunction slot_function(Backend backend, Dtype dtype, Operation operation, Pass pass, Form form) {
    return table[operation].functions[pass][backend][form][dtype];
}

bool slots_filled(Backend backend, Dtype dtype, Operation operation, Form form) {
    return table[operation].filled[backend][form][dtype];
}

Form op_form(const Ctx *ctx, Operation operation, Dtype dtype) {
    bool wanted = ctx->fuses >> operation & 1;
    return wanted && slots_filled(ctx->device->backend, dtype, operation, FORM_FUSED) ? FORM_FUSED
                                                                                      : FORM_NAIVE;
}

bool op_all_fused(const Ctx *ctx) {
    for (Operation o = 0; o < OP_COUNT; o++)
        if (operation_category(o) != CATEGORY_COMMUNICATION && op_form(ctx, o, ctx->dtype) == FORM_NAIVE &&
            slots_filled(ctx->device->backend, ctx->dtype, o, FORM_FUSED))
            return false;
    return true;
}

static Record record_of(const Ctx *ctx, RecordKind kind, Pass pass, const char *name) {
    return (Record){.kind = kind,
                    .operation = ctx->operation,
                    .pass = pass,
                    .form = ctx->form,
                    .name = name,
                    .call = ctx->call ? ctx->call : operation_name(ctx->operation),
                    .layer = ctx->layer,
                    .step = ctx->step};
}

/* Completes the work that the contract has counted. A forward pass inside the backward pass is recomputation,
 * which the model does not need. If the outputs are larger than all bytes counted, some are written in part
 * only, so the written bytes are unknown. */
static Work work_of(const Ctx *ctx, const Call *call) {
    Work work = call->work;
    if (!(work.needed > 0)) work.needed = work.flops;
    if (ctx->backward && call->pass == PASS_FORWARD) work.needed = 0;
    for (int i = 0; i < CALL_OUTPUTS && !tensor_empty(call->outputs[i].tensor); i++)
        work.written += (double)tensor_bytes(call->outputs[i].tensor);
    if (work.written > work.bytes) work.written = 0;
    return work;
}

static Status compute(Ctx *ctx, const Call *call, OpFunction run) {
    Device *device = ctx->device;
    if (ctx->recorder) {
        Record record = record_of(ctx, RECORD_OPERATION, ctx->pass, NULL);
        record.category = operation_category(call->operation);
        record.work = work_of(ctx, call);
        record.work.needed *= 1 - ctx->padding;
        record.traffic = call->traffic;
        record_begin(ctx->recorder, &record);
        record_call(ctx->recorder, call);
    }
    device->range_push(device, operation_name(ctx->operation));
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
    ctx->form = op_form(ctx, call->operation, call->dtype);
    work_add(&ctx->work, work_of(ctx, call));
    OpFunction run = slot_function(ctx->device->backend, call->dtype, call->operation, call->pass, ctx->form);
    if (!run)
        return fail(ERROR_INTERNAL, "%s %s has no %s form for %s on this device",
                    operation_name(call->operation), pass_name(call->pass), form_name(ctx->form),
                    dtype_name(call->dtype));
    ArenaMark mark = arena_mark(&ctx->arenas[ARENA_SCRATCH]);
    Status status = ctx->measuring ? run(ctx, call->contract) : compute(ctx, call, run);
    arena_release(&ctx->arenas[ARENA_SCRATCH], mark);
    if (ctx->recorder && !ctx->measuring) record_memory(ctx->recorder, ctx->arenas, NULL);
    return fail_at(status, "%s %s %s, layer %d", form_name(ctx->form), operation_name(call->operation),
                   pass_name(call->pass), ctx->layer);
}

bool primitive_begin(Ctx *ctx, Pass pass, const char *name, Category category, Arithmetic arithmetic,
                     const char *source, TorchName torch, const Tensor *first, const Tensor *second,
                     const Tensor *third) {
    if (ctx->measuring) return false;
    ctx->marked = ctx->recorder && (pass != ctx->pass || recorder_wants(ctx->recorder, RECORD_PRIMITIVE));
    if (ctx->marked) {
        Record record = record_of(ctx, RECORD_PRIMITIVE, pass, name);
        record.category = category;
        record.arithmetic = arithmetic;
        record.source = source;
        record.torch = torch;
        const Tensor *filled[] = {first, second, third};
        for (int i = 0; i < 3 && filled[i]; i++) record.fills[i] = filled[i]->data;
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

static bool scope_begin(Ctx *ctx, ScopeKind scope, Phase phase, const char *name) {
    if (ctx->measuring) return true;
    if (ctx->recorder && recorder_wants(ctx->recorder, RECORD_SCOPE)) {
        Record record = record_of(ctx, RECORD_SCOPE, PASS_FORWARD, name);
        record.scope = scope;
        record.phase = phase;
        record_memory(ctx->recorder, ctx->arenas, NULL);
        record_begin(ctx->recorder, &record);
    }
    ctx->device->range_push(ctx->device, name);
    return true;
}

bool scope_begin_own(Ctx *ctx, const char *name) {
    return scope_begin(ctx, SCOPE_OWN, PHASE_OTHER, name);
}

bool scope_begin_step(Ctx *ctx) {
    return scope_begin(ctx, SCOPE_STEP, PHASE_OTHER, "step");
}

bool scope_begin_phase(Ctx *ctx, Phase phase) {
    return scope_begin(ctx, SCOPE_PHASE, phase, phase_name(phase));
}

bool scope_begin_part(Ctx *ctx, const char *name) {
    return scope_begin(ctx, SCOPE_PART, PHASE_OTHER, name);
}

bool scope_begin_host(Ctx *ctx, const char *name) {
    return scope_begin(ctx, SCOPE_HOST, PHASE_OTHER, name);
}

bool scope_end(Ctx *ctx) {
    if (ctx->measuring) return false;
    ctx->device->range_pop(ctx->device);
    if (ctx->recorder && recorder_wants(ctx->recorder, RECORD_SCOPE)) {
        record_end(ctx->recorder);
        record_memory(ctx->recorder, ctx->arenas, NULL);
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
    Arena *a = &ctx->arenas[arena == ARENA_CACHE ? ARENA_SAVED : arena];
    TRY(arena_take(a, arena, ctx->layer, name, dtype, shape, tensor));
    if (ctx->recorder && !ctx->measuring) record_memory(ctx->recorder, ctx->arenas, tensor);
    return a->canaries && a->base ? guard_plant(ctx, a, &a->entries[a->count - 1]) : OK;
}

Status take_missing(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape, Tensor *tensor) {
    return tensor_empty(*tensor) ? take(ctx, arena, name, dtype, shape, tensor) : OK;
}

Status take_groups(Ctx *ctx, ArenaKind arena, const char *name, Dtype dtype, Shape shape, Tensor *tensor) {
    Tensor scales;
    TRY(take(ctx, arena, name, dtype, shape, tensor));
    TRY(take(ctx, arena, "scales", BF16, shape1(shape_count(shape) / GROUP), &scales));
    tensor->scales = scales.data;
    return OK;
}
