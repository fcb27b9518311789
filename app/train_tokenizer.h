/* train_tokenizer: ./train --train-tokenizer=N, which trains no model but the tokenizer for one. */
#ifndef APP_TRAIN_TOKENIZER_H
#define APP_TRAIN_TOKENIZER_H

#include "app/train_options.h"

/* Trains it on --data, texts with commas between them, saves it in --out, and prints a line unless quiet. */
CHECKED Status train_tokenizer(const TrainOptions *options);

#endif
