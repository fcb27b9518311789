/* trainer_internal: a step of several micro-batches and ranks. Unless stated otherwise, functions do nothing
 * with one rank. */
#pragma once

#include "run/trainer.h"

__BEGIN_DECLS

int rank_of(const Trainer *trainer);
int ranks_of(const Trainer *trainer);         // 1 without a communicator
int64_t step_batches(const Trainer *trainer); // micro-batches per step, over all ranks

/* Called around micro-batch `index`: selects the exchanges during its passes. */
void ranks_begin(Trainer *trainer, int64_t index);
void ranks_end(Trainer *trainer);

/* Also with one rank: clears the gradients that micro-batch `index` accumulates to; afterwards adds them to
 * those of earlier micro-batches. */
CHECKED Status ranks_clear(Trainer *trainer, int64_t index);
CHECKED Status ranks_finish(Trainer *trainer, int64_t index);

/* Before the last micro-batch's passes: puts this rank's flags into the tail. */
CHECKED Status ranks_set_flags(Trainer *trainer);

/* Collective, after the last micro-batch: completes the sums over all ranks. */
CHECKED Status ranks_exchange(Trainer *trainer);

/* Collective, after the update: starts sending the weights, unless the passes do. */
CHECKED Status ranks_send(Trainer *trainer);

/* Reads the step's tail: the loss, also with one rank; tokens, whether to stop, the first rank whose loss is
 * not finite. */
CHECKED Status ranks_read(Trainer *trainer, StepResult *result);

/* Whether the task counts its targets, so that the divisor of the loss is known only with the batch. */
bool counts_targets(const Trainer *t);
/* The factor of the sum of a micro-batch's losses. */
double loss_scale(const Trainer *t);
CHECKED Status forward_and_loss(Trainer *t, double factor);
/* Memory for the largest micro-batch, which becomes the current one. */
CHECKED Status batch_take(Trainer *t);
/* Makes a micro-batch of this size current, with all optional parts except documents. */
void batch_rehearse(Trainer *t, int64_t rows, int64_t seq);
/* `counted`, unless NULL, is set to the number of targets, and the loss will be a sum. */
CHECKED Status upload_batch(Trainer *t, FetchBatch fetch, void *source, int64_t index, int64_t *counted);

/* Results of a batch: the sum of losses, the number of targets, and for classes how many predictions were
 * right: the likeliest, or one of the five likeliest. */
typedef struct {
    float loss;
    int64_t targets, first, five;
} Evaluation;
/* Evaluates the batch in memory; `weight` is the factor of each loss. */
CHECKED Status evaluate_batch(Trainer *t, double weight, Evaluation *evaluation);

__END_DECLS
