/* train_tokenizer: ./train --train-tokenizer=N, which trains a tokenizer instead of a model. */
#pragma once

#include "run/train_options.h"

/* Trains it on --data, comma-separated texts, saves it in --out, and prints a line unless quiet. */
CHECKED Status train_tokenizer(const TrainOptions *options);
