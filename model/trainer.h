/* trainer: a model, its memory and its steps. Knows batches of tokens, not where they come from. */
#ifndef MODEL_TRAINER_H
#define MODEL_TRAINER_H

#include "model/generate.h"
#include "model/plan.h"
#include "model/replay.h"
#include "model/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Ctx ctx;
    Transformer model;
    Generator generator; // for samples
    bool samples;        // memory for samples is wanted
    int64_t batch, seq;  // of one micro-batch
    int64_t accum;       // micro-batches of a step
    UpdateOptions update;
    Tensor tokens, targets; // (batch, seq) i32, device memory
    Work work;              // of one step: measured with the memory
    Replay micro, updated;  // a micro-batch's forward and backward pass, and the update, as graphs
} Trainer;

/* What a step reports. */
typedef struct {
    double loss;  // mean over the step's tokens, before the update
    double norm;  // global gradient norm before clipping
    bool skipped; // loss or norm was not finite: nothing was updated
} StepResult;

/* Host memory of one micro-batch, (batch, seq) each; it must stay valid until the step after has begun. */
typedef struct {
    const int32_t *inputs, *targets;
} MicroBatch;

/* Fetches micro-batch `index` of the step. */
typedef Status (*FetchBatch)(void *source, int64_t index, MicroBatch *batch);

/* Opens ctx and model on `device` (which stays the caller's). Then set ctx.dtype, fuses, ... and
 * trainer_allocate. */
CHECKED Status trainer_open(Trainer *trainer, Device *device, const Config *config);
void trainer_close(Trainer *trainer);

/* Measures one training step, one validation batch and one sample in the form that ctx.fuses names now,
 * without allocating: the arenas' peaks afterwards are the maximum over all calls. `bytes`, unless NULL, gets
 * what this form needs alone. */
CHECKED Status trainer_measure(Trainer *trainer, size_t *bytes);

/* Allocates at the measured peaks and takes what lasts: weights are undefined until initialized or loaded. */
CHECKED Status trainer_allocate(Trainer *trainer);

/* One optimizer step over `accum` micro-batches. trainer_step = gradients, then update; waits at the end. */
CHECKED Status trainer_gradients(Trainer *trainer, FetchBatch fetch, void *source);
CHECKED Status trainer_update(Trainer *trainer, double learning_rate);
CHECKED Status trainer_result(Trainer *trainer, StepResult *result);
CHECKED Status trainer_step(Trainer *trainer, FetchBatch fetch, void *source, double learning_rate,
                            StepResult *result);

/* Mean loss over `batches` batches; nothing is learned. */
CHECKED Status trainer_evaluate(Trainer *trainer, FetchBatch fetch, void *source, int64_t batches,
                                double *loss);

/* The optimizer's state tensor, (ADAMW_STATE_SIZE) in host memory. */
CHECKED Status trainer_read_state(Trainer *trainer, float *state);
CHECKED Status trainer_write_state(Trainer *trainer, const float *state);

#ifdef __cplusplus
}
#endif
#endif
