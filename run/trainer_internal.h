/* trainer_internal: a step of several micro-batches and ranks. What does not say otherwise does nothing with
 * one rank. */
#pragma once

#include "run/trainer.h"

__BEGIN_DECLS

int rank_of(const Trainer *trainer);
int ranks_of(const Trainer *trainer);         // 1 without others
int64_t step_batches(const Trainer *trainer); // micro-batches of a step, of all ranks

/* Around micro-batch `index`: says what is exchanged beside its passes. */
void ranks_begin(Trainer *trainer, int64_t index);
void ranks_end(Trainer *trainer);

/* With one rank, too: clears what micro-batch `index` adds its gradients to, and adds it to those before
 * it. */
CHECKED Status ranks_clear(Trainer *trainer, int64_t index);
CHECKED Status ranks_finish(Trainer *trainer, int64_t index);

/* Before the last micro-batch's passes: what this rank has to say besides. */
CHECKED Status ranks_say(Trainer *trainer);

/* Collective, behind the last: the sums over all ranks, as far as they are still to be made. */
CHECKED Status ranks_exchange(Trainer *trainer);

/* Collective, behind the update: puts the weights on their way, where that is no part of the passes. */
CHECKED Status ranks_send(Trainer *trainer);

/* What the step's tail says: the loss, with one rank, too; tokens, whether to stop, who is to blame. */
CHECKED Status ranks_read(Trainer *trainer, StepResult *result);

/* Whether the task counts its targets, and so what a loss is divided by is only known with the batch. */
bool counts_targets(const Trainer *t);
/* What the sum of a micro-batch's losses is multiplied by. */
double loss_scale(const Trainer *t);
CHECKED Status forward_and_loss(Trainer *t, double factor);
/* Memory for the largest micro-batch, which is then at hand. */
CHECKED Status batch_take(Trainer *t);
/* Another one is, with all that there may be but documents. */
void batch_rehearse(Trainer *t, int64_t rows, int64_t seq);
/* `counted`, unless NULL, gets the targets that count added, and the loss will be a sum. */
CHECKED Status upload_batch(Trainer *t, FetchBatch fetch, void *source, int64_t index, int64_t *counted);

/* Of a batch: the sum of losses, the targets that it is of, and of classes how many were told right: the
 * likeliest, or among the five likeliest. */
typedef struct {
    float loss;
    int64_t targets, first, five;
} Evaluation;
/* The batch in memory; `weight` is that of each loss. */
CHECKED Status evaluate_batch(Trainer *t, double weight, Evaluation *evaluation);

__END_DECLS
