/* train_data: what --data and --val-data name, opened for this rank's share of every step. */
#pragma once

#include "app/world.h"
#include "run/batches.h"

/* Collective. `batches` points to `feed`; feed_close it, also after an error. */
CHECKED Status train_data_open(const TrainOptions *options, const Session *session, World *world, Feed *feed,
                               Batches *batches);
