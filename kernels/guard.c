#include "kernels/guard.h"

#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Status guard_plant(Ctx *ctx, const Arena *arena, const ArenaEntry *entry) {
    return ctx->device->fill(ctx->device, arena->base + entry->offset + entry->bytes, ARENA_CANARY_BYTE,
                             ARENA_CANARY_BYTES);
}

static Status check_canaries(Ctx *ctx) {
    unsigned char whole[ARENA_CANARY_BYTES], found[ARENA_CANARY_BYTES];
    memset(whole, ARENA_CANARY_BYTE, sizeof whole);
    for (int kind = 0; kind < ARENA_COUNT; kind++) {
        const Arena *arena = &ctx->arenas[kind];
        if (!arena->canaries) continue;
        for (int i = 0; i < arena->count; i++) {
            const ArenaEntry *entry = &arena->entries[i];
            TRY(ctx->device->download(ctx->device, found, arena->base + entry->offset + entry->bytes,
                                      sizeof found));
            if (memcmp(found, whole, sizeof whole) != 0)
                return fail(ERROR_INTERNAL, "--check: something wrote past the end of tensor %s (%s)",
                            arena_name(entry).text, arena->name);
        }
    }
    return OK;
}

Status guard_download(Ctx *ctx, Tensor t, void **bytes) {
    size_t row = (size_t)tensor_width(t) * dtype_size(t.dtype);
    *bytes = memory_allocate(tensor_bytes(t));
    Status status = OK;
    if (tensor_dense(t)) {
        status = ctx->device->download(ctx->device, *bytes, t.data, tensor_bytes(t));
    } else {
        for (int64_t i = 0; i < tensor_rows(t) && !status; i++)
            status =
                ctx->device->download(ctx->device, (char *)*bytes + (size_t)i * row,
                                      (char *)t.data + (size_t)(i * t.stride) * dtype_size(t.dtype), row);
    }
    if (status) memory_free(*bytes);
    return status;
}

static bool finite_at(const void *bytes, Dtype dtype, int64_t i) {
    switch (dtype) {
    case F64: return isfinite(((const double *)bytes)[i]);
    case F32: return isfinite(((const float *)bytes)[i]);
    case E4M3: return (((const uint8_t *)bytes)[i] & 0x7F) != 0x7F;
    case BF16: return (((const uint16_t *)bytes)[i] & 0x7F80) != 0x7F80;
    case I32:
    case U8:
    case I8:
    case I4:
    case DTYPE_COUNT: return true;
    }
    return true;
}

static Status check_output(Ctx *ctx, const Output *output) {
    void *bytes;
    TRY(guard_download(ctx, output->tensor, &bytes));
    int64_t count = tensor_count(output->tensor), i = 0;
    while (i < count && finite_at(bytes, output->tensor.dtype, i)) i++;
    memory_free(bytes);
    if (i == count) return OK;
    return fail(ERROR_NONFINITE,
                "--check: output %s of %s has a value that is not finite at element %" PRId64, output->name,
                ctx->call ? ctx->call : operation_name(ctx->operation), i);
}

Status guard_check(Ctx *ctx, const Call *call) {
    TRY(ctx->device->synchronize(ctx->device));
    TRY(check_canaries(ctx));
    for (int i = 0; i < CALL_OUTPUTS && !tensor_empty(call->outputs[i].tensor); i++)
        TRY(check_output(ctx, &call->outputs[i]));
    return OK;
}

/* FNV-1a, 64 bits. */
static uint64_t hash_bytes(const unsigned char *bytes, size_t count) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

Status guard_hash(Ctx *ctx, const Call *call) {
    for (int i = 0; i < CALL_OUTPUTS && !tensor_empty(call->outputs[i].tensor); i++) {
        const Output *output = &call->outputs[i];
        void *bytes;
        TRY(guard_download(ctx, output->tensor, &bytes));
        uint64_t hash = hash_bytes(bytes, tensor_bytes(output->tensor));
        memory_free(bytes);
        if (fprintf(ctx->observer, "%" PRId64 "\t%d\t%s\t%s\t%s\t%s\t%016" PRIx64 "\n", ctx->step, ctx->layer,
                    ctx->call ? ctx->call : "-", operation_name(call->operation), pass_name(call->pass),
                    output->name, hash) < 0)
            return fail(ERROR_FILE, "--hash-trace: cannot write; is the disk full?");
    }
    return OK;
}
