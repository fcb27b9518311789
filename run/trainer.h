/* trainer: a model, its memory and its steps. Knows batches of tokens, not where they come from. */
#pragma once

#include "comm/exchange.h"
#include "data/batch.h"
#include "run/generate.h"
#include "run/replay.h"
#include "run/runner.h"

/* A micro-batch's two passes as graphs, which are made and replayed together. */
typedef struct {
    Replay forward, backward; // of one rank the first holds both
    ArenaMark between;        // what the forward pass has taken of the saved activations
} Passes;

typedef struct {
    Ctx ctx;
    Transformer model;
    Generator generator; // for samples
    bool samples;        // memory for samples is wanted
    bool counts;         // conversations: a batch's rows, widths and targets vary (data/batch.h)
    int64_t batch, seq;  // of the largest micro-batch
    int64_t source_seq;  // the same of its source; 0 without an encoder
    int64_t accum;       // micro-batches of a step, of this rank
    Comm *comm;          // NULL: one rank. All ranks take the same steps, each with its own micro-batches
    bool stop;           // this rank wants to stop after this step
    bool settles;        // on all ranks or none: each step ends with all weights on all ranks
    bool apart;          // on all ranks or none: exchanges do not run beside the passes
    double smoothing;    // of the labels
    double dropout;      // rate; 0: nothing is dropped
    double depth;        // rate of stochastic depth, of the last layer
    uint64_t seed;       // of what is dropped
    UpdateOptions update;
    DeviceBatch memory; // for the largest micro-batch
    DeviceBatch micro;  // the parts of it that the micro-batch at hand fills
    Tensor draw;        // (1) i32: number of the micro-batch, where something is dropped
    int32_t *compact;   // host memory: targets, then rows, of a masked-token batch
    Work work;          // of the last step, or of the largest, as measured with the memory
    Work micro_work;    // of the last micro-batch; a graph's is that of the pass it was made from
    Work update_work;
    int64_t tokens;        // of the last step: that are there, of both sides, padding not counted
    bool stale;            // this rank's weights lack what the others have updated
    bool gathers, reduces; // the micro-batch at hand gets them; exchanges its gradients, as the last one
    Passes passes[2][2];   // that gathers, that reduces
    Replay cast;           // the weights in 8 bits, before the first micro-batch
    Replay exchanged;      // what ranks exchange behind them
    Replay updated;        // the update
} Trainer;

/* What a step reports. */
typedef struct {
    double loss;     // mean over the step's tokens, before the update
    double norm;     // global gradient norm before clipping
    bool skipped;    // loss or norm was not finite: nothing was updated
    bool stop;       // some rank wants to stop
    int64_t clipped; // casts to 8 bits that met numbers beyond their scale
    int blamed;      // the first rank whose own loss was not finite; -1: none
} StepResult;

/* What validation reports. */
typedef struct {
    double loss; // mean over the targets, not smoothed
    /* Of a class task: the share of targets that are the likeliest class, or of the five likeliest; else
     * NAN. */
    double top1, top5;
} Validation;

/* Fetches micro-batch `index` of this rank's of the step, of at most the trainer's sizes; seq 0: of just
 * these. Its memory must stay valid until the step after has begun. In a masked-token batch at most
 * MASKED_SHARE of a row's positions, rounded up, have a target. */
typedef Status (*FetchBatch)(void *source, int64_t index, Batch *batch);

/* One of the ranks of `comm`, unless that is NULL; it stays the caller's. Then set batch, seq, ...,
 * trainer_measure and trainer_allocate. */
CHECKED Status trainer_open(Trainer *trainer, const Session *session, Comm *comm);
void trainer_close(Trainer *trainer);

/* Measures one training step, one validation batch and one sample in the form that ctx.fuses names now,
 * without allocating: the arenas' peaks afterwards are the maximum over all calls. `bytes`, unless NULL, gets
 * what this form needs alone. */
CHECKED Status trainer_measure(Trainer *trainer, size_t *bytes);

/* Allocates at the measured peaks and takes what lasts: weights are undefined until initialized or loaded. */
CHECKED Status trainer_allocate(Trainer *trainer);

/* Steps are captured anew. */
void trainer_drop_graphs(Trainer *trainer);

/* Collective: before the communicator is closed. */
CHECKED Status trainer_unshare(Trainer *trainer);

/* One optimizer step over `accum` micro-batches of every rank: its loss is the mean over all their targets
 * that count. Micro-batch i of rank r is micro-batch r * accum + i of the step: losses, norms and weights are
 * those of one rank that takes them all in that order, to the last bit where comm->rank_order. trainer_step =
 * gradients, then update; waits at the end. */
CHECKED Status trainer_gradients(Trainer *trainer, FetchBatch fetch, void *source);
CHECKED Status trainer_update(Trainer *trainer, double learning_rate);
CHECKED Status trainer_result(Trainer *trainer, StepResult *result);
CHECKED Status trainer_step(Trainer *trainer, FetchBatch fetch, void *source, double learning_rate,
                            StepResult *result);

/* Over the targets of `batches` batches, with nothing dropped; nothing is learned. Of several ranks each
 * fetches its share, from trainer_share's `first` on. */
int64_t trainer_share(const Trainer *trainer, int64_t batches, int64_t *first);
CHECKED Status trainer_evaluate(Trainer *trainer, FetchBatch fetch, void *source, int64_t batches,
                                Validation *validation);

/* Collective: all ranks have all weights afterwards. Before anything but the next step reads them. */
CHECKED Status trainer_settle(Trainer *trainer);

/* The optimizer's state tensor, (ADAMW_STATE_SIZE) in host memory. */
CHECKED Status trainer_read_state(Trainer *trainer, float *state);
CHECKED Status trainer_write_state(Trainer *trainer, const float *state);
