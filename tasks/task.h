/* task: what a model is used for, as one row. A task has a folder here, and a line in tasks.def; what is done
 * with any model stands in run/ and takes from the row what differs. */
#pragma once

#include "run/feed.h"
#include "run/infer_options.h"
#include "run/trainer.h"

/* What ./infer does where one of its options, the asker, says something. */
typedef struct {
    const char *asker; // "translate"; NULL: what is done where nothing is asked for
    const char *reads; // the options that it looks at, of those that not every command does, between blanks
    /* Before anything is opened: refuses contradictions, and fills in what follows from others. NULL: none. */
    Status (*check)(const InferOptions *options, const OptionSet *set);
    Status (*run)(Session *session, const InferOptions *options, const OptionSet *set);
} Command;

/* What a run writes from time to time, to show what the model has learned. */
typedef struct {
    /* After how many steps, 0: never; and how many tokens trainer->generator must hold. */
    Status (*plan)(const OptionSet *set, const Session *session, int64_t *every, int64_t *window);
    /* What the model writes after `step` steps, to be freed. */
    Status (*write)(const OptionSet *set, const Session *session, Trainer *trainer, int64_t step, char **text,
                    int64_t *length);
} Samples;

typedef struct {
    Task trains;        // what its models are trained on (model/architectures.h)
    const char *models; // what they are: "an encoder-decoder"
    /* Where its models have another task, too: what --data must be for this one, and whether it is that. Else
     * NULL: it may be any that the other does not take. */
    const char *data;
    bool (*takes)(const TrainOptions *options);
    const OptionTable *train, *infer; // its own options of either program, or NULL
    const char *reads; // other options of ./train that it looks at, of those that not every task does
    Status (*check)(const OptionSet *set); // refuses contradictions in its own options of ./train; NULL: none
    /* Before the model's memory is there: refuses what does not fit, opens sources that a new model's sizes
     * follow from, and fills in what else does. NULL: none of that. */
    Status (*begin)(TrainOptions *options, const OptionSet *set, Session *session, Feed *feed);
    BatchSource batches;
    const Samples *samples;  // NULL: its models write nothing
    const Command *commands; // ends with one that has no asker; NULL: none
} TaskRow;

/* Every row of the table, by its name: task_text, ... */
#define TASK(name) extern const TaskRow task_##name;
#include "tasks/tasks.def"
#undef TASK

/* train_options_read with the options of all tasks. */
CHECKED Status task_read_train(int argc, char **argv, TrainOptions *options, OptionSet *set, bool *done);

/* The task that a model is trained for. ERROR_USAGE where an option was given that only others look at. */
CHECKED Status task_find(const Config *config, const TrainOptions *options, const OptionSet *set,
                         const TaskRow **row);

/* The same of ./infer, with what it does unless it is asked for something. */
CHECKED Status task_read_infer(int argc, char **argv, const Command *otherwise, InferOptions *options,
                               OptionSet *set, bool *done);

/* What is asked for, of a model with this configuration. ERROR_USAGE where it is for other models. */
CHECKED Status task_find_command(const Config *config, const InferOptions *options, const OptionSet *set,
                                 const Command *otherwise, const Command **command);

/* The option that asks for a command; NULL: none was given. */
const char *task_asker(const OptionSet *set);
