/* infer_options: what ./infer can be told, but for what is for a task alone. */
#pragma once

#include "run/compute_options.h"
#include "run/profiling_options.h"

typedef enum { WEIGHTS_FLOAT, WEIGHTS_INT8, WEIGHTS_INT4 } WeightsChoice;

/* Texts are never NULL; "" means not given. Lists are empty when not given. */
typedef struct {
    const char *model;     // a preset, or a folder that holds a model
    const char *tokenizer; // "bytes" or a folder; "": what suits the model
    ComputeOptions compute;
    WeightsChoice weights;
    int64_t seed;
    int64_t batch, seq;               // seq 0: the context
    OptionList batch_sizes, seq_lens; // sweeps, in place of batch and seq
    OptionList image_sizes;           // of --sweep, in place of the model's own
    int64_t repeats, warmup_runs;     // runs that are timed, and before them runs that are not
    bool compare;                     // naive and fused
    const char *json;                 // file for the profile
    ProfilingOptions profiling;       // traced runs, besides
    const char *output;               // file for answers; "": standard output
    bool quiet;
    const char *config;
    bool print_config, list_models;
} InferOptions;

/* Its rows, which stand before and behind those of the tasks. */
extern const OptionTable infer_options_first, infer_options_last;

/* Reads the command line and the --config file into a set that has these tables, and fills in what depends on
 * other options; the rest as train_options_read. */
CHECKED Status infer_options_read(int argc, char **argv, InferOptions *options, OptionSet *set, bool *done);

/* What Session.packed is. ERROR_USAGE where the backend has no kernels for it. */
CHECKED Status infer_options_packed(const InferOptions *options, Backend backend, Dtype *packed);

/* The contradictions, as ERROR_USAGE, but for those in the options of tasks. A pure function. */
CHECKED Status infer_options_check(const InferOptions *options, const OptionSet *set);

/* Whether the files that will be written can be: asked before anything is computed for them. ERROR_FILE. */
CHECKED Status infer_options_check_outputs(const OptionSet *set);
