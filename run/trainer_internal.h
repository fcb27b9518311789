/* trainer_internal: a step of several micro-batches and ranks. What does not say otherwise does nothing with one
 * rank. */
#pragma once

#include "run/trainer.h"

__BEGIN_DECLS

int rank_of(const Trainer *trainer);
int ranks_of(const Trainer *trainer);         // 1 without others
int64_t step_batches(const Trainer *trainer); // micro-batches of a step, of all ranks

/* Around micro-batch `index`: says what is exchanged beside its passes. */
void ranks_begin(Trainer *trainer, int64_t index);
void ranks_end(Trainer *trainer);

/* With one rank, too: adds a micro-batch that is over to those before it. */
CHECKED Status ranks_finish(Trainer *trainer, int64_t index);

/* Before the last micro-batch's passes: what this rank has to say besides. */
CHECKED Status ranks_say(Trainer *trainer);

/* Collective, behind the last: the sums over all ranks, as far as they are still to be made. */
CHECKED Status ranks_exchange(Trainer *trainer);

/* What the step's tail says: tokens, whether to stop, who is to blame. */
CHECKED Status ranks_read(Trainer *trainer, StepResult *result);

/* Collective: tells the communicator where the memory lies that ranks exchange. */
CHECKED Status ranks_share(Trainer *trainer);

__END_DECLS
