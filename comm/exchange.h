/* exchange: what the ranks of a run exchange in each step, as the operation comm.
 *
 *     form    sums of gradients                           weights
 *     naive   all-reduce: every rank has all of them      every rank has updated all of them: nothing
 *     fused   reduce-scatter: each rank has its part      all-gather: of the parts that each has updated
 *
 * In the side lane an engine that posts (comm.h) only begins both: comm_arrive waits for them, and
 * exchange_sums makes the sums. In the main lane they are whole.
 *
 * The fused form is ZeRO's first stage (Rajbhandari, Rasley, Ruwase, He 2020, section 5.1): a rank keeps
 * the optimizer's state of its part alone. */
#pragma once

#include "comm/comm.h"
#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Comm *comm;
    Lane lane;
    int slot;        // in the side lane: comm_scatter's, comm_spread's
    Tensor whole;    // (N) dense; of what is cut N is a multiple of the ranks
    Tensor arrivals; // (ranks - 1, N / ranks) of gradients in the fused form, where comm->posts
    bool all;        // of sums: every rank gets all of them in the fused form, too
    bool came;       // what was begun has come: exchange_sums
} Exchange;

/* whole, or in the fused form comm_piece(whole), = the sum of all ranks' whole. */
CHECKED Status exchange_gradients(Ctx *ctx, const Exchange *e);

/* The same in the main lane, when what the fused form has begun in the side lane has come. */
CHECKED Status exchange_sums(Ctx *ctx, const Exchange *e);

/* In the fused form whole = all ranks' comm_piece(whole). */
CHECKED Status exchange_weights(Ctx *ctx, const Exchange *e);

/* whole = the sum of all ranks' whole, in either form: of the optimizer's sums of squares. */
CHECKED Status exchange_squares(Ctx *ctx, const Exchange *e);

/* For the slots. */
CHECKED Status exchange_reduce(Ctx *ctx, const void *contract);
CHECKED Status exchange_gradients_fused(Ctx *ctx, const void *contract);
CHECKED Status exchange_weights_naive(Ctx *ctx, const void *contract);
CHECKED Status exchange_weights_fused(Ctx *ctx, const void *contract);

__END_DECLS
