/* task: a use of a model, as one row of a table. A task has a folder here, and a line in tasks.def; code for
 * every model is in run/ and takes the differences from the row. */
#pragma once

#include "run/feed.h"
#include "run/infer_options.h"
#include "run/trainer.h"

/* A command of ./infer, selected by one of its options, the selector. */
typedef struct {
    const char *selector; // "translate"; NULL: the default command
    const char *reads;    // the options that it reads, among those that not every command reads, separated by
                          // blanks
    /* Called before anything is opened: refuses contradictions, and derives options. NULL: none. */
    Status (*check)(const InferOptions *options, const OptionSet *set);
    Status (*run)(Session *session, const InferOptions *options, const OptionSet *set);
} Command;

/* Samples that a run writes regularly, to show what the model has learned. */
typedef struct {
    /* Sets the interval in steps, 0: never; and the number of tokens that trainer->generator must hold. */
    Status (*plan)(const OptionSet *set, const Session *session, int64_t *every, int64_t *window);
    /* The model's output after `step` steps, which the caller frees. */
    Status (*write)(const OptionSet *set, const Session *session, Trainer *trainer, int64_t step, char **text,
                    int64_t *length);
} Samples;

typedef struct {
    Task trains;        // the objective of its models (model/architectures.h)
    const char *models; // description of these models: "an encoder-decoder"
    /* If other tasks train the same models: describes which --data belongs to this task, and tests it. NULL:
     * any data that the other task does not take. */
    const char *data;
    bool (*takes)(const TrainOptions *options);
    const OptionTable *train, *infer; // the task's own options of either program, or NULL
    const char *reads; // other options of ./train that this task reads, among those that not every task reads
    Status (*check)(const OptionSet *set); // refuses contradictions in its own options of ./train; NULL: none
    /* Called before the model's memory is allocated: refuses settings that do not fit, opens sources that
     * determine a new model's sizes, and sets other sizes. NULL: nothing to do. */
    Status (*begin)(TrainOptions *options, const OptionSet *set, Session *session, Feed *feed);
    BatchSource batches;
    const Samples *samples;  // NULL: its models write no samples
    const Command *commands; // the last command has no selector; NULL: no commands
} TaskRow;

/* Every row of the table, by its name: task_text, ... */
#define TASK(name) extern const TaskRow task_##name;
#include "tasks/tasks.def"
#undef TASK

/* train_options_read with the options of all tasks. */
CHECKED Status task_read_train(int argc, char **argv, TrainOptions *options, OptionSet *set, bool *done);

/* The task that a model is trained for. ERROR_USAGE if an option was given that only others read. */
CHECKED Status task_find(const Config *config, const TrainOptions *options, const OptionSet *set,
                         const TaskRow **row);

/* The same for ./infer, with its default command. */
CHECKED Status task_read_infer(int argc, char **argv, const Command *otherwise, InferOptions *options,
                               OptionSet *set, bool *done);

/* The requested command, for a model with this configuration. ERROR_USAGE if it is for other models. */
CHECKED Status task_find_command(const Config *config, const InferOptions *options, const OptionSet *set,
                                 const Command *otherwise, const Command **command);

/* The option that selects a command; NULL: none was given. */
const char *task_selector(const OptionSet *set);
