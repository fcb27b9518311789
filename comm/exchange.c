#include "comm/exchange.h"

#include "kernels/check.h"

static bool is_cut(const Ctx *ctx, const Exchange *e) {
    return op_form(ctx, OP_COMM, e->whole.dtype) == FORM_FUSED && !e->all;
}

/* Whether this call only starts the collective. Then no rank waits for another in it. */
static bool begins(const Exchange *e) {
    return e->comm->posts && e->lane == LANE_SIDE;
}

/* If not `checked`, the result is checked for non-finite values by its producer. */
static Status run(Ctx *ctx, const Exchange *e, Pass pass, Traffic traffic, const char *name, Work work,
                  Tensor result, bool checked) {
    TRY(check_present("comm", "whole", e->whole));
    ctx->call = name;
    Call call = {.operation = OP_COMM,
                 .pass = pass,
                 .dtype =
                     pass == PASS_UPDATE ? ctx->dtype : e->whole.dtype, // squares are fp64 in every model
                 .contract = e,
                 .inputs = {e->whole},
                 .work = work,
                 .traffic = traffic};
    if (checked) call.outputs[0] = (Output){"result", result};
    return op_run(ctx, &call);
}

/* `times`: 2 for an all-reduce, in which a rank sends its values and then the sums. */
static Work work_of(const Exchange *e, Tensor result, int times) {
    double bytes = (double)tensor_bytes(e->whole), others = 1 - 1 / (double)e->comm->size;
    return (Work){.bytes = bytes + (double)tensor_bytes(result), .sent = bytes * others * times};
}

Status exchange_gradients(Ctx *ctx, const Exchange *e) {
    bool cut = is_cut(ctx, e);
    Tensor result = cut ? comm_piece(e->comm, e->whole) : e->whole;
    Traffic traffic = !cut ? TRAFFIC_ALL_REDUCE : begins(e) ? TRAFFIC_SCATTER : TRAFFIC_REDUCE_SCATTER;
    return run(ctx, e, PASS_BACKWARD, traffic, e->all ? "losses" : "gradients",
               work_of(e, result, cut ? 1 : 2), result, !e->all);
}

Status exchange_sums(Ctx *ctx, const Exchange *e) {
    Exchange sums = *e;
    Tensor piece = comm_piece(e->comm, e->whole);
    sums.arrived = true;
    return run(ctx, &sums, PASS_BACKWARD, TRAFFIC_SUM, "sums",
               (Work){.bytes = (double)tensor_bytes(piece) * (e->comm->size + 1)}, piece, true);
}

Status exchange_weights(Ctx *ctx, const Exchange *e) {
    Traffic traffic = begins(e) ? TRAFFIC_SPREAD : TRAFFIC_ALL_GATHER;
    return run(ctx, e, PASS_FORWARD, traffic, "weights", work_of(e, e->whole, 1), e->whole, true);
}

Status exchange_squares(Ctx *ctx, const Exchange *e) {
    return run(ctx, e, PASS_UPDATE, TRAFFIC_ALL_REDUCE, "squares", work_of(e, e->whole, 2), e->whole, false);
}

/* ---- the forms ---- */

Status exchange_reduce(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    PRIMITIVE (ctx, "all-reduce", COMMUNICATION, torch_call("c10d::allreduce_"))
        TRY(comm_all_reduce(e->comm, e->whole, e->lane));
    return OK;
}
SLOT(COMM, BACKWARD, CPU, NAIVE, F32, exchange_reduce);
SLOT(COMM, BACKWARD, CPU, NAIVE, BF16, exchange_reduce);
SLOT(COMM, BACKWARD, CPU, NAIVE, F64, exchange_reduce);
SLOT(COMM, UPDATE, CPU, NAIVE, F32, exchange_reduce);
SLOT(COMM, UPDATE, CPU, NAIVE, BF16, exchange_reduce);
SLOT(COMM, UPDATE, CPU, NAIVE, F64, exchange_reduce);
SLOT(COMM, UPDATE, CPU, FUSED, F32, exchange_reduce);
SLOT(COMM, UPDATE, CPU, FUSED, BF16, exchange_reduce);

Status exchange_gradients_fused(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    if (e->all) return exchange_reduce(ctx, e);
    if (e->arrived) {
        PRIMITIVE (ctx, "gradient sum", COMMUNICATION, torch_call("c10d::_reduce_scatter_base_"))
            TRY(comm_sum(e->comm, e->whole, e->arrivals));
        return OK;
    }
    PRIMITIVE (ctx, begins(e) ? "scatter" : "reduce-scatter", COMMUNICATION,
               torch_call("c10d::_reduce_scatter_base_"))
        TRY(e->lane == LANE_SIDE
                ? comm_scatter(e->comm, e->slot, e->whole, e->arrivals, e->lane)
                : comm_reduce_scatter(e->comm, e->whole, comm_piece(e->comm, e->whole), e->lane));
    return OK;
}
SLOT(COMM, BACKWARD, CPU, FUSED, F32, exchange_gradients_fused);
SLOT(COMM, BACKWARD, CPU, FUSED, BF16, exchange_gradients_fused);

Status exchange_weights_naive(Ctx *ctx, const void *contract) {
    (void)ctx, (void)contract;
    return OK;
}
SLOT(COMM, FORWARD, CPU, NAIVE, F32, exchange_weights_naive);
SLOT(COMM, FORWARD, CPU, NAIVE, BF16, exchange_weights_naive);
SLOT(COMM, FORWARD, CPU, NAIVE, F64, exchange_weights_naive);

Status exchange_weights_fused(Ctx *ctx, const void *contract) {
    const Exchange *e = contract;
    PRIMITIVE (ctx, begins(e) ? "spread" : "all-gather", COMMUNICATION, torch_call("c10d::_allgather_base_"))
        TRY(e->lane == LANE_SIDE
                ? comm_spread(e->comm, e->slot, e->whole, e->lane)
                : comm_all_gather(e->comm, comm_piece(e->comm, e->whole), e->whole, e->lane));
    return OK;
}
SLOT(COMM, FORWARD, CPU, FUSED, F32, exchange_weights_fused);
SLOT(COMM, FORWARD, CPU, FUSED, BF16, exchange_weights_fused);
