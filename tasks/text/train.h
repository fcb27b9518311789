/* train: text samples that ./train writes regularly, from a model that continues texts; and
 * --train-tokenizer=N, which trains a tokenizer instead of a model. */
#pragma once

#include "tasks/task.h"
#include "tasks/text/stream_text.h"
#include "run/train_options.h"

extern const OptionTable text_train;
extern const Samples text_samples;

/* The options of ./train that they use: names for TaskRow.reads. */
#define TEXT_SAMPLES "sample-every sample-tokens sample-prompt"

/* The text to write after `step` steps; a different one each time. */
TextOptions text_sample_options(const OptionSet *set, uint64_t seed, int64_t step);

/* Steps between samples; 0: none. */
int64_t text_sample_every(const OptionSet *set, const Session *session);

/* For TaskRow.check. */
CHECKED Status text_check_train(const OptionSet *set);

/* Trains a tokenizer on --data, comma-separated texts, saves it in --out, and prints a line unless quiet. */
CHECKED Status train_tokenizer(const TrainOptions *options);
