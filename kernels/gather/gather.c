#include "kernels/gather/gather.h"

#include "kernels/check.h"

static Status take_outputs(Ctx *ctx, GatherForward *g, ArenaKind saved) {
    TRY(check_present("gather", "x", g->x));
    TRY(check_present("gather", "rows", g->rows));
    Shape shape = shape2(tensor_count(g->rows), tensor_width(g->x));
    return take_missing(ctx, saved, ctx->call, g->x.dtype, shape, &g->y);
}

static Status check_forward(const GatherForward *g) {
    TRY(check_present("gather", "x", g->x));
    TRY(check_present("gather", "rows", g->rows));
    int64_t rows = tensor_count(g->rows), width = tensor_width(g->x);
    TRY(check_dense("gather", "x", g->x, g->x.dtype, tensor_rows(g->x), width));
    TRY(check_dense("gather", "rows", g->rows, I32, 1, rows));
    return check_dense("gather", "y", g->y, g->x.dtype, rows, width);
}

Status gather_forward(Ctx *ctx, GatherForward *g, ArenaKind saved) {
    TRY(take_outputs(ctx, g, saved));
    TRY(check_forward(g));
    if (tensor_rows(g->y) == 0) return OK;
    Call call = {.operation = OP_GATHER,
                 .pass = PASS_FORWARD,
                 .dtype = g->x.dtype,
                 .contract = g,
                 .inputs = {g->x, g->rows},
                 .work = {.bytes = (double)(tensor_bytes(g->rows) + 2 * tensor_bytes(g->y))},
                 .outputs = {{"y", g->y}}};
    return op_run(ctx, &call);
}

Status gather_backward(Ctx *ctx, const GatherBackward *g) {
    const GatherForward *f = g->forward;
    TRY(check_forward(f));
    int64_t width = tensor_width(f->x);
    TRY(check_dense("gather", "dy", g->dy, f->x.dtype, tensor_count(f->rows), width));
    TRY(check_dense("gather", "dx", g->dx, f->x.dtype, tensor_rows(f->x), width));
    if (tensor_rows(f->x) == 0) return OK;
    Call call = {
        .operation = OP_GATHER,
        .pass = PASS_BACKWARD,
        .dtype = f->x.dtype,
        .contract = g,
        .inputs = {g->dy, f->x, f->rows},
        .work = {.bytes = (double)(tensor_bytes(f->rows) + tensor_bytes(g->dy) + tensor_bytes(g->dx))},
        .outputs = {{"dx", g->dx}}};
    return op_run(ctx, &call);
}
