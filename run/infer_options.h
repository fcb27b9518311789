/* infer_options: the options of ./infer, except those of tasks. */
#pragma once

#include "run/profiling_options.h"
#include "run/session.h"

typedef enum { WEIGHTS_FLOAT, WEIGHTS_INT8, WEIGHTS_INT4 } WeightsChoice;

/* Texts are never NULL; "" means not given. Lists are empty when not given. */
typedef struct {
    const char *model;     // a preset, or a model's folder
    const char *tokenizer; // "bytes" or a folder; "": the model's default
    ComputeOptions compute;
    WeightsChoice weights;
    const char *save; // new folder for quantized weights
    int64_t seed;
    int64_t batch, seq;               // seq 0: the context
    int64_t decode;                   // tokens to decode, instead of forward passes; 0: none
    OptionList batch_sizes, seq_lens; // sweeps, instead of batch and seq
    OptionList image_sizes;           // for --sweep, instead of the model's own
    int64_t repeats, warmup_runs;     // timed runs, and untimed runs before them
    bool compare;                     // naive and fused
    const char *op;                   // an operation that is run by itself
    Pass pass;                        // the pass of --op: forward or backward
    int64_t width;                    // row width of --op; 0: the model's
    const char *json;                 // file for the profile
    ProfilingOptions profiling;       // additional traced runs
    const char *output;               // file for answers; "": standard output
    bool quiet;
    const char *config;
    bool print_config, list_models;
} InferOptions;

/* The option tables before and after those of the tasks. */
extern const OptionTable infer_options_first, infer_options_last;

/* Reads the command line and the --config file into a set that has these tables, and derives options that
 * depend on others; for the rest see train_options_read. */
CHECKED Status infer_options_read(int argc, char **argv, InferOptions *options, OptionSet *set, bool *done);

/* Sets session->packed to --weights, or keeps the folder's. An error if the folder's are others, or the
 * backend has no kernels for them. */
CHECKED Status infer_options_pack(const InferOptions *options, const OptionSet *set, Session *session);

/* Contradictions, as ERROR_USAGE, except those in the options of tasks. A pure function. */
CHECKED Status infer_options_check(const InferOptions *options, const OptionSet *set);

/* Whether the output files can be written: checked before anything is computed. ERROR_FILE. */
CHECKED Status infer_options_check_outputs(const OptionSet *set);
