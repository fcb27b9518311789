/* shards: a training step of several ranks where communication runs fused (comm/exchange.h): bucket by bucket
 * each rank gets the gradients of its part, updates it, and gives its weights to the others. What does not
 * say otherwise is collective. */
#pragma once

#include "comm/exchange.h"
#include "model/parameters.h"

__BEGIN_DECLS

/* Whether a step is cut so, in the form that ctx->fuses names now. */
bool shards_cut(const Ctx *ctx, const Parameters *parameters);

/* This rank's part of each bucket of the gradients, and the whole tail, become the sums over all ranks. */
CHECKED Status shards_reduce(Ctx *ctx, const Parameters *parameters);

/* `whole` is the update of one rank alone, but for its state, which may be this rank's shard. Updates this
 * rank's parts, of the weights too. */
CHECKED Status shards_update(Ctx *ctx, const Parameters *parameters, const Adamw *whole);

/* Every rank's weights, after an update. */
CHECKED Status shards_gather(Ctx *ctx, const Parameters *parameters);

/* Where a state tensor (master, m, v) is whole, (size) and flat: itself or, where it is sharded, the memory of
 * the gradients, which are lost. shards_collect puts there what all ranks have of it; shards_keep takes from
 * there what is this rank's, and needs no other rank. */
Tensor shards_whole(const Parameters *parameters, Tensor state);
CHECKED Status shards_collect(Ctx *ctx, const Parameters *parameters, Tensor state, Tensor *whole);
CHECKED Status shards_keep(Ctx *ctx, const Parameters *parameters, Tensor state);

__END_DECLS
