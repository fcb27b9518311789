#include "comm/exchange.h"

#include "kernels/check.h"

static Status run(Ctx *ctx, const Exchange *e, Pass pass, const char *name, double bytes, Tensor result) {
    TRY(check_present("comm", "whole", e->whole));
    ctx->call = name;
    Call call = {.operation = OP_COMM,
                 .pass = pass,
                 .dtype = e->whole.dtype,
                 .contract = e,
                 .work = {.bytes = bytes},
                 .outputs = {{"result", result}}};
    return op_run(ctx, &call);
}

/* The least that must leave each rank. */
static double sent(const Exchange *e) {
    return (double)tensor_bytes(e->whole) * (1 - 1 / (double)e->comm->size);
}

Status exchange_gradients(Ctx *ctx, const Exchange *e) {
    bool cut = op_form(ctx, OP_COMM, e->whole.dtype) == FORM_FUSED;
    /* An all-reduce sends twice: what is to be added, and sums. */
    return run(ctx, e, PASS_BACKWARD, "gradients", sent(e) * (cut ? 1 : 2),
               cut ? comm_piece(e->comm, e->whole) : e->whole);
}

Status exchange_sums(Ctx *ctx, const Exchange *e) {
    Tensor piece = comm_piece(e->comm, e->whole);
    return run(ctx, e, PASS_UPDATE, "sums", (double)tensor_bytes(piece) * (e->comm->size + 1), piece);
}

Status exchange_weights(Ctx *ctx, const Exchange *e) {
    return run(ctx, e, PASS_FORWARD, "weights", sent(e), e->whole);
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
        TRY(e->lane == LANE_SIDE
                ? comm_scatter(e->comm, e->slot, e->whole, e->arrivals, e->lane)
                : comm_reduce_scatter(e->comm, e->whole, comm_piece(e->comm, e->whole), e->lane));
    return OK;
}
SLOT(COMM, BACKWARD, CPU, FUSED, F32, exchange_gradients_fused);

Status exchange_sums_fused(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    PRIMITIVE (ctx, "gradient sum") TRY(comm_sum(e->comm, e->whole, e->arrivals));
    return OK;
}
SLOT(COMM, UPDATE, CPU, FUSED, F32, exchange_sums_fused);

Status exchange_weights_naive(Ctx *ctx, const void *contract) {
    (void)ctx, (void)contract;
    return OK;
}
SLOT(COMM, FORWARD, CPU, NAIVE, F32, exchange_weights_naive);
SLOT(COMM, FORWARD, CPU, NAIVE, F64, exchange_weights_naive);

Status exchange_weights_fused(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    PRIMITIVE (ctx, "all-gather")
        TRY(e->lane == LANE_SIDE
                ? comm_spread(e->comm, e->slot, e->whole, e->lane)
                : comm_all_gather(e->comm, comm_piece(e->comm, e->whole), e->whole, e->lane));
    return OK;
}
SLOT(COMM, FORWARD, CPU, FUSED, F32, exchange_weights_fused);
