/* fit: what a training run can give up to fit into the device's memory. */
#pragma once

#include "run/trainer.h"

/* Calls trainer_measure for each form that the run will take. */
typedef Status (*MeasureRun)(void *run);

/* Collective. Sets the trainer's recomputation to the least that fits on every rank, or to the most there is.
 * From none on, the feed-forward layers' hidden activations are recomputed in one block after another, then
 * whole blocks, always from the top of a stack down. The caller measures afterwards. */
CHECKED Status fit_choose(Trainer *trainer, MeasureRun measure, void *run);

/* Where the measured run does not fit, prints what would need less, with its bytes. Nothing is changed. */
CHECKED Status fit_advise(Trainer *trainer, MeasureRun measure, void *run, FILE *file);
