/* exchange: the collectives of a training step, as the operation comm.
 *
 *     form    gradients                                   weights
 *     naive   all-reduce: every rank gets all sums        nothing: every rank updates all weights
 *     fused   reduce-scatter: each rank gets its part     all-gather of the parts that the ranks have updated
 *
 * In the side lane, an engine that posts (comm.h) only starts both collectives. comm_arrive waits for the
 * data, and exchange_sums adds the gradients. In the main lane the collectives are complete.
 *
 * The fused form is ZeRO's first stage (Rajbhandari, Rasley, Ruwase, He 2020, section 5.1): a rank keeps the
 * optimizer state of its own part only. */
#pragma once

#include "comm/comm.h"
#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Comm *comm;
    Lane lane;
    int slot;        // slot of comm_scatter and comm_spread, in the side lane
    Tensor whole;    // (N) dense; in the fused form the number of ranks divides N
    Tensor arrivals; // (ranks - 1, N / ranks) received gradients: in the fused form, if comm->posts
    bool all;        // every rank gets all sums, in the fused form too
    bool arrived;    // the gradients have arrived and are summed; set by exchange_sums
} Exchange;

/* The sum of all ranks' whole; in the fused form only comm_piece(whole) gets it. */
CHECKED Status exchange_gradients(Ctx *ctx, const Exchange *e);

/* The second half of exchange_gradients in the fused form and the side lane: adds the gradients that have
 * arrived, in the main lane. */
CHECKED Status exchange_sums(Ctx *ctx, const Exchange *e);

/* In the fused form: whole = all ranks' comm_piece(whole). */
CHECKED Status exchange_weights(Ctx *ctx, const Exchange *e);

/* whole = the sum of all ranks' whole, in either form. For the optimizer's sums of squares. */
CHECKED Status exchange_squares(Ctx *ctx, const Exchange *e);

/* The forms, for the dispatch tables of both backends. */
CHECKED Status exchange_reduce(Ctx *ctx, const void *contract);
CHECKED Status exchange_gradients_fused(Ctx *ctx, const void *contract);
CHECKED Status exchange_weights_naive(Ctx *ctx, const void *contract);
CHECKED Status exchange_weights_fused(Ctx *ctx, const void *contract);

__END_DECLS
