#include "run/infer_options.h"

#include "run/option_rows.h"
#include "base/files.h"
#include "model/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { SIZE_MOST = 1 << 24, RUNS_MOST = 1000000 };

#define AT(member) .field = offsetof(InferOptions, member)

static const Option first[] = {
    HEADING("Model"),
    MODEL_ROW,
    TOKENIZER_ROW,
    {COUNT("seed", 0, INT64_MAX, seed), .word = "random",
     .doc = "random seed; random draws one and prints it"},
    COMPUTE_ROWS,
    {CHOICE("weights", "float|int8|int4", weights),
     .doc = "dtype of the blocks' matrices; with int4 the head has int8: faster, less accurate"},
    {TEXT("save", "FOLDER", save), .doc = "write the model with --weights, which then loads without it"},

    HEADING("Benchmark of the forward pass, unless one of the modes below is given"),
    {COUNT("batch", 1, 1 << 20, batch), .alias = "batch-size",
     .doc = "sequences at once; also for --eval, --translate, --prompts and --embed"},
    {COUNT("seq", 0, SIZE_MOST, seq), .doc = "tokens in a sequence; also for --eval; the most for --embed",
     .default_text = "the context"},
    {LIST("batch-sizes", 1, 1 << 20, batch_sizes), .doc = "several batch sizes, such as 1,8"},
    {LIST("seq-lens", 1, SIZE_MOST, seq_lens), .doc = "several lengths, such as 128,256"},
    {COUNT("decode", 1, SIZE_MOST, decode), .default_text = "none",
     .doc = "time the decoding of N tokens after --seq (32) instead, for each of --batch-sizes"},
    {LIST("image-sizes", 1, 1 << 14, image_sizes), .doc = "pictures' sides for --sweep, such as 112,224"},
    {COUNT("repeats", 1, RUNS_MOST, repeats), .doc = "timed runs"},
    {COUNT("warmup-runs", 0, RUNS_MOST, warmup_runs), .doc = "untimed runs before the timed ones"},
    {FLAG("compare", compare), .doc = "measure naive and fused; with --eval: float and --weights"},
    {TEXT("json", "FILE", json), .written = true, .doc = "write the results as JSON too"},
    {TEXT("op", "NAME", op), .doc = "run one operation by itself; --op=help lists them"},
    {CHOICE("pass", "forward|backward", pass), .doc = "the pass of --op"},
    {COUNT("width", 0, SIZE_MOST, width), .doc = "row width of --op", .default_text = "the model's"},
    PROFILING_ROWS,
};

static const Option last[] = {
    HEADING("Output"),
    {TEXT("output", "FILE", output), .written = true, .default_text = "standard output",
     .doc = "write the results of --prompts, --translate or --embed; FILE.part until they are complete"},
    {FLAG("quiet", quiet), .letter = 'q', .doc = "print results and errors only"},
    CONFIG_ROWS,
};

static const InferOptions defaults = {
    .model = "gpt2-nano",
    .save = "",
    .tokenizer = "",
    .compute = COMPUTE_DEFAULTS,
    .seed = 1,
    .batch = 8,
    .repeats = 20,
    .warmup_runs = 3,
    .json = "",
    .op = "",
    .output = "",
    .profiling = PROFILING_DEFAULTS,
    .config = "",
};

const OptionTable infer_options_first = {first, sizeof first / sizeof *first, &defaults, sizeof defaults};
const OptionTable infer_options_last = {last, sizeof last / sizeof *last, NULL, 0};

Status infer_options_pack(const InferOptions *o, const OptionSet *set, Session *s) {
    static const Dtype dtypes[] = {[WEIGHTS_FLOAT] = F32, [WEIGHTS_INT8] = I8, [WEIGHTS_INT4] = I4};
    if (options_given(set, "weights")) s->packed = dtypes[o->weights];
    if (s->folder) TRY(checkpoint_expect(s->folder, s->stored, s->packed));
    if (s->packed != I4 || s->device->backend == BACKEND_CPU) return OK;
    return fail(ERROR_USAGE, "%s weights run on the CPU only; add --device=cpu", dtype_name(s->packed));
}

Status infer_options_check(const InferOptions *o, const OptionSet *set) {
    TRY(compute_options_check(&o->compute));
    static const char *const without_op[] = {"profile",  "sweep",       "json",    "batch-sizes",
                                             "seq-lens", "image-sizes", "weights", "save"};
    static const char *const without_save[] = {"profile",  "sweep",       "json",    "batch-sizes",
                                               "seq-lens", "image-sizes", "repeats", "warmup-runs",
                                               "batch",    "seq",         "compare"};
    static const char *const without_decode[] = {"profile",     "sweep", "json",    "seq-lens",    "save",
                                                 "image-sizes", "op",    "repeats", "warmup-runs", "compare"};
    for (size_t i = 0; i < sizeof without_decode / sizeof *without_decode; i++)
        TRY(options_exclude(set, "decode", without_decode[i]));
    for (size_t i = 0; i < sizeof without_op / sizeof *without_op; i++)
        TRY(options_exclude(set, "op", without_op[i]));
    for (size_t i = 0; i < sizeof without_save / sizeof *without_save; i++)
        TRY(options_exclude(set, "save", without_save[i]));
    TRY(option_needs(set, "save", o->weights != WEIGHTS_FLOAT, "--weights=int8 or int4"));
    TRY(option_needs(set, "pass", *o->op, "--op"));
    TRY(option_needs(set, "width", *o->op, "--op"));
    TRY(options_exclude(set, "profile", "json"));
    TRY(options_exclude(set, "profile", "repeats")); // the window determines the number of passes
    TRY(options_exclude(set, "profile", "warmup-runs"));
    TRY(options_exclude(set, "sweep", "json"));
    TRY(options_exclude(set, "sweep", "repeats"));
    TRY(options_exclude(set, "sweep", "warmup-runs"));
    TRY(options_exclude(set, "image-sizes", "seq-lens"));
    TRY(option_needs(set, "image-sizes", o->profiling.sweep, "--sweep"));
    TRY(profiling_options_check(&o->profiling, &o->compute, set, 0));
    TRY(options_exclude(set, "batch", "batch-sizes"));
    TRY(options_exclude(set, "seq", "seq-lens"));
    return o->compare ? compute_options_check_compare(&o->compute) : OK;
}

/* An existing output may be a pipe, which must be opened only once. */
static Status check_output(const char *path) {
    PathKind kind;
    FileWriter *writer;
    if (!*path) return OK;
    TRY(path_kind(path, &kind));
    if (kind == PATH_FOLDER) return fail(ERROR_FILE, "cannot write %s: it is a folder", path);
    if (kind == PATH_FILE) return OK;
    TRY(file_writer_open(path, &writer));
    file_writer_abandon(writer);
    return OK;
}

Status infer_options_check_outputs(const OptionSet *set) {
    for (int i = 0; i < set->count; i++)
        if (set->table[i].written) TRY(check_output(*(const char *const *)set->fields[i]));
    return OK;
}

/* --seed=random: draws a seed that is short enough to be typed. */
static Status draw_seed(InferOptions *o) {
    uint32_t seed;
    if (o->seed >= 0) return OK;
    if (getentropy(&seed, sizeof seed) != 0)
        return fail(ERROR_INTERNAL, "the system provides no random numbers");
    o->seed = seed;
    if (!o->quiet) fprintf(stderr, "--seed=%" PRId64 "\n", o->seed);
    return OK;
}

Status infer_options_read(int argc, char **argv, InferOptions *options, OptionSet *set, bool *done) {
    TRY(options_parse(set, argc, argv, done));
    if (*done) return OK;
    *done = options->list_models;
    if (*done) return compute_options_list_models();
    if (*options->config) TRY(options_read_file(set, options->config));
    compute_options_resolve(set, &options->compute);
    profiling_options_resolve(set, &options->profiling);
    return draw_seed(options);
}
