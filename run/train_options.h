/* train_options: the options of ./train. */
#pragma once

#include "model/block.h"
#include "run/compute_options.h"
#include "run/profiling_options.h"
#include "run/session.h"
#include "comm/comm.h"
#include "optim/schedule.h"

typedef enum { LOG_RANK_FIRST, LOG_RANK_ALL } LogRank;
typedef enum { MOMENTS_FP32, MOMENTS_BF16 } Moments;

/* Texts are never NULL; "" means not given. The defaults are in train_options.c, and in --help. */
typedef struct {
    const char *model;           // a preset, or a model's folder
    ConfigSizes sizes;           // changes of the model's sizes
    const char *data, *val_data; // a file or a pattern of files; data "": the text in the repository
    const char *field;           // the key of the texts in JSON lines; "": plain texts, or conversations
    const char *tokenizer;       // "bytes" or a folder; "": the model's default
    int64_t train_tokenizer;     // size of a tokenizer to train instead of a model; 0: none
    int64_t workers;             // threads that load data
    int64_t reader_delay;        // microseconds
    ComputeOptions compute;
    Recompute recompute; // recomputation in the backward pass, or RECOMPUTE_AUTO
    int64_t batch, seq;  // sizes of a micro-batch: rows, and tokens per row (0: the context)
    int64_t accum;       // micro-batches per step
    int64_t steps;       // steps of the whole run, including those before a resume
    double lr, min_lr;   // the highest and the last learning rate; -1: unknown before train_options_settle
                         // (noam), or no last rate
    int64_t warmup;      // number of warm-up steps
    ScheduleKind schedule;
    double weight_decay, beta1, beta2, eps; // AdamW
    Moments moments;
    double dropout;               // rate; 0: none
    double stochastic_depth;      // rate of the last layer; 0: none
    double label_smoothing;       // for sequences and classes; 0: none
    double clip;                  // maximum gradient norm; 0: no clipping
    int64_t val_every, val_steps; // val_every 0: never
    const char *out;              // folder of checkpoints; "": nothing is saved
    int64_t save_every, keep;     // save_every 0: only at the end; keep 0: all
    const char *resume;           // "": no; "last": the newest in `out`; else a checkpoint
    bool profile_ends;            // --profile without --steps: the run ends with its report
    bool force;                   // discard checkpoints after the one of `resume`
    int64_t seed;
    const char *log, *hash_trace; // files; "": none
    const char *tensorboard;      // folder; "": none
    ProfilingOptions profiling;
    OptionList batch_sizes, seq_lens; // for --sweep, instead of batch and seq
    OptionList image_sizes;           // for --sweep, instead of sizes.image
    bool compare, check, quiet;
    int64_t gpus;        // ranks to start on this host; 0: one per GPU
    CommChoice engine;   // engine of the communicator (comm/comm.h)
    double comm_timeout; // seconds a step may take (comm/rendezvous.h)
    LogRank log_rank;    // which ranks print
    const char *config;
    bool print_config, list_models;
} TrainOptions;

extern const OptionTable train_options_table;

/* Reads the command line and the --config file into a set that has the table, derives options that depend on
 * others (warmup, min_lr, fused) and checks everything. `done` means that an answer has been printed (--help,
 * --print-config, ...) and nothing is left to do. Texts belong to `set`; call options_close afterwards, also
 * after an error. */
CHECKED Status train_options_read(int argc, char **argv, TrainOptions *options, OptionSet *set, bool *done);

/* With --resume, `folder` is the checkpoint to resume from, and options not given come from the first
 * run's options, a file in the format of --print-config beside its checkpoints. Only options that define
 * the training are taken from that file, and neither output paths nor options that delete, because the
 * checkpoint may come from someone else. Without --resume, `folder` is NULL. --out, which the caller has
 * locked, must be the run's own: ERROR_USAGE if it contains checkpoints of another run or, without
 * --force, later ones than `folder`. With --force the caller removes these before the first save
 * (checkpoint_remove_after). Only rank 0 (`first`) checks this, because it has created the folder, and
 * reports damaged checkpoints. The caller frees `folder` with memory_free, also after an error. */
CHECKED Status train_options_resume(TrainOptions *options, OptionSet *set, bool first, char **folder);

/* Derives options that depend on the model: --seq, if not given, and noam's --lr. ERROR_USAGE for a --seq
 * that does not fit the model. */
CHECKED Status train_options_settle(TrainOptions *options, const Config *config);

/* Rank 0 prints, logs and writes for all ranks: turns these off on the others, except printing and logging
 * with --log-rank=all. */
void train_options_silence(TrainOptions *options, int rank);

/* The second dimension of a sweep (sequence lengths or picture sides) and its values; `list` may be NULL. */
int64_t *train_options_swept(TrainOptions *options, OptionList *list);

Schedule train_options_schedule(const TrainOptions *options);
