#include "comm/exchange.h"

#include "kernels/check.h"

static Status run(Ctx *ctx, const Exchange *e, Pass pass, const char *name, Tensor result) {
    double bytes = (double)tensor_bytes(e->whole), others = 1 - 1 / (double)e->comm->size;
    TRY(check_present("comm", "whole", e->whole));
    ctx->call = name;
    /* The least that must leave each rank, in the all-reduce twice: a sum and its result. */
    bool twice = pass == PASS_BACKWARD && op_form(ctx, OP_COMM, e->whole.dtype) == FORM_NAIVE;
    Call call = {.operation = OP_COMM,
                 .pass = pass,
                 .dtype = e->whole.dtype,
                 .contract = e,
                 .work = {.bytes = bytes * others * (twice ? 2 : 1)},
                 .outputs = {{"result", result}}};
    return op_run(ctx, &call);
}

Status exchange_gradients(Ctx *ctx, const Exchange *e) {
    bool cut = op_form(ctx, OP_COMM, e->whole.dtype) == FORM_FUSED;
    return run(ctx, e, PASS_BACKWARD, "gradients", cut ? comm_piece(e->comm, e->whole) : e->whole);
}

Status exchange_weights(Ctx *ctx, const Exchange *e) {
    return run(ctx, e, PASS_FORWARD, "weights", e->whole);
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

Status exchange_weights_fused(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    PRIMITIVE (ctx, "all-gather")
        TRY(comm_all_gather(e->comm, comm_piece(e->comm, e->whole), e->whole, e->lane));
    return OK;
}
SLOT(COMM, FORWARD, CPU, FUSED, F32, exchange_weights_fused);
