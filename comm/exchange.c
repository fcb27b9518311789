#include "comm/exchange.h"

#include "kernels/check.h"

static bool is_cut(const Ctx *ctx, const Exchange *e) {
    return op_form(ctx, OP_COMM, e->whole.dtype) == FORM_FUSED && !e->all;
}

/* An all-reduce is a sum and its result: they leave a rank one after the other. What is not `checked` was
 * where it was made. */
static Status run(Ctx *ctx, const Exchange *e, Pass pass, const char *name, Tensor result, bool checked) {
    const double bytes = (double)tensor_bytes(e->whole), others = 1 - 1 / (double)e->comm->size;
    const bool twice = pass == PASS_BACKWARD && !is_cut(ctx, e);
    TRY(check_present("comm", "whole", e->whole));
    ctx->call = name;
    Call call = {
        .operation = OP_COMM,
        .pass = pass,
        .dtype = pass == PASS_UPDATE ? ctx->dtype : e->whole.dtype, // squares are fp64 in every model
        .contract = e,
        .work = {.bytes = bytes + (double)tensor_bytes(result), .sent = bytes * others * (twice ? 2 : 1)}};
    if (checked) call.outputs[0] = (Output){"result", result};
    return op_run(ctx, &call);
}

Status exchange_gradients(Ctx *ctx, const Exchange *e) {
    Tensor result = is_cut(ctx, e) ? comm_piece(e->comm, e->whole) : e->whole;
    return run(ctx, e, PASS_BACKWARD, e->all ? "losses" : "gradients", result, !e->all);
}

Status exchange_weights(Ctx *ctx, const Exchange *e) {
    return run(ctx, e, PASS_FORWARD, "weights", e->whole, true);
}

Status exchange_squares(Ctx *ctx, const Exchange *e) {
    return run(ctx, e, PASS_UPDATE, "squares", e->whole, false);
}

/* ---- the forms ---- */

Status exchange_gradients_naive(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    PRIMITIVE (ctx, "all-reduce") TRY(comm_all_reduce(e->comm, e->whole, e->lane));
    return OK;
}
SLOT(COMM, BACKWARD, CPU, NAIVE, F32, exchange_gradients_naive);
SLOT(COMM, BACKWARD, CPU, NAIVE, F64, exchange_gradients_naive);

Status exchange_gradients_fused(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    if (e->all) return exchange_gradients_naive(ctx, e);
    PRIMITIVE (ctx, "reduce-scatter")
        TRY(comm_reduce_scatter(e->comm, e->whole, comm_piece(e->comm, e->whole), e->lane));
    return OK;
}
SLOT(COMM, BACKWARD, CPU, FUSED, F32, exchange_gradients_fused);

Status exchange_weights_naive(Ctx *ctx, const void *contract) {
    (void)ctx, (void)contract;
    return OK;
}
SLOT(COMM, FORWARD, CPU, NAIVE, F32, exchange_weights_naive);
SLOT(COMM, FORWARD, CPU, NAIVE, F64, exchange_weights_naive);

Status exchange_gather(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    PRIMITIVE (ctx, "all-gather")
        TRY(comm_all_gather(e->comm, comm_piece(e->comm, e->whole), e->whole, e->lane));
    return OK;
}
SLOT(COMM, FORWARD, CPU, FUSED, F32, exchange_gather);
SLOT(COMM, UPDATE, CPU, NAIVE, F32, exchange_gather);
SLOT(COMM, UPDATE, CPU, NAIVE, F64, exchange_gather);
SLOT(COMM, UPDATE, CPU, FUSED, F32, exchange_gather);
