/* train_tokenizer: ./train --train-tokenizer=N, which trains no model but the tokenizer for one. */
#pragma once

#include "run/train_options.h"

/* Trains it on --data, texts with commas between them, saves it in --out, and prints a line unless quiet. */
CHECKED Status train_tokenizer(const TrainOptions *options);
