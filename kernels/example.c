#include "kernels/example.h"

#include "base/bfloat16.h"
#include "base/memory.h"
#include "base/random.h"

enum { SEED = 1 };

Status example_values(Ctx *ctx, const ExampleCall *call, const char *name, Dtype dtype, Shape shape,
                      const void *values, Tensor *tensor) {
    TRY(take(ctx, ARENA_PARAMETERS, name, dtype, shape, tensor));
    if (!call->first || ctx->measuring) return OK;
    return ctx->device->upload(ctx->device, tensor->data, values, tensor_bytes(*tensor));
}

static void store(Dtype dtype, const float *from, void *to, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (dtype == BF16)
            ((uint16_t *)to)[i] = bfloat16_from_float(from[i]);
        else if (dtype == F64)
            ((double *)to)[i] = from[i];
        else
            ((float *)to)[i] = from[i];
}

Status example_normals(Ctx *ctx, ExampleCall *call, const char *name, Dtype dtype, Shape shape,
                       double deviation, Tensor *tensor) {
    const uint64_t stream = call->stream++;
    TRY(take(ctx, ARENA_PARAMETERS, name, dtype, shape, tensor));
    if (!call->first || ctx->measuring) return OK;
    if (deviation == 0) return ctx->device->fill(ctx->device, tensor->data, 0, tensor_bytes(*tensor));
    const int64_t count = tensor_count(*tensor);
    OWNED float *values = memory_array((size_t)count, sizeof *values);
    OWNED void *stored = memory_allocate(tensor_bytes(*tensor));
    random_normals(SEED, stream, 0, (float)deviation, values, count);
    store(dtype, values, stored, count);
    return ctx->device->upload(ctx->device, tensor->data, stored, tensor_bytes(*tensor));
}

Status example_integers(Ctx *ctx, ExampleCall *call, const char *name, Shape shape, int64_t below,
                        Tensor *tensor) {
    const int64_t count = call->first && !ctx->measuring ? shape_count(shape) : 0;
    const uint64_t stream = call->stream++;
    OWNED int32_t *values = memory_array((size_t)count + 1, sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (int32_t)random_below(SEED, stream, (uint64_t)i, (uint64_t)below);
    return example_values(ctx, call, name, I32, shape, values, tensor);
}
