/* checkpoint: a model as a Hugging Face folder, and the state needed to resume training.
 *
 *     config.json                  the Config (model/config_file.h)
 *     model.safetensors            fp32 weights, the master weights if there are any, in the family's names
 *                                  and layouts (model/architectures.h); tables without the padding of the
 *                                  vocabulary; a tied head is stored once
 *     generation_config.json       the tokens that end a text, if the family names them
 *     the tokenizer's files        (data/tokenizer.h)
 *     training_state.safetensors   moments "m.<parameter>", "v.<parameter>" in their dtype (fp32 or bf16) and
 *                                  memory layout; the TrainingState as metadata
 *
 * A folder is published atomically: if killed at any time, its name leads to the old or to the new folder.
 * In addition to the weights, saving and loading need host memory for the largest matrix and about 16 MiB. */
#pragma once

#include "base/files.h"
#include "data/tokenizer.h"
#include "kernels/op.h"
#include "model/parameters.h"

/* Progress of training. All zero is a valid start. */
typedef struct {
    int64_t step;      // steps done, skipped updates included
    int64_t updates;   // updates applied, as adamw counts them
    int64_t tokens;    // tokens read
    int64_t position;  // windows handed out by the training loader
    uint64_t seed;     // seed of all random numbers
    char schedule[16]; // "cosine", ...
    int64_t steps, warmup;
    double learning_rate, min_learning_rate;
    int64_t rows;  // rows of a step, over all ranks; 0: not recorded by older versions
    uint64_t data; // fingerprint of the data; 0: not recorded by older versions
} TrainingState;

/* Writes or replaces `folder`, with `packed` weights as their codes and scales (checkpoint_internal.h), the
 * others in their dtype. Collective: the ranks on rank 0's host write the tensors together, rank 0 the other
 * files. If one fails all fail, and the folder is unchanged. The gradients are overwritten. The
 * tokenizer may be NULL; the state is NULL if training will not be resumed. */
CHECKED Status checkpoint_save(Ctx *ctx, const char *folder, const Config *config,
                               const Parameters *parameters, const Tokenizer *tokenizer,
                               const TrainingState *state);

CHECKED Status checkpoint_config(const char *folder, Config *config);

/* Checks that the folder has this config's weights, by names and shapes, before memory is planned: a small
 * malicious config could demand a large plan. `packed` gets I8 or I4 if its matrices are quantized, else F32.
 * Errors are those of checkpoint_load. */
CHECKED Status checkpoint_check(const char *folder, const Config *config, Dtype *packed);

/* ERROR_FORMAT if the folder's matrices are quantized, but not to the dtype `wanted`. */
CHECKED Status checkpoint_expect(const char *folder, Dtype packed, Dtype wanted);

/* Loads weights saved by fusebox or transformers: one file or shards; F32, BF16, F16 or F64, or quantized as
 * parameters->packed says; names with or without "transformer.". Attention mask buffers and a copy of the
 * tied head are ignored. Master weights get the file's values, bf16 weights their rounding. ERROR_FORMAT
 * names what is missing, superfluous or of another shape. */
CHECKED Status checkpoint_load(Ctx *ctx, const char *folder, Parameters *parameters);

/* Loads moments and state. The caller restores the optimizer's count from state->updates (optim/adamw.h).
 * ERROR_FORMAT if the moments do not belong to exactly these parameters, ERROR_USAGE if they have another
 * dtype. */
CHECKED Status checkpoint_load_state(Ctx *ctx, const char *folder, Parameters *parameters,
                                     TrainingState *state);

/* ---- the step folders of a run: <out>/step-00000100 ---- */

char *checkpoint_step_folder(const char *out, int64_t step); // the caller frees it
/* The step in the folder's name, or -1. */
int64_t checkpoint_step(const char *folder);

/* Writes a checkpoint of this model without its tensors into `out`, reads it back and removes it: a model
 * that cannot be saved is then an error before the first step. */
CHECKED Status checkpoint_rehearse(const char *out, const Config *config, const Tokenizer *tokenizer);

/* The complete step folder with the largest step; NULL if there is none or `out` does not exist. Folders that
 * an interrupted save left are ignored. */
CHECKED Status checkpoint_latest(const char *out, char **folder);

/* The same, but only if the digests of its files are intact (data/safetensors.h). `passed` receives a line
 * for each damaged folder that was skipped. A folder that cannot be read is an error, because it may be
 * intact. */
CHECKED Status checkpoint_latest_intact(const char *out, char **folder, PathList *passed);

/* Removes the step folders from `first` to `last` except the `keep` latest (none if keep is 0), and
 * leftovers of interrupted saves of any step. A folder that cannot be read is an error and stays. */
CHECKED Status checkpoint_prune(const char *out, int64_t first, int64_t last, int64_t keep);

/* Removes the step folders after `step`, latest first, so that an interruption leaves a consistent run. */
CHECKED Status checkpoint_remove_after(const char *out, int64_t step);
