/* task: what a model is used for, as one row. A task has a folder here, and a line in tasks.def; what is
 * done with any model stands in run/ and takes from the row what differs. */
#pragma once

#include "run/feed.h"

typedef struct {
    const char *name;
    Task trains; // what its models are trained on (model/architectures.h)
    /* Whether --data is for it; NULL: any is. */
    bool (*takes)(const TrainOptions *options);
    /* Before the model's memory is there: opens sources that a new model's sizes follow from, and fills in what
     * else does. NULL: nothing does. */
    Status (*begin)(TrainOptions *options, const OptionSet *set, Session *session, Feed *feed);
    BatchSource batches;
} TaskRow;

/* Every row of the table, by its name: task_text, ... */
#define TASK(name) extern const TaskRow task_##name;
#include "tasks/tasks.def"
#undef TASK

/* The task that a model is trained for with these options. */
const TaskRow *task_find(const Config *config, const TrainOptions *options);
