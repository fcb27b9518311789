#include "model/shards.h"

bool shards_cut(const Ctx *ctx, const Parameters *p) {
    return p->ranks > 1 && op_form(ctx, OP_COMM, ctx->dtype) == FORM_FUSED;
}

/* Elements [first, first + count) of flat memory. */
static Tensor range(Tensor flat, int64_t first, int64_t count) {
    void *data = (void *)((uintptr_t)flat.data + (size_t)first * dtype_size(flat.dtype));
    return tensor_view(data, flat.dtype, shape1(count));
}

/* Where a state tensor holds what this rank has of bucket g. */
static int64_t state_first(const Parameters *p, int g) {
    return p->sharded ? p->buckets[g].first / p->ranks : parameters_part(p, g).first;
}

Status shards_reduce(Ctx *ctx, const Parameters *p) {
    ctx->layer = -1;
    for (int g = p->group_count - 1; g >= 0; g--) {
        ParameterRange bucket = p->buckets[g];
        Exchange e = {.comm = p->comm, .whole = range(p->sums, bucket.first, bucket.count)};
        if (bucket.count > 0) TRY(exchange_gradients(ctx, &e));
    }
    return ctx->measuring
               ? OK
               : comm_all_reduce(p->comm, range(p->sums, p->padded, parameters_tail(p)), LANE_MAIN);
}

/* The update of this rank's part of bucket g. */
static Adamw part_of(const Parameters *p, const Adamw *whole, int g) {
    ParameterRange part = parameters_part(p, g);
    int64_t first = state_first(p, g);
    Adamw a = *whole;
    a.first = part.first;
    a.weight = range(whole->weight, part.first, part.count);
    a.gradient = range(whole->gradient, part.first, part.count);
    if (!tensor_empty(a.master)) a.master = range(whole->master, first, part.count);
    a.m = range(whole->m, first, part.count);
    a.v = range(whole->v, first, part.count);
    a.squares = range(whole->squares, part.first / ADAMW_BLOCK, adamw_blocks(part.first, part.count));
    return a;
}

static Status update_parts(Ctx *ctx, const Parameters *p, const Adamw *whole, unsigned steps) {
    for (int g = 0; g < p->group_count; g++) {
        Adamw a = part_of(p, whole, g);
        a.steps = steps;
        ctx->call = "adamw";
        if (tensor_count(a.weight) > 0) TRY(adamw_update(ctx, &a));
    }
    return OK;
}

/* Blocks are summed in their order in the flat space, whoever has them: the norm has one rank's bits. */
static Status gather_squares(Ctx *ctx, const Parameters *p, Tensor squares) {
    for (int g = 0; g < p->group_count && !ctx->measuring; g++) {
        Tensor all = range(squares, p->buckets[g].first / ADAMW_BLOCK, p->buckets[g].count / ADAMW_BLOCK);
        if (tensor_count(all) > 0) TRY(comm_all_gather(p->comm, comm_piece(p->comm, all), all, LANE_MAIN));
    }
    return OK;
}

Status shards_update(Ctx *ctx, const Parameters *p, const Adamw *whole) {
    ctx->layer = -1;
    TRY(update_parts(ctx, p, whole, ADAMW_SUM));
    TRY(gather_squares(ctx, p, whole->squares));
    Adamw clip = *whole;
    clip.steps = ADAMW_CLIP;
    clip.squares = range(whole->squares, 0, adamw_blocks(0, p->size));
    ctx->call = "adamw";
    TRY(adamw_update(ctx, &clip));
    return update_parts(ctx, p, whole, ADAMW_APPLY);
}

Status shards_gather(Ctx *ctx, const Parameters *p) {
    ctx->layer = -1;
    for (int g = 0; g < p->group_count; g++) {
        ParameterRange bucket = p->buckets[g];
        Exchange e = {.comm = p->comm, .whole = range(p->weight, bucket.first, bucket.count)};
        if (bucket.count > 0) TRY(exchange_weights(ctx, &e));
    }
    return OK;
}

/* ---- the state as a whole ---- */

/* This rank's part of bucket g of the whole, with what lies behind the flat space. */
static Tensor piece(const Parameters *p, Tensor whole, int g) {
    int64_t count = p->buckets[g].count / p->ranks;
    return range(whole, p->buckets[g].first + p->rank * count, count);
}

Tensor shards_whole(const Parameters *p, Tensor state) {
    return p->sharded ? p->gradient : state;
}

Status shards_collect(Ctx *ctx, const Parameters *p, Tensor state, Tensor *whole) {
    *whole = shards_whole(p, state);
    for (int g = 0; g < p->group_count && p->sharded; g++) {
        Tensor all = range(*whole, p->buckets[g].first, p->buckets[g].count), own = piece(p, *whole, g);
        if (tensor_count(all) == 0) continue;
        TRY(ctx->device->copy(ctx->device, own.data, range(state, state_first(p, g), 1).data,
                              tensor_bytes(own)));
        TRY(comm_all_gather(p->comm, own, all, LANE_MAIN));
    }
    return OK;
}

Status shards_keep(Ctx *ctx, const Parameters *p, Tensor state) {
    for (int g = 0; g < p->group_count && p->sharded; g++) {
        Tensor own = piece(p, p->gradient, g);
        if (tensor_count(own) > 0)
            TRY(ctx->device->copy(ctx->device, range(state, state_first(p, g), 1).data, own.data,
                                  tensor_bytes(own)));
    }
    return OK;
}
