#include "kernels/attention/map.h"

#include <assert.h>

Status attention_map(Ctx *ctx, const AttentionForward *a, Tensor map) {
    Arena *scratch = &ctx->arenas[ARENA_SCRATCH];
    ArenaMark mark = arena_mark(scratch);
    const uint32_t fuses = ctx->fuses;
    AttentionForward first = {
        .q = a->q, .k = a->k, .v = a->v, .heads = a->heads, .kv_heads = a->kv_heads, .scale = a->scale};
    assert(!ctx->training && tensor_empty(a->cache_k));
    first.q.stride *= a->q.shape.d[1];
    first.q.shape.d[1] = 1;
    ctx->fuses = 0;
    ctx->training = true; // the naive form keeps probabilities only in training
    ctx->call = "attention map";
    Status status = attention_forward(ctx, &first, ARENA_SCRATCH);
    ctx->training = false;
    ctx->fuses = fuses;
    TRY(status);
    const Tensor p = first.probabilities; // (B, heads, 1, S)
    const Shape row = shape1(tensor_width(p));
    for (int64_t i = 0; i < tensor_rows(p) && !ctx->measuring; i++) // a view's rows may have gaps
        TRY(ctx->device->copy(ctx->device, tensor_elements(map, i * row.d[0], row).data,
                              tensor_elements(p, i * p.stride, row).data,
                              (size_t)row.d[0] * dtype_size(p.dtype)));
    arena_release(scratch, mark);
    return OK;
}
