#include "kernels/pool/pool.h"

#include "kernels/check.h"

static Status take_outputs(Ctx *ctx, PoolForward *p, ArenaKind saved) {
    TRY(check_present("pool", "x", p->x));
    TRY(check_that("pool", p->x.shape.rank == 3 && p->x.shape.d[1] > 0, "x is of sequences of rows"));
    return take_missing(ctx, saved, ctx->call, p->x.dtype, shape2(p->x.shape.d[0], tensor_width(p->x)),
                        &p->y);
}

static Status check_forward(const PoolForward *p) {
    TRY(check_present("pool", "x", p->x));
    TRY(check_dense("pool", "x", p->x, p->x.dtype, tensor_rows(p->x), tensor_width(p->x)));
    return check_dense("pool", "y", p->y, p->x.dtype, p->x.shape.d[0], tensor_width(p->x));
}

/* Elements of the rows that are read. */
static double elements(const PoolForward *p) {
    return (double)tensor_count(p->kind == POOL_FIRST ? p->y : p->x);
}

Status pool_forward(Ctx *ctx, PoolForward *p, ArenaKind saved) {
    TRY(take_outputs(ctx, p, saved));
    TRY(check_forward(p));
    if (tensor_count(p->y) == 0) return OK;
    double size = (double)dtype_size(p->x.dtype);
    Call call = {.operation = OP_POOL,
                 .pass = PASS_FORWARD,
                 .dtype = p->x.dtype,
                 .contract = p,
                 .inputs = {p->x},
                 .work = {.flops = p->kind == POOL_MEAN ? elements(p) : 0,
                          .bytes = size * (elements(p) + (double)tensor_count(p->y))},
                 .outputs = {{"y", p->y}}};
    return op_run(ctx, &call);
}

Status pool_backward(Ctx *ctx, const PoolBackward *p) {
    const PoolForward *f = p->forward;
    TRY(check_forward(f));
    TRY(check_dense("pool", "dy", p->dy, f->x.dtype, tensor_rows(f->y), tensor_width(f->y)));
    TRY(check_dense("pool", "dx", p->dx, f->x.dtype, tensor_rows(f->x), tensor_width(f->x)));
    if (tensor_count(f->y) == 0) return OK;
    Call call = {.operation = OP_POOL,
                 .pass = PASS_BACKWARD,
                 .dtype = f->x.dtype,
                 .contract = p,
                 .inputs = {p->dy, f->x},
                 .work = {.flops = f->kind == POOL_MEAN ? (double)tensor_count(f->y) : 0,
                          .bytes = (double)(tensor_bytes(p->dy) + tensor_bytes(p->dx))},
                 .outputs = {{"dx", p->dx}}};
    return op_run(ctx, &call);
}
