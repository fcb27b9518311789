#include "kernels/pool/first_rows.h"

#include <assert.h>

Status first_rows(Ctx *ctx, const char *name, ArenaKind saved, Tensor *x, PoolForward *p) {
    Shape shape = shape3(x->shape.d[0], 1, tensor_width(*x));
    *p = (PoolForward){.kind = POOL_FIRST, .x = *x};
    ctx->call = name;
    TRY(pool_forward(ctx, p, saved));
    *x = tensor_reshape(p->y, shape);
    return OK;
}

Status first_rows_back(Ctx *ctx, const char *name, const PoolForward *forward, Tensor dy, Tensor dx) {
    PoolBackward p = {
        .forward = forward, .dy = tensor_reshape(dy, shape2(dy.shape.d[0], tensor_width(dy))), .dx = dx};
    ctx->call = name;
    return pool_backward(ctx, &p);
}

Status first_rows_map(Ctx *ctx, const AttentionForward *a, Tensor map) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    const uint32_t fuses = ctx->fuses;
    AttentionForward first = {
        .q = a->q, .k = a->k, .v = a->v, .heads = a->heads, .kv_heads = a->kv_heads, .scale = a->scale};
    assert(!ctx->training && tensor_empty(a->cache_k));
    first.q.stride *= a->q.shape.d[1];
    first.q.shape.d[1] = 1;
    ctx->fuses = 0;
    ctx->training = true; // in inference no form keeps them
    ctx->call = "attention map";
    Status status = attention_forward(ctx, &first, ARENA_SCRATCH);
    ctx->training = false;
    ctx->fuses = fuses;
    TRY(status);
    const Tensor p = first.probabilities; // (B, heads, 1, S)
    const Shape row = shape1(tensor_width(p));
    for (int64_t i = 0; i < tensor_rows(p) && !ctx->measuring; i++) // which may lie apart
        TRY(ctx->device->copy(ctx->device, tensor_elements(map, i * row.d[0], row).data,
                              tensor_elements(p, i * p.stride, row).data,
                              (size_t)row.d[0] * dtype_size(p.dtype)));
    arena_release(scratch, mark);
    return OK;
}
