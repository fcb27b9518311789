/* shards: a training step on several ranks with fused communication (ZeRO-1; comm/exchange.h). When the
 * backward pass has finished a group, each rank receives the sum of its part of the gradients. It updates
 * that part, and all weights are gathered during the next forward pass, which waits for each group that it
 * enters. Functions are collective unless stated otherwise. */
#pragma once

#include "comm/exchange.h"
#include "kernels/linear/linear.h"
#include "model/parameters.h"

__BEGIN_DECLS

/* Weight gradients deferred to the end of a stack's backward pass. */
typedef struct {
    int group; // the group of these gradients; 0: none
    LinearForward forward;
    LinearBackward backward;
    const char *call;
    int layer;
} LateGradient;

/* The ranks of a run, and the exchanges in flight. */
typedef struct Shards {
    Comm *comm;
    Device *device;
    Lane lane;       // lane of exchanges during the passes; LANE_MAIN with --check
    bool reduces;    // set before a pass: exchange gradients as groups become ready
    bool gathers;    // set before a pass: weights are in flight
    int entered;     // groups whose weights have arrived; reset before a pass that gathers
    int *order;      // groups with buckets, in the order of readiness; reset before a pass
    int done, sent;  // groups ready, and groups being exchanged
    int events;      // number of events of each kind, one per group
    Event **ready;   // a group's gradients are complete
    Event **arrived; // a group's weights have arrived
    Event *complete; // all exchanges of this pass are complete
    LateGradient late;
} Shards;

/* Not collective. Call it before the parameters have memory. Call shards_close before the device is
 * closed; the communicator may already be closed. */
CHECKED Status shards_open(Comm *comm, Parameters *parameters);
void shards_close(Parameters *parameters);

/* Whether a step is sharded under the current ctx->fuses. */
bool shards_cut(const Ctx *ctx, const Parameters *parameters);

/* Not collective. The parts of a range of the sums that need a separate addition after each micro-batch: the
 * whole range, or if products accumulate, only its parts outside the blocks. */
int shards_outside_blocks(const Ctx *ctx, const Parameters *parameters, ParameterRange range,
                          ParameterRange parts[PARTS_OUTSIDE_BLOCKS]);

/* Takes memory for the sums over earlier micro-batches: of those parts only, or of everything if the run
 * compares forms. */
CHECKED Status shards_take_finished(Ctx *ctx, Parameters *parameters);
/* The piece of that memory for one of those parts. */
Tensor shards_finished(const Parameters *parameters, ParameterRange part);

/* The backward pass has finished group g: adds it to the previous micro-batches, and starts its exchange
 * if this pass exchanges. Does nothing without shards. */
CHECKED Status shards_ready(Ctx *ctx, const Parameters *parameters, int g);
/* Not collective. Implements ctx->defers for a pass that exchanges gradients; the state of ctx->defers is
 * the Parameters. */
bool shards_defer(Ctx *ctx, const void *linear);
/* The forward pass enters group g: waits for the weights of groups up to g, if this pass gathers. */
CHECKED Status shards_enter(Ctx *ctx, const Parameters *parameters, int g);

/* Starts to send all ranks' weights, in the forward pass's order; shards_enter of the last group waits for
 * all. One-sided copies (shards_send) are started after shards_update, outside the graphs, and run while
 * the host prepares the next step. Otherwise the forward pass begins with the gathering, except that
 * shards_update gathers the first group while it updates the others. */
CHECKED Status shards_gather(Ctx *ctx, const Parameters *parameters);
bool shards_send(const Parameters *parameters);

/* After a pass that exchanges gradients: completes the sums of this rank's parts, and sums their squares.
 * Later work in the main lane waits for this rank's sends. `whole` describes the update of a single rank,
 * except for its state, which may be a shard. */
CHECKED Status shards_sum(Ctx *ctx, const Parameters *parameters, const Adamw *whole);

/* After shards_sum and a collective in the main lane: updates this rank's parts, including their weights. */
CHECKED Status shards_update(Ctx *ctx, const Parameters *parameters, const Adamw *whole);

/* The whole, flat (size) form of a state tensor (master, m, v): itself or, if it is sharded, the memory of
 * the gradients, which are overwritten. shards_collect gathers all ranks' parts there; shards_keep copies
 * this rank's part back and is not collective. */
Tensor shards_whole(const Parameters *parameters, Tensor state);
CHECKED Status shards_collect(Ctx *ctx, const Parameters *parameters, Tensor state, Tensor *whole);
CHECKED Status shards_keep(Ctx *ctx, const Parameters *parameters, Tensor state);

__END_DECLS
