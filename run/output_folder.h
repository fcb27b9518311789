/* output_folder: --out, where a run keeps its options and its checkpoints. It is one run's alone: two would
 * prune and overwrite each other's checkpoints. Without --out nothing happens here, and only rank 0 holds the
 * folder. */
#pragma once

#include "run/train_options.h"
#include "model/checkpoint.h"
#include "run/trainer.h"

typedef struct {
    TrainOptions *options;
    const OptionSet *set;
    bool first;    // this is rank 0
    int lock;      // on the folder; 0: none
    int64_t begun; // the step that the run went on from
    int64_t saved; // the last step that was saved, or tried to be
    bool removed;  // it has been taken away, and made anew
} OutputFolder;

/* Makes the folder where there is none, locks it and removes what killed runs have left half written.
 * ERROR_FILE where another run holds it. */
CHECKED Status output_folder_take(OutputFolder *folder);
void output_folder_close(OutputFolder *folder);

/* An error where a checkpoint of this model could not be written: asked before the first step. */
CHECKED Status output_folder_rehearse(const OutputFolder *folder, const Session *session);

/* options.json, as --print-config prints it: what --resume reads. */
CHECKED Status output_folder_write_options(const OutputFolder *folder);

/* Whether the folder that was taken is still there. */
CHECKED Status output_folder_there(const OutputFolder *folder, bool *there);

/* Collective; --out is given. Saves weights and state as `checkpoint`, to be freed with memory_free, and
 * removes what --keep and --force give up. `state` holds where the run stands, and gets what else is saved
 * with it. Where the folder has been removed or moved away, the checkpoint goes into a new one of its
 * name. */
CHECKED Status output_folder_save(OutputFolder *folder, Trainer *trainer, const Tokenizer *tokenizer,
                                  TrainingState *state, char **checkpoint);
