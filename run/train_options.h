/* train_options: what ./train can be told. */
#pragma once

#include "model/block.h"
#include "run/compute_options.h"
#include "run/profiling_options.h"
#include "run/session.h"
#include "optim/schedule.h"

typedef enum { LOG_RANK_FIRST, LOG_RANK_ALL } LogRank;
typedef enum { COMM_AUTO, COMM_NCCL, COMM_PEER, COMM_MPI } CommChoice;
typedef enum { MOMENTS_FP32, MOMENTS_BF16 } Moments;

/* Texts are never NULL; "" means not given. The defaults are in train_options.c, and in --help. */
typedef struct {
    const char *model;           // a preset, or a folder that holds a model
    ConfigSizes sizes;           // what changes it
    const char *data, *val_data; // a file or a pattern of files; data "": the checkout's text
    const char *field;           // the key of the texts in JSON lines; "": plain texts, or conversations
    const char *tokenizer;       // "bytes" or a folder; "": what suits the model
    int64_t train_tokenizer;     // tokens of a tokenizer to train, instead of a model; 0: none
    int64_t workers;             // threads that load data
    int64_t reader_delay;        // us
    ComputeOptions compute;
    Recompute recompute; // in the backward pass
    int64_t batch, seq;  // of a micro-batch: rows, tokens in a row (0: the context)
    int64_t accum;       // micro-batches in a step
    int64_t steps;       // of the whole run, resumed or not
    double lr, min_lr;   // the highest and the last learning rate; -1: of noam, not known before
                         // train_options_settle; of a schedule that has no last one
    int64_t warmup;      // steps
    ScheduleKind schedule;
    double weight_decay, beta1, beta2, eps; // AdamW
    Moments moments;
    double dropout;               // rate; 0: none
    double stochastic_depth;      // rate, of the last layer; 0: none
    double label_smoothing;       // of sequences and classes; 0: none
    double clip;                  // largest norm of the gradient; 0: never clipped
    int64_t val_every, val_steps; // val_every 0: never
    const char *out;              // folder of checkpoints; "": nothing is saved
    int64_t save_every, keep;     // save_every 0: at the end only; keep 0: all
    const char *resume;           // "": no; "last": the newest in `out`; else a checkpoint
    bool profile_ends;            // --profile without --steps: the run ends with its report
    bool force;                   // give up the checkpoints after the one that `resume` names
    int64_t seed;
    const char *log, *hash_trace; // files; "": none
    const char *tensorboard;      // folder; "": none
    ProfilingOptions profiling;
    OptionList batch_sizes, seq_lens; // of --sweep, in place of batch and seq
    OptionList image_sizes;           // of --sweep, in place of sizes.image
    bool compare, check, quiet;
    int64_t gpus;        // ranks to start on this host; 0: one for each GPU
    CommChoice engine;   // of the communicator (comm/comm.h)
    double comm_timeout; // s that a step may take (comm/rendezvous.h)
    LogRank log_rank;    // who prints
    const char *config;
    bool print_config, list_models;
} TrainOptions;

extern const OptionTable train_options_table;

/* Reads the command line and the --config file into a set that has the table, fills in what depends on other
 * options (warmup, min_lr, fused) and checks everything. `done` means that the answer has been printed (--help,
 * --print-config, ...) and nothing is left to do. Texts belong to `set`; options_close it afterwards, also
 * after an error. */
CHECKED Status train_options_read(int argc, char **argv, TrainOptions *options, OptionSet *set, bool *done);

/* With --resume, `folder` is the checkpoint that the run goes on from, and what was not given comes from the
 * first run's options, a file as --print-config writes, which lies beside its checkpoints. Only what defines
 * the training travels so: the checkpoint may be a stranger's, so no path that is written to, and nothing
 * that deletes, is taken from there. Without, `folder` is NULL. --out, which the caller has locked, must be
 * the run's own: ERROR_USAGE if it holds checkpoints of another run, or, without --force, later ones than
 * `folder`. With it the caller removes those before the first save (checkpoint_remove_after).
 * That is rank 0's to check, `first`, as it has made the folder, and it alone tells of damaged checkpoints.
 * memory_free it, also after an error. */
CHECKED Status train_options_resume(TrainOptions *options, OptionSet *set, bool first, char **folder);

/* The contradictions, as ERROR_USAGE. A pure function; train_options_read has called it. */
CHECKED Status train_options_check(const TrainOptions *options, const OptionSet *set);

/* What follows from the model: --seq, where it was not given, and noam's --lr. ERROR_USAGE for a --seq that
 * does not fit to it. */
CHECKED Status train_options_settle(TrainOptions *options, const Config *config);

/* Rank 0 prints, logs and writes for all, so that `rank` does not; with --log-rank=all it prints, too, and
 * logs beside it. */
void train_options_hush(TrainOptions *options, int rank);

/* What a sweep sets beside the batch, the length of sequences or the side of pictures, and to which values;
 * `list` may be NULL. */
int64_t *train_options_swept(TrainOptions *options, OptionList *list);

Schedule train_options_schedule(const TrainOptions *options);
