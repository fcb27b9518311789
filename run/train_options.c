#include "run/train_options.h"

#include "base/files.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "model/checkpoint.h"
#include "run/option_rows.h"
#include "run/session.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FROM_OTHERS = -1, SIZE_MOST = 1 << 24, STEPS_MOST = 1000000000 };

#define AT(member) .field = offsetof(TrainOptions, member)

static const Option table[] = {
    HEADING("Model"),
    MODEL_ROW,
    {COUNT("layers", 0, 10000, sizes.layers), .doc = "number of blocks", .default_text = "the model's",
     .travels = true},
    {COUNT("encoder-layers", 0, 10000, sizes.encoder_layers), .doc = "blocks of an encoder",
     .default_text = "--layers, or the model's", .travels = true},
    {COUNT("heads", 0, 65536, sizes.heads), .doc = "attention heads", .default_text = "the model's",
     .travels = true},
    {COUNT("width", 0, 1 << 20, sizes.width), .doc = "channels", .default_text = "the model's",
     .travels = true},
    {COUNT("context", 0, SIZE_MOST, sizes.context), .doc = "positions", .default_text = "the model's",
     .travels = true},
    {COUNT("vocab", 0, 1 << 28, sizes.vocab), .doc = "tokens in the vocabulary",
     .default_text = "the model's", .travels = true},
    {COUNT("image-size", 0, 1 << 14, sizes.image), .doc = "pixels of a picture's side",
     .default_text = "the model's", .travels = true},
    {FLAG("new-head", sizes.new_head), .doc = "new head for a folder's vision Transformer or BERT",
     .travels = true},
    {FLAG("mean-pooling", sizes.mean_pooling),
     .doc = "vision Transformer without a class token: the head reads the patches' mean", .travels = true},
    {FLAG("pre-norm", sizes.pre_norm), .doc = "pre-norm blocks in an encoder-decoder", .travels = true},
    {CHOICE("embeddings", "shared|separate", sizes.embeddings),
     .doc = "embeddings of an encoder-decoder's source, target and head", .travels = true},

    HEADING("Data"),
    {TEXT("data", "FILES", data), .doc = "text, shards, conversations (.jsonl) or a folder of pictures",
     .default_text = "this checkout", .travels = true},
    {TEXT("val-data", "FILES", val_data), .doc = "the same for validation",
     .default_text = "a tenth of --data", .travels = true},
    {TEXT("field", "KEY", field), .doc = "--data is JSON lines, with a text under this key", .travels = true},
    TOKENIZER_ROW,
    {COUNT("train-tokenizer", 0, 1 << 20, train_tokenizer), .default_text = "",
     .doc = "only train a tokenizer of N tokens on --data=TEXT[,TEXT] and save it in --out"},
    {COUNT("workers", 0, 64, workers), .doc = "threads that prefetch data; 0 for none"},
    {COUNT("reader-delay", 0, 100000000, reader_delay),
     .doc = "delay each batch by N us, to mimic a slow loader"},

    COMPUTE_ROWS,
    {CHOICE("recompute", "none|hidden|blocks|auto", recompute), .bare = "hidden",
     .doc = "recompute activations to save memory; auto: no more than needed", .travels = true},

    HEADING("Many GPUs"),
    {COUNT("gpus", 0, 1024, gpus), .doc = "train on N GPUs of this host; 0 for all of them"},
    {CHOICE("comm", "auto|nccl|peer|mpi", engine), .doc = "communication between ranks; on the CPU mpi"},
    {NUMBER("comm-timeout", -1, HUGE_VAL, comm_timeout),
     .doc = "seconds that a step may take; 0: three times the last ones; -1: no limit"},
    {CHOICE("log-rank", "first|all", log_rank), .doc = "which ranks print and log"},

    HEADING("Training"),
    {COUNT("steps", 1, STEPS_MOST, steps), .alias = "max-steps", .doc = "optimizer steps", .travels = true},
    {COUNT("batch", 1, 1 << 20, batch), .alias = "batch-size", .doc = "sequences in a micro-batch",
     .travels = true},
    {COUNT("seq", 0, SIZE_MOST, seq), .doc = "tokens in a sequence", .default_text = "the context",
     .travels = true},
    {COUNT("accum", 1, 1 << 20, accum), .alias = "gradient-accumulation-steps",
     .doc = "micro-batches in a step", .travels = true},
    {NUMBER("lr", 0, FLT_MAX, lr), .alias = "learning-rate", .doc = "peak learning rate",
     .default_text = "0.001; for noam the paper's", .travels = true},
    {NUMBER("min-lr", 0, FLT_MAX, min_lr), .doc = "final learning rate", .default_text = "a tenth of --lr",
     .travels = true},
    {COUNT("warmup", 0, STEPS_MOST, warmup), .alias = "warmup-steps", .doc = "steps of linear warm-up",
     .default_text = "a tenth of --steps", .travels = true},
    {CHOICE("schedule", "cosine|linear|wsd|constant|noam", schedule), .doc = "schedule of the learning rate",
     .travels = true},
    {NUMBER("weight-decay", 0, FLT_MAX, weight_decay), .doc = "AdamW's weight decay, of matrices only",
     .travels = true},
    {NUMBER("beta1", 0, 1, beta1), .below = true, .doc = "AdamW's decay rate of the first moment",
     .travels = true},
    {NUMBER("beta2", 0, 1, beta2), .below = true, .doc = "AdamW's decay rate of the second moment",
     .travels = true},
    {NUMBER("eps", FLT_MIN, 1, eps), .doc = "AdamW's epsilon", .travels = true},
    {CHOICE("optimizer-dtype", "fp32|bf16", moments),
     .doc = "dtype of AdamW's moments; bf16 is rounded stochastically", .travels = true},
    {NUMBER("label-smoothing", 0, 1, label_smoothing), .below = true,
     .doc = "share of the target spread over all tokens or classes", .travels = true},
    {NUMBER("dropout", 0, 1, dropout), .below = true, .doc = "rate for embeddings, branches and attention",
     .travels = true},
    {NUMBER("stochastic-depth", 0, 1, stochastic_depth), .below = true,
     .doc = "probability that a sample skips the last layer's branches; lower in earlier layers",
     .travels = true},
    {NUMBER("clip", 0, FLT_MAX, clip), .alias = "grad-clip",
     .doc = "clip the gradient to this norm; 0 never clips", .travels = true},
    {COUNT("seed", 0, INT64_MAX, seed), .doc = "random seed", .travels = true},

    HEADING("Validation"),
    {COUNT("val-every", 0, STEPS_MOST, val_every), .doc = "steps between validations; 0 for none",
     .travels = true},
    {COUNT("val-steps", 1, STEPS_MOST, val_steps), .doc = "batches in a validation",
     .default_text = "10; all pictures", .travels = true},

    HEADING("Checkpoints"),
    {TEXT("out", "FOLDER", out), .alias = "output-dir",
     .doc = "folder for checkpoints; without it none are saved"},
    {COUNT("save-every", 0, STEPS_MOST, save_every), .doc = "steps between saves; 0 saves at the end only",
     .travels = true},
    {COUNT("keep", 0, STEPS_MOST, keep), .doc = "newest checkpoints to keep; 0 keeps all"},
    {TEXT("resume", "FOLDER", resume), .bare = "last",
     .doc = "continue from FOLDER, a checkpoint or a run, or from the newest in --out"},
    {FLAG("force", force), .doc = "with --resume: remove later checkpoints; allow other data, seed or batch",
     .command_line_only = true},

    HEADING("Output"),
    {TEXT("log", "FILE", log), .doc = "write events as JSON lines"},
    {TEXT("tensorboard", "FOLDER", tensorboard), .doc = "write curves for TensorBoard"},
    {FLAG("compare", compare), .doc = "run naive and fused alternately and print a table"},
    PROFILING_ROWS,
    {LIST("batch-sizes", 1, 1 << 20, batch_sizes), .doc = "batch sizes for --sweep, such as 1,8"},
    {LIST("seq-lens", 1, SIZE_MOST, seq_lens), .doc = "sequence lengths for --sweep, such as 128,256"},
    {LIST("image-sizes", 1, 1 << 14, image_sizes), .doc = "pictures' sides for --sweep, such as 112,224"},
    {FLAG("check", check), .doc = "stop at the first value that is not finite"},
    {TEXT("hash-trace", "FILE", hash_trace), .doc = "write a hash of every operation's output"},
    {FLAG("quiet", quiet), .letter = 'q', .doc = "print errors only"},
    CONFIG_ROWS,
};

static const TrainOptions defaults = {
    .model = "gpt2-nano",
    .field = "",
    .data = "",
    .val_data = "",
    .tokenizer = "",
    .workers = 1,
    .compute = COMPUTE_DEFAULTS,
    .batch = 8,
    .accum = 1,
    .gpus = 1,
    .steps = 500,
    .lr = FROM_OTHERS,
    .min_lr = FROM_OTHERS,
    .warmup = FROM_OTHERS,
    .schedule = SCHEDULE_COSINE,
    .weight_decay = 0.1,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .eps = 1e-8,
    .clip = 1,
    .val_every = 100,
    .val_steps = 10,
    .out = "",
    .keep = 2,
    .resume = "",
    .seed = 1,
    .log = "",
    .tensorboard = "",
    .profiling = PROFILING_DEFAULTS,
    .hash_trace = "",
    .config = "",
};

const OptionTable train_options_table = {table, sizeof table / sizeof *table, &defaults, sizeof defaults};

/* Whether the schedule ends at --min-lr. */
static bool has_minimum(const TrainOptions *o) {
    return o->schedule != SCHEDULE_CONSTANT && o->schedule != SCHEDULE_NOAM;
}

/* The rate of noam depends on the model's width, which is not known yet. */
static void resolve_rate(TrainOptions *o) {
    if (o->lr == FROM_OTHERS && o->schedule != SCHEDULE_NOAM) o->lr = 1e-3;
}

static void resolve(const OptionSet *set, TrainOptions *o) {
    compute_options_resolve(set, &o->compute);
    profiling_options_resolve(set, &o->profiling);
    resolve_rate(o);
    if (o->warmup == FROM_OTHERS) o->warmup = o->steps / 10;
    if (o->min_lr == FROM_OTHERS && has_minimum(o)) o->min_lr = o->lr / 10;
}

/* Resets derived options, so that they are derived again from those of a file or a later command line. */
static void unresolve(const OptionSet *set, TrainOptions *o) {
    if (!options_given(set, "lr")) o->lr = FROM_OTHERS;
    if (!options_given(set, "warmup")) o->warmup = FROM_OTHERS;
    if (!options_given(set, "min-lr")) o->min_lr = FROM_OTHERS;
}

static Status check_sizes(const TrainOptions *o) {
    if (o->sizes.heads && o->sizes.width && o->sizes.width % o->sizes.heads)
        return fail(ERROR_USAGE, "--width=%" PRId64 " is not a multiple of --heads=%" PRId64, o->sizes.width,
                    o->sizes.heads);
    if (o->seq && o->sizes.context && o->seq > o->sizes.context)
        return fail(ERROR_USAGE, "--seq=%" PRId64 " is longer than --context=%" PRId64, o->seq,
                    o->sizes.context);
    int64_t rows;
    if (__builtin_mul_overflow(o->batch, o->seq ? o->seq : 1, &rows) || rows > INT32_MAX)
        return fail(ERROR_USAGE,
                    "--batch=%" PRId64 " times --seq=%" PRId64 " is more than 2^31 - 1 tokens; use --accum",
                    o->batch, o->seq);
    return OK;
}

static Status check_rates(const TrainOptions *o) {
    if (!has_minimum(o) && o->min_lr != FROM_OTHERS)
        return fail(ERROR_USAGE, "--min-lr=%g has no effect with --schedule=%s", o->min_lr,
                    schedule_name(o->schedule));
    if (has_minimum(o) && o->min_lr > o->lr)
        return fail(ERROR_USAGE, "--min-lr=%g is above --lr=%g", o->min_lr, o->lr);
    /* The noam schedule has no last step: a run may end during warm-up. */
    if (o->warmup > o->steps && o->schedule != SCHEDULE_NOAM)
        return fail(ERROR_USAGE, "--warmup=%" PRId64 " is longer than --steps=%" PRId64, o->warmup, o->steps);
    return OK;
}

/* A sweep's runs are too short for anything but their profiles. */
static Status check_sweep(const TrainOptions *o, const OptionSet *set) {
    static const char *const others[] = {"out",        "resume",          "log",       "tensorboard",
                                         "hash-trace", "train-tokenizer", "timer-only"};
    TRY(option_needs(set, "batch-sizes", o->profiling.sweep, "--sweep"));
    TRY(option_needs(set, "seq-lens", o->profiling.sweep, "--sweep"));
    TRY(option_needs(set, "image-sizes", o->profiling.sweep, "--sweep"));
    TRY(options_exclude(set, "image-sizes", "seq-lens"));
    if (!o->profiling.sweep) return OK;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) TRY(options_exclude(set, "sweep", others[i]));
    return o->seq || o->seq_lens.count || o->image_sizes.count || o->batch_sizes.count
               ? OK
               : fail(ERROR_USAGE, "--sweep needs --batch-sizes=LIST, --seq-lens=LIST, or --seq");
}

/* Checks for contradictions: ERROR_USAGE. */
static Status check_options(const TrainOptions *o, const OptionSet *set) {
    TRY(compute_options_check(&o->compute));
    TRY(check_sizes(o));
    TRY(check_rates(o));
    TRY(profiling_options_check(&o->profiling, &o->compute, set, o->steps));
    TRY(check_sweep(o, set));
    TRY(option_needs(set, "val-data", *o->data, "--data"));
    TRY(option_needs(set, "val-data", o->val_every, "--val-every"));
    TRY(option_needs(set, "val-steps", o->val_every, "--val-every"));
    if (o->train_tokenizer && !*o->out)
        return fail(ERROR_USAGE, "--train-tokenizer needs --out=FOLDER, where the tokenizer goes");
    TRY(option_needs(set, "save-every", *o->out, "--out=FOLDER"));
    TRY(option_needs(set, "keep", *o->out, "--out=FOLDER"));
    TRY(option_needs(set, "force", *o->resume, "--resume=FOLDER"));
    if (strcmp(o->resume, "last") == 0 && !*o->out)
        return fail(ERROR_USAGE, "--resume needs --out=FOLDER, or a checkpoint: --resume=FOLDER");
    return o->compare ? compute_options_check_compare(&o->compute) : OK;
}

Status train_options_read(int argc, char **argv, TrainOptions *options, OptionSet *set, bool *done) {
    TRY(options_parse(set, argc, argv, done));
    if (*done) return OK;
    *done = options->list_models;
    if (*done) return compute_options_list_models();
    if (*options->config) TRY(options_read_file(set, options->config));
    options->profile_ends = *options->profiling.window && !options_given(set, "steps") && !*options->resume;
    if (options->profile_ends) TRY(profiling_options_steps(&options->profiling, &options->steps));
    resolve(set, options);
    TRY(check_options(options, set));
    if (!options->print_config) return OK;
    *done = true;
    unresolve(set, options);
    resolve_rate(options);
    return options_print(set);
}

/* Whether --min-lr of the run with the options file `path` was derived from its --lr. */
static Status minimum_followed(const char *path, bool *followed) {
    enum { FILE_MOST = 1 << 20 };
    json_auto_t *root = NULL;
    TRY(json_read(path, FILE_MOST, &root));
    *followed = json_number_value(json_object_get(root, "min-lr")) ==
                json_number_value(json_object_get(root, "lr")) / 10;
    return OK;
}

/* Options that the command line omits get the values of the first run, from its options file `path`. */
static Status go_on(const char *path, TrainOptions *options, OptionSet *set) {
    PathKind kind;
    TRY(path_kind(path, &kind));
    if (kind == PATH_ABSENT) return OK;
    bool minimum = options_given(set, "min-lr"), rate = options_given(set, "lr"), followed = false;
    unresolve(set, options);
    TRY(options_read_travelling(set, path));
    if (rate && !minimum) TRY(minimum_followed(path, &followed));
    /* The first run's schedule may have had a minimum and this run's none. */
    if (!minimum && (followed || !has_minimum(options))) options->min_lr = FROM_OTHERS;
    resolve(set, options);
    return check_options(options, set);
}

static Status check_new(const char *out) {
    OWNED char *latest = NULL;
    if (!*out) return OK;
    TRY(checkpoint_latest(out, &latest));
    if (!latest) return OK;
    return fail(ERROR_USAGE, "--out=%s already holds %s; continue it with --resume, or name another folder",
                out, path_name(latest));
}

/* A run that resumes from an earlier checkpoint of its own folder: its later checkpoints must neither mix
 * with new ones nor be deleted silently. */
static Status check_later(const TrainOptions *o, const char *folder) {
    OWNED char *latest = NULL;
    TRY(checkpoint_latest(o->out, &latest));
    if (o->force || !latest || checkpoint_step(latest) <= checkpoint_step(folder)) return OK;
    return fail(ERROR_USAGE,
                "--out=%s holds later checkpoints, up to %s; --force removes them before the first "
                "save, another folder leaves them alone",
                o->out, path_name(latest));
}

/* Whether the run continues in its own folder, or in a new one. */
static Status check_own(const TrainOptions *o, const char *folder) {
    bool own = false;
    if (!*o->out) return OK;
    OWNED char *parent = path_join(folder, "..");
    TRY(path_same(parent, o->out, &own));
    return own ? check_later(o, folder) : check_new(o->out);
}

/* Finds the newest checkpoint of the run in the folder `out`. If a later one is damaged, the run goes back,
 * and new checkpoints replace it. */
static Status newest(TrainOptions *options, const char *out, bool first, char **folder) {
    CLOSED_BY(path_list_free) PathList passed = {0};
    Status status = checkpoint_latest_intact(out, folder, &passed);
    for (int64_t i = 0; first && i < passed.count; i++) fprintf(stderr, "train: %s\n", passed.paths[i]);
    options->force = options->force || passed.count > 0;
    if (status || *folder) return status;
    return fail(ERROR_FILE, "--resume: there is no complete checkpoint in %s yet", out);
}

Status train_options_resume(TrainOptions *options, OptionSet *set, bool first, char **folder) {
    const char *resume = options->resume;
    PathKind kind;
    *folder = NULL;
    if (!*resume) return first ? check_new(options->out) : OK;
    if (strcmp(resume, "last") == 0) {
        TRY(newest(options, options->out, first, folder));
    } else {
        OWNED char *latest = NULL;
        TRY(path_kind(resume, &kind));
        if (kind != PATH_FOLDER)
            return kind == PATH_ABSENT
                       ? fail(ERROR_FILE, "--resume: there is no checkpoint folder %s", resume)
                       : fail(ERROR_FILE, "--resume: %s is a file, not a checkpoint folder", resume);
        TRY(checkpoint_latest(resume, &latest)); /* is it a run's folder? */
        if (latest)
            TRY(newest(options, resume, first, folder));
        else
            *folder = memory_text(resume);
        if (first) TRY(check_own(options, *folder));
    }
    OWNED char *path = path_join(*folder, "../options.json");
    return go_on(path, options, set);
}

Status train_options_settle(TrainOptions *o, const Config *config) {
    if (!o->seq) o->seq = config->context;
    if (o->seq > config->context)
        return fail(ERROR_USAGE, "--seq=%" PRId64 " is longer than the model's context of %" PRId64, o->seq,
                    config->context);
    if (o->lr == FROM_OTHERS)
        o->lr = 1 / sqrt((double)config->width * (o->warmup > 1 ? (double)o->warmup : 1));
    return OK;
}

int64_t *train_options_swept(TrainOptions *o, OptionList *list) {
    bool pictures = o->image_sizes.count > 0;
    if (list) *list = pictures ? o->image_sizes : o->seq_lens;
    return pictures ? &o->sizes.image : &o->seq;
}

Schedule train_options_schedule(const TrainOptions *o) {
    return (Schedule){o->schedule, o->lr, has_minimum(o) ? o->min_lr : o->lr, o->warmup, o->steps};
}

void train_options_silence(TrainOptions *o, int rank) {
    static char log[4096];
    snprintf(log, sizeof log, "%s.rank%d", o->log, rank);
    o->log = *o->log && o->log_rank == LOG_RANK_ALL ? log : "";
    o->profiling.out = o->tensorboard = "";
    o->quiet |= o->log_rank == LOG_RANK_FIRST;
}
