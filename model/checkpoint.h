/* checkpoint: a model as a Hugging Face folder, and what training needs to go on from it.
 *
 *   config.json                     the Config (model/config_file.h)
 *   model.safetensors               fp32 weights, the master weights where there are any, in the family's
 *                                   names and layouts (model/architectures.h); tables without the padding
 *                                   of the vocabulary, the tied head not repeated
 *   generation_config.json          the tokens that end a text, where the family names them
 *   the tokenizer's files           (data/tokenizer.h)
 *   training_state.safetensors      moments "m.<parameter>", "v.<parameter>" in fp32 or, as they are
 *                                   kept, bf16, and in memory's layout; the TrainingState as metadata
 *
 * A folder is published as a whole: killed at any time, its name is the old folder or the new one. Beside the
 * weights themselves, saving and loading need host memory for the largest matrix and some 16 MiB. */
#pragma once

#include "base/files.h"
#include "data/tokenizer.h"
#include "kernels/op.h"
#include "model/parameters.h"

/* Where training stands. All-zero is a valid start. */
typedef struct {
    int64_t step;      // steps done, skipped updates included
    int64_t updates;   // updates applied: adamw's count
    int64_t tokens;    // seen
    int64_t position;  // of the training loader: windows handed out
    uint64_t seed;     // of everything random
    char schedule[16]; // "cosine", ...
    int64_t steps, warmup;
    double learning_rate, min_learning_rate;
} TrainingState;

/* Writes `folder`, in the place of one that is there. Collective: the ranks on rank 0's host write the
 * tensors together, and rank 0 all else; where one fails all do, and the folder is as it was. The gradients
 * are lost. The tokenizer may be NULL; the state is NULL when there is nothing to resume. */
CHECKED Status checkpoint_save(Ctx *ctx, const char *folder, const Config *config,
                               const Parameters *parameters, const Tokenizer *tokenizer,
                               const TrainingState *state);

CHECKED Status checkpoint_config(const char *folder, Config *config);

/* Whether the folder has this config's weights, by their names and shapes: asked before memory is planned,
 * which a config of a few bytes can make large. Errors are those of checkpoint_load. */
CHECKED Status checkpoint_check(const char *folder, const Config *config);

/* Loads the weights of a folder that fusebox or transformers saved: one file or shards; F32, BF16, F16 or
 * F64; names with or without "transformer."; the attention's mask buffers and a copy of the tied head are
 * passed over. Master weights take the file's values, bf16 weights their rounding. ERROR_FORMAT names what is
 * missing, left over or of another shape. */
CHECKED Status checkpoint_load(Ctx *ctx, const char *folder, Parameters *parameters);

/* Loads moments and state. The caller restores the optimizer's count from state->updates (optim/adamw.h).
 * ERROR_FORMAT unless the moments are those of exactly these parameters, ERROR_USAGE where they are kept in
 * another dtype. */
CHECKED Status checkpoint_load_state(Ctx *ctx, const char *folder, Parameters *parameters,
                                     TrainingState *state);

/* ---- the step folders of a run: <out>/step-00000100 ---- */

char *checkpoint_step_folder(const char *out, int64_t step); // the caller frees it
/* The step that the folder's name says, or -1 where it is none of these. */
int64_t checkpoint_step(const char *folder);

/* Writes a checkpoint of this model without its tensors into `out`, reads it back and removes it: what a run
 * could not save at its end is an error before its first step. */
CHECKED Status checkpoint_rehearse(const char *out, const Config *config, const Tokenizer *tokenizer);

/* The complete step folder with the largest step, or NULL where there is none, also where `out` does not
 * exist. Folders that an interrupted save left are never taken. */
CHECKED Status checkpoint_latest(const char *out, char **folder);

/* The same, but only one whose files are what was saved: their digests are checked (data/safetensors.h). Of
 * each damaged one that is passed over, `passed` gets a line that says why. What cannot be read is an error:
 * it may be whole. */
CHECKED Status checkpoint_latest_whole(const char *out, char **folder, PathList *passed);

/* Removes, of the step folders from `first` to `last`, all but the `keep` latest (none where keep is 0), and
 * of any step what interrupted saves left. A folder that cannot be looked into is an error, and stays. */
CHECKED Status checkpoint_prune(const char *out, int64_t first, int64_t last, int64_t keep);

/* Removes the step folders after `step`, the latest first: killed at any time, what is left is one run's. */
CHECKED Status checkpoint_remove_after(const char *out, int64_t step);
