/* train_data: what --data and --val-data name, opened for this rank's share of every step. */
#pragma once

#include "tasks/pictures/train_pictures.h"
#include "run/world.h"
#include "run/batches.h"

/* What the model's task and --data ask for. */
FeedKind train_data_kind(const TrainOptions *options, const Session *session);

/* Collective. `batches` points to `feed`; feed_close it, also after an error. */
CHECKED Status train_data_open(const TrainOptions *options, const Session *session,
                               const TrainPictures *pictures, World *world, Feed *feed, Batches *batches);
