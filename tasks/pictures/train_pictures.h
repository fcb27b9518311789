/* train_pictures: the pictures that --data and --val-data name. They are opened before the model's memory
 * is: a new model has the classes, channels and normalization of its data. */
#pragma once

#include "data/feed.h"
#include "run/train_options.h"

typedef struct {
    ImageSource *train, *val; // NULL: drawn; val NULL: a tenth of train
} TrainPictures;

/* Fills in what follows from the data: of a preset's config and a new head, and --val-steps. Does nothing
 * for a model that reads tokens. Close it also after an error. */
CHECKED Status train_pictures_open(TrainOptions *options, const OptionSet *set, Session *session,
                                   TrainPictures *pictures);
void train_pictures_close(TrainPictures *pictures);
