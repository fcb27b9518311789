/* exchange: what the ranks of a run exchange in each step, as the operation comm.
 *
 *     form    sums of gradients                           weights
 *     naive   all-reduce: every rank has all of them      every rank has updated all of them: nothing
 *     fused   reduce-scatter: each rank has its part      all-gather: of the parts that each has updated
 *
 * The fused form is ZeRO's first stage (Rajbhandari, Rasley, Ruwase, He 2020, section 5.1): a rank keeps the
 * optimizer's state of its part alone. */
#pragma once

#include "comm/comm.h"
#include "kernels/op.h"

__BEGIN_DECLS

typedef struct {
    Comm *comm;
    Lane lane;
    Tensor whole; // (N) dense; in the fused form, and of squares, N is a multiple of the ranks
    bool all;     // of sums: every rank gets all of them in the fused form, too
} Exchange;

/* whole, or in the fused form comm_piece(whole), = the sum of all ranks' whole. */
CHECKED Status exchange_gradients(Ctx *ctx, const Exchange *e);

/* In the fused form whole = all ranks' comm_piece(whole). */
CHECKED Status exchange_weights(Ctx *ctx, const Exchange *e);

/* The same of the optimizer's sums of squares, in either form. */
CHECKED Status exchange_squares(Ctx *ctx, const Exchange *e);

/* For the slots. */
CHECKED Status exchange_gradients_naive(Ctx *ctx, const void *contract);
CHECKED Status exchange_gradients_fused(Ctx *ctx, const void *contract);
CHECKED Status exchange_weights_naive(Ctx *ctx, const void *contract);
CHECKED Status exchange_gather(Ctx *ctx, const void *contract);

__END_DECLS
