/* trainer: a model, its memory and its training steps. It takes batches from any source. */
#pragma once

#include "comm/exchange.h"
#include "data/batch.h"
#include "run/generate.h"
#include "run/replay.h"
#include "run/runner.h"

/* A micro-batch's two passes as graphs, which are captured and replayed together. */
typedef struct {
    Replay forward, backward; // with one rank `forward` contains both
    ArenaMark between;        // saved activations that the forward pass has taken
} Passes;

typedef struct {
    Ctx ctx;
    Transformer model;
    Generator generator; // generates samples
    bool samples;        // reserve memory for samples
    bool counts;         // conversations: a batch's rows, widths and target counts vary (data/batch.h)
    int64_t batch, seq;  // sizes of the largest micro-batch
    int64_t source_seq;  // length of the longest source; 0 without an encoder
    int64_t accum;       // micro-batches per step of this rank
    Comm *comm;          // NULL: one rank. All ranks take the same steps, each with its own micro-batches
    bool stop;           // this rank requests to stop after this step
    bool settles;        // same on all ranks: each step ends with all weights on all ranks
    bool serial;         // same on all ranks: exchanges do not overlap with the passes
    double smoothing;    // label smoothing
    double dropout;      // rate; 0: nothing is dropped
    double depth;        // stochastic depth of the last layer, a rate
    uint64_t seed;       // for dropout
    UpdateOptions update;
    DeviceBatch memory; // memory for the largest micro-batch
    DeviceBatch micro;  // the parts of `memory` that the current micro-batch fills
    Tensor draw;        // (1) i32: number of the micro-batch, for dropout
    int32_t *compact;   // host memory: targets, then rows, of a masked-token batch
    float *tail;        // host memory: what follows the gradients (ranks_read)
    Work work;          // work of the last step; while memory is planned, of the largest step
    Work micro_work;    // work of the last micro-batch; a graph's is that of the captured pass
    Work update_work;
    int64_t tokens; // tokens of the last step, on both sides, without padding
    bool stale;     // this rank's weights lack the others' updates
    bool gathers,
        reduces; // the current micro-batch gathers weights; it is the last one and exchanges gradients
    Passes passes[2][2]; // indexed by gathers, reduces
    Replay cast;         // casts the weights to 8 bits, before the first micro-batch
    Replay exchanged;    // the exchange after the passes
    Replay updated;      // the update
} Trainer;

/* The results of a step. */
typedef struct {
    double loss;     // mean over the step's tokens, before the update
    double norm;     // global gradient norm before clipping
    bool skipped;    // loss or norm was not finite: nothing was updated
    bool stop;       // some rank requests to stop
    int64_t clipped; // casts to 8 bits that clipped numbers
    int blamed;      // the first rank whose own loss was not finite; -1: none
} StepResult;

/* The results of validation. */
typedef struct {
    double loss; // mean over the targets, without label smoothing
    /* For a class task: top-1 and top-5 accuracy; else NAN. */
    double top1, top5;
} Validation;

/* Fetches micro-batch `index` of this rank in the step, of at most the trainer's sizes; seq 0 means exactly
 * these sizes. Its memory must stay valid until the next step has begun. In a masked-token batch at most
 * MASKED_SHARE of a row's positions, rounded up, have a target. */
typedef Status (*FetchBatch)(void *source, int64_t index, Batch *batch);

/* One of the ranks of `comm`, unless that is NULL; the caller still owns it. Then set batch, seq, ..., and
 * call trainer_measure and trainer_allocate. */
CHECKED Status trainer_open(Trainer *trainer, const Session *session, Comm *comm);
void trainer_close(Trainer *trainer);

/* Measures one training step, one validation batch and one sample in the current form of ctx.fuses, without
 * allocating: the arenas' peaks are the maximum over all calls. `bytes`, unless NULL, is set to the memory
 * that this form alone needs. */
CHECKED Status trainer_measure(Trainer *trainer, size_t *bytes);

/* Allocates at the measured peaks and takes permanent memory: weights are undefined until initialized or
 * loaded. */
CHECKED Status trainer_allocate(Trainer *trainer);

/* Collective: call before the communicator is closed. */
CHECKED Status trainer_unshare(Trainer *trainer);

/* One optimizer step over `accum` micro-batches of every rank; the loss is the mean over all their targets.
 * Micro-batch i of rank r is micro-batch r * accum + i of the step: losses, norms and weights equal those of
 * one rank that processes all of them in that order, bit for bit if comm->rank_order. trainer_step =
 * gradients, then update; waits at the end. */
CHECKED Status trainer_gradients(Trainer *trainer, FetchBatch fetch, void *source);
CHECKED Status trainer_update(Trainer *trainer, double learning_rate);
CHECKED Status trainer_result(Trainer *trainer, StepResult *result);
CHECKED Status trainer_step(Trainer *trainer, FetchBatch fetch, void *source, double learning_rate,
                            StepResult *result);

/* Evaluates the targets of `batches` batches, without dropout or update. With several ranks each fetches its
 * share, from trainer_share's `first` on. */
int64_t trainer_share(const Trainer *trainer, int64_t batches, int64_t *first);
CHECKED Status trainer_evaluate(Trainer *trainer, FetchBatch fetch, void *source, int64_t batches,
                                Validation *validation);

/* Collective: afterwards all ranks have all weights. Call before anything but the next step reads them. */
CHECKED Status trainer_settle(Trainer *trainer);

/* The optimizer's state tensor, (ADAMW_STATE_SIZE) in host memory. */
CHECKED Status trainer_read_state(Trainer *trainer, float *state);
CHECKED Status trainer_write_state(Trainer *trainer, const float *state);
