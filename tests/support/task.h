/* task: compares a model's training with PyTorch's numbers: logits, loss, every gradient, and the parameters
 * after a few AdamW steps; for the specification in double precision, and for each form, dtype and device.
 *
 * The error bound of a form is measured, not tuned: the specification is run again with the weights
 * disturbed, anew in each step, by relative noise of the dtype's unit roundoff. A stable computation gives
 * the exact result of slightly disturbed inputs (Higham 2002, section 1.5); its path through a block rounds
 * about ten times, so TASK_ALLOWED times the effect of one disturbance is the bound. */
#pragma once

#include "model/checkpoint.h"
#include "model/transformer.h"
#include "tests/support/compare.h"
#include "tests/support/fixture.h"

enum { TASK_ALLOWED = 10, TASK_OUTPUTS = 3 };

/* The input of a body. NULL for tensors that the model does not read. */
typedef struct {
    const char *folder; // of the model
    Config config;
    int64_t steps, batch, seq, source_seq;
    int32_t *tokens, *targets, *segments; // (steps, batch, seq)
    uint8_t *pictures;                    // (steps, batch, side, side, channels): seq is 1
    int32_t *lengths, *source_lengths;    // (steps, batch)
    int32_t *source;                      // (steps, batch, source_seq)
    int32_t *rows, *row_targets;          // (steps, batch * seq): of a masked-token loss, -1 to the end
    double learning_rate, smoothing, dropout, depth; // depth: of a stack's last layer
    UpdateOptions update;
    Recompute recompute;
    double noise;            // relative, on the weights; CPU and fp64 only
    uint64_t seed;           // of the noise
    const double *direction; // (size), added to the weights `distance` times; CPU and fp64 only
    double distance;
} ModelTask;

/* A model in a rig, with the task's tokens. */
typedef struct {
    Transformer model;
    Tensor tokens, targets, segments, lengths, source, source_lengths, rows; // of all steps
    Tensor pictures;                                                         // (steps * batch, ...)
} TaskSession;

void task_session_open(TaskSession *session, Rig *rig, const ModelTask *task, bool training);
/* The forward pass and the loss of one step. */
void task_forward(TaskSession *session, Rig *rig, const ModelTask *task, int64_t step);
/* The logits of the last forward pass, without the vocabulary's padding: (batch * seq, vocab). */
void task_get_logits(const TaskSession *session, Rig *rig, double *values);

/* Opens a folder of config.json and model.safetensors, with PyTorch's numbers in `values`. */
ModelTask task_open(const char *folder, const char *values, Safetensors **file);
void task_read_options(ModelTask *task, const Safetensors *file);

/* Bodies. out: logits, loss, gradient (flat);  losses (steps), norms (steps), parameters (flat; in: room for
 * them). */
void task_gradient(Rig *rig, const void *what, double *const *in, double *const *out);
void task_training(Rig *rig, const void *what, double *const *in, double *const *out);

typedef struct {
    int64_t counts[TASK_OUTPUTS];
    double *values[TASK_OUTPUTS];
} TaskResult;

TaskResult task_result(int64_t a, int64_t b, int64_t c);
double task_unit(const Variant *variant);
/* The largest change of each output under disturbances of the weights by `unit`. */
TaskResult task_sensitivity(const ModelTask *task, Body body, double unit, const TaskResult *like);

/* A tensor may differ by at most TASK_ALLOWED times the change by disturbances; `change` is over all of
 * it. */
void task_expect_near(const double *got, const double *want, const double *change, int64_t count,
                      const char *name);
/* Numbers of successive steps: an error in one step persists in later ones. */
void task_expect_curve_near(const double *got, const double *want, const double *change, int64_t steps,
                            double unit, const char *name);

/* Whole tests: against the numbers in the file, and of gradients against differences of the loss. */
void task_check_gradients(const ModelTask *task, const Safetensors *file, const Variant *variant);
void task_check_steps(const ModelTask *task, const Safetensors *file, const Variant *variant);
void task_check_slopes(ModelTask *task);

/* Loss and gradients must be bitwise equal whatever is recomputed instead of saved. */
void task_check_recomputation(ModelTask *task, const Variant *variant);
