/* fit: reduces a training run's memory until it fits the device. */
#pragma once

#include "run/trainer.h"

/* Calls trainer_measure for each form that the run will use. */
typedef Status (*MeasureRun)(void *run);

/* Collective. Sets the trainer's recomputation to the least that fits on every rank, or to the maximum.
 * Levels recompute the feed-forward layers' hidden activations in one block after another, then whole blocks,
 * from the top of a stack down. The caller measures afterwards. */
CHECKED Status fit_choose(Trainer *trainer, MeasureRun measure, void *run);

/* If the measured run does not fit, prints alternatives that need less memory, with their sizes. Nothing is
 * changed. */
CHECKED Status fit_advise(Trainer *trainer, MeasureRun measure, void *run, FILE *file);
