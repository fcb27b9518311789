/* output_folder: the folder of --out, where a run stores its options and its checkpoints. Only one run may
 * use it: two would prune and overwrite each other's checkpoints. Without --out these functions do nothing;
 * only rank 0 uses the folder. */
#pragma once

#include "run/train_options.h"
#include "model/checkpoint.h"
#include "run/trainer.h"

typedef struct {
    TrainOptions *options;
    const OptionSet *set;
    bool first;    // whether this is rank 0
    int lock;      // lock on the folder; 0: none
    int64_t begun; // the step that the run was resumed from
    int64_t saved; // the last step that was saved, or attempted
    bool removed;  // the folder was removed meanwhile, and created again
} OutputFolder;

/* Creates the folder if needed, locks it and removes half-written files of killed runs. ERROR_FILE if another
 * run holds it. */
CHECKED Status output_folder_take(OutputFolder *folder);
void output_folder_close(OutputFolder *folder);

/* An error if a checkpoint of this model could not be written; called before the first step. */
CHECKED Status output_folder_rehearse(const OutputFolder *folder, const Session *session);

/* ERROR_USAGE if the run of `state` had another seed, another number of rows per step or other data, unless
 * --force is given. Sets these members of `state` for this run. */
CHECKED Status output_folder_expect(const OutputFolder *folder, int ranks, uint64_t data,
                                    TrainingState *state);

/* Writes options.json, as --print-config prints it, for --resume. */
CHECKED Status output_folder_write_options(const OutputFolder *folder);

/* Whether the locked folder still exists. */
CHECKED Status output_folder_exists(const OutputFolder *folder, bool *exists);

/* Collective; requires --out. Saves weights and state as `checkpoint`, which the caller frees with
 * memory_free, and removes the checkpoints that --keep and --force discard. `state` contains the run's
 * position; the other saved members are set here. If the folder has been removed or moved away, the
 * checkpoint goes to a new folder of the same name. */
CHECKED Status output_folder_save(OutputFolder *folder, Trainer *trainer, const Tokenizer *tokenizer,
                                  TrainingState *state, char **checkpoint);
