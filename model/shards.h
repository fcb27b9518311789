/* shards: a training step of several ranks where communication runs fused (comm/exchange.h). Group by
 * group, as soon as the backward pass is through with it, each rank gets the sums of its part of the
 * gradients; it updates that part; and the weights of all go to all under the next forward pass, which
 * waits for the group that it enters. What does not say otherwise is collective. */
#pragma once

#include "comm/exchange.h"
#include "kernels/linear/linear.h"
#include "model/parameters.h"

__BEGIN_DECLS

/* Gradients of weights that a backward pass makes behind everything else of its stack. */
typedef struct {
    int group; // that they are of; 0: nothing waits
    LinearForward forward;
    LinearBackward backward;
    const char *call;
    int layer;
} LateGradient;

/* The ranks of a run, and what is under way between them. */
typedef struct Shards {
    Comm *comm;
    Device *device;
    Lane lane;      // where exchanges run beside the passes; LANE_MAIN where each is looked at (--check)
    bool reduces;   // set before a pass: gradients are exchanged as its groups are done
    bool gathers;   // set before a pass: the weights are still on their way
    int entered;    // groups whose weights have come; reset before a pass that gathers
    int *order;     // the groups with buckets as their gradients became ready; reset before a pass
    int done, sent; // so many of them are ready, and so many are being exchanged
    int events;     // of each kind, one a group
    Event **ready;  // a group's gradients are there
    Event **there;  // its weights
    Event *settled; // everything that is exchanged in this pass
    LateGradient late;
} Shards;

/* Not collective. The parameters must not have memory yet. shards_close before the device is closed; the
 * communicator may be gone by then. */
CHECKED Status shards_open(Comm *comm, Parameters *parameters);
void shards_close(Parameters *parameters);

/* Whether a step is cut so, in the form that ctx->fuses names now. */
bool shards_cut(const Ctx *ctx, const Parameters *parameters);

/* Of a range of the sums what a micro-batch must not add to the ones before it by itself, in so many parts:
 * all, or where products add, what lies outside the blocks. Not collective. */
int shards_apart(const Ctx *ctx, const Parameters *parameters, ParameterRange range,
                 ParameterRange parts[PARTS_OUTSIDE_BLOCKS]);

/* The backward pass is through with group g. Adds it to the finished micro-batches, and exchanges it, if this
 * pass does; nothing without shards. */
CHECKED Status shards_ready(Ctx *ctx, const Parameters *parameters, int g);
/* For ctx->puts_off, of a pass that exchanges gradients; the putter is the Parameters. Not collective. */
bool shards_put_off(Ctx *ctx, const void *linear);
/* The forward pass enters group g: waits for its weights and those before it, if this pass does. */
CHECKED Status shards_enter(Ctx *ctx, const Parameters *parameters, int g);

/* Sends every rank's weights on their way, in the forward pass's order; shards_enter of the last group waits
 * for all. Where they are posted (shards_send) this stands behind shards_update, outside the graphs, and the
 * copies run while the host makes the next step ready; elsewhere the forward pass begins with it, and the
 * first group's are gathered by shards_update, while it updates the others'. */
CHECKED Status shards_gather(Ctx *ctx, const Parameters *parameters);
bool shards_send(const Parameters *parameters);

/* Behind a pass that exchanges its gradients: this rank's parts become the sums, and their squares are added
 * up. What follows in the main lane waits for all that this rank has sent. `whole` is the update of one rank
 * alone, but for its state, which may be this rank's shard. */
CHECKED Status shards_sum(Ctx *ctx, const Parameters *parameters, const Adamw *whole);

/* Behind shards_sum and, in the main lane, a collective: updates this rank's parts, of the weights too. */
CHECKED Status shards_update(Ctx *ctx, const Parameters *parameters, const Adamw *whole);

/* Where a state tensor (master, m, v) is whole, (size) and flat: itself or, where it is sharded, the
 * memory of the gradients, which are lost. shards_collect puts there what all ranks have of it;
 * shards_keep takes from there what is this rank's, and needs no other rank. */
Tensor shards_whole(const Parameters *parameters, Tensor state);
CHECKED Status shards_collect(Ctx *ctx, const Parameters *parameters, Tensor state, Tensor *whole);
CHECKED Status shards_keep(Ctx *ctx, const Parameters *parameters, Tensor state);

__END_DECLS
