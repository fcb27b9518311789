#include "run/session.h"

#include "base/directories.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "kernels/attention/attention.h"
#include "kernels/gemm/cpu.h"
#include "model/checkpoint.h"
#include "model/parameter_values.h"
#include "run/progress.h"

#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 256, MILLION = 1000000 };

/* Hugging Face's cache stores a model in models--OWNER--NAME: refs/main names the folder in snapshots. NULL
 * if `model` is not such a folder. */
static Status find_snapshot(const char *model, char **folder) {
    enum { NAME_MOST = 256 };
    OWNED char *path = path_join(model, "refs/main"), *name = NULL;
    int64_t length;
    PathKind kind;
    TRY(path_kind(path, &kind));
    if (kind != PATH_FILE) return OK;
    TRY(file_read(path, NAME_MOST, &name, &length));
    name[strcspn(name, "\r\n/")] = 0;
    OWNED char *snapshots = path_join(model, "snapshots");
    *folder = path_join(snapshots, name);
    return OK;
}

/* The top of such a cache is not a model: the error names one that it contains. */
static Status refuse_cache(const char *folder) {
    CLOSED_BY(path_list_free) PathList list = {0};
    TRY(directory_list(folder, &list));
    for (int64_t i = 0; i < list.count; i++)
        if (strncmp(path_name(list.paths[i]), "models--", 8) == 0)
            return fail(ERROR_FILE, "%s is a cache of models; name one of them: --model=%s", folder,
                        list.paths[i]);
    return OK;
}

/* The model's folder: `model` itself, or the latest checkpoint or the snapshot in it; NULL if `model` is not
 * a folder. */
static Status find_folder(const char *model, char **folder) {
    *folder = NULL;
    PathKind kind;
    TRY(path_kind(model, &kind));
    if (kind != PATH_FOLDER) return OK;
    OWNED char *config = path_join(model, "config.json");
    TRY(path_kind(config, &kind));
    if (kind == PATH_ABSENT) TRY(checkpoint_latest(model, folder));
    if (kind == PATH_ABSENT && !*folder) TRY(find_snapshot(model, folder));
    if (*folder) return OK;
    if (kind == PATH_ABSENT) TRY(refuse_cache(model));
    *folder = memory_text(model);
    return OK;
}

static void change_sizes(const ConfigSizes *sizes, Config *c) {
    if (sizes->layers) c->layers = sizes->layers;
    if (sizes->layers && c->encoder_layers) c->encoder_layers = sizes->layers;
    if (sizes->encoder_layers) c->encoder_layers = sizes->encoder_layers;
    if (sizes->heads) c->heads = c->kv_heads = sizes->heads;
    if (sizes->width) c->width = sizes->width;
    if (sizes->width) c->hidden = 0;
    if (sizes->heads || sizes->width) c->head_size = 0;
    if (sizes->context) c->context = sizes->context;
    if (sizes->vocab) c->vocab = sizes->vocab;
    if (sizes->pre_norm) c->norm_order = NORM_PRE;
    if (sizes->mean_pooling) c->class_token = false;
    if (sizes->embeddings == EMBEDDINGS_SEPARATE) c->tied_tables = c->tied_head = false;
    config_complete(c);
}

/* An existing model has its sizes; naming the same sizes again is allowed. */
static Status check_sizes(const ConfigSizes *sizes, const Config *c, const char *model) {
    const struct {
        const char *name;
        int64_t asked, actual;
    } all[] = {
        {"layers", sizes->layers, c->layers},    {"encoder-layers", sizes->encoder_layers, c->encoder_layers},
        {"heads", sizes->heads, c->heads},       {"width", sizes->width, c->width},
        {"context", sizes->context, c->context}, {"vocab", sizes->vocab, c->vocab}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].asked && all[i].asked != all[i].actual)
            return fail(ERROR_USAGE,
                        "--%s=%" PRId64 " can change a preset only; the model in %s has %" PRId64,
                        all[i].name, all[i].asked, model, all[i].actual);
    const char *made_with = sizes->pre_norm && c->norm_order != NORM_PRE ? "--pre-norm"
                            : sizes->embeddings == EMBEDDINGS_SEPARATE && c->tied_tables
                                ? "--embeddings=separate"
                            : sizes->mean_pooling && c->class_token ? "--mean-pooling"
                                                                    : NULL;
    if (!made_with) return OK;
    return fail(ERROR_USAGE, "%s can change a preset only; the model in %s was made without it", made_with,
                model);
}

/* For pictures of another size, or a new head: pictures are scaled without cropping. */
static void scale_pictures(Config *c) {
    ImageProcessor *p = &c->processor;
    if (p->height != c->image) p->height = p->width = p->scaled_height = p->scaled_width = c->image;
    p->channels = c->channels;
}

/* Applies the changes that are also allowed for an existing model: its head, and the size of its pictures. */
static Status change_head(Session *s, const ConfigSizes *sizes) {
    Config *c = &s->config;
    bool pictures = c->architecture->patches, masked = c->architecture->task == TASK_MASKED_TOKEN;
    if ((sizes->image || sizes->mean_pooling) && !pictures)
        return fail(ERROR_USAGE, "--%s is for a vision Transformer, not for %s",
                    sizes->image ? "image-size" : "mean-pooling", c->architecture->description);
    if (sizes->new_head && !pictures && !masked)
        return fail(ERROR_USAGE, "--new-head is for a vision Transformer or a BERT, not for %s",
                    c->architecture->description);
    c->new_head = s->folder && sizes->new_head;
    if (masked) c->head_transform |= c->new_head;
    if (!pictures) return OK;
    if (s->folder && !c->new_head && !c->class_head)
        return fail(ERROR_USAGE, "the model in %s has no head for classes; --new-head adds one", s->folder);
    if (sizes->image) c->image = sizes->image;
    c->class_head = true;
    config_complete(c);
    scale_pictures(c);
    return OK;
}

/* A preset whose sizes were changed is named "NAME (changed)". */
static Status rename_changed(const char *model, Config *c) {
    Config preset;
    TRY(config_preset(model, &preset));
    if (!config_equal(c, &preset)) snprintf(c->name, sizeof c->name, "%.21s (changed)", model);
    return OK;
}

/* Names of models that other programs accept. */
static Status refuse_foreign(const char *model) {
    const char *slash = strchr(model, '/');
    PathKind kind;
    TRY(path_kind(model, &kind));
    bool hub =
        slash && slash > model && slash[1] && !strchr(slash + 1, '/') && *model != '.' && *model != '~';
    if (path_ends_with(model, ".gguf"))
        return fail(ERROR_USAGE,
                    "%s: a GGUF file is not read; name a folder with config.json and model.safetensors",
                    model);
    if (kind == PATH_FILE)
        return fail(ERROR_USAGE,
                    "--model=%s is a file; name the folder that holds config.json and the weights", model);
    if (!hub) return OK;
    return fail(
        ERROR_USAGE,
        "there is no folder %s here, and nothing is downloaded: `hf download %s --local-dir=FOLDER`, then "
        "--model=FOLDER",
        model, model);
}

static Status open_config(Session *s, const char *model, const ConfigSizes *sizes) {
    TRY(find_folder(model, &s->folder));
    if (!s->folder) TRY(refuse_foreign(model));
    if (s->folder) s->name = memory_text(s->folder);
    if (s->folder) utf8_tame(s->name, (int64_t)strlen(s->name), false);
    TRY(s->folder ? checkpoint_config(s->folder, &s->config) : config_preset(model, &s->config));
    s->config.kept = &s->kept;
    if (s->folder) TRY(kept_read(s->folder, &s->kept));
    scale_pictures(&s->config);
    if (!sizes) return OK;
    bool of_pairs = sizes->encoder_layers || sizes->pre_norm || sizes->embeddings;
    if (of_pairs && !s->config.architecture->encoder)
        return fail(ERROR_USAGE,
                    "--encoder-layers, --pre-norm and --embeddings are for an encoder-decoder, not for %s",
                    model);
    if (s->folder)
        TRY(check_sizes(sizes, &s->config, model));
    else
        change_sizes(sizes, &s->config);
    TRY(change_head(s, sizes));
    return s->folder ? OK : rename_changed(model, &s->config);
}

/* Reads a folder's class names. A new head gets the data's class names when the data is opened. */
static Status open_labels(Session *s) {
    Config *c = &s->config;
    c->labels = &s->labels;
    if (!s->folder || c->architecture->task != TASK_CLASS || c->new_head) return OK;
    return labels_read(s->folder, &s->labels);
}

static Status open_tokenizer(Session *s, const char *name, bool vocab_given) {
    const char *path = name;
    if (s->config.architecture->patches)
        return *name ? fail(ERROR_USAGE, "--tokenizer is for text, and this model reads pictures") : OK;
    if (!*name) {
        bool present = false;
        if (s->folder) TRY(tokenizer_present(s->folder, &present));
        if (present)
            path = s->folder;
        else if (s->config.vocab == BYTES || (!s->folder && s->config.vocab < BYTES))
            path = "bytes";
        else
            return OK;
    }
    TRY(tokenizer_open(path, &s->tokenizer));
    int64_t vocab = tokenizer_vocab(s->tokenizer);
    if (*name && !s->folder && !vocab_given) s->config.vocab = vocab;
    if (vocab > s->config.vocab)
        return fail(ERROR_USAGE, "the tokenizer %s has %lld tokens, but the model has only %lld", path,
                    (long long)vocab, (long long)s->config.vocab);
    return OK;
}

/* Warns about a tokenizer, such as "bytes", that cannot write most of the tokens that the model predicts. */
static void warn_of_narrow_tokenizer(const Session *s) {
    if (!s->folder || !s->tokenizer) return;
    int64_t known = tokenizer_vocab(s->tokenizer);
    if (known < s->config.vocab / 2)
        fprintf(stderr, "the tokenizer knows %lld of the model's %lld tokens; the others produce no text\n",
                (long long)known, (long long)s->config.vocab);
}

static Status find_bf16_fast(Session *s) {
    s->bf16_fast = s->device->backend == BACKEND_CUDA;
    return s->bf16_fast ? OK : gemm_cpu_bf16_fast(s->device, &s->bf16_fast);
}

static Status open_parts(Session *s, const char *model, const ConfigSizes *sizes, const char *tokenizer,
                         const ComputeOptions *compute) {
    TRY(open_config(s, model, sizes));
    TRY(open_labels(s));
    TRY(open_tokenizer(s, tokenizer, sizes && sizes->vocab));
    TRY(config_validate(&s->config));
    if (s->folder) TRY(checkpoint_check(s->folder, &s->config, &s->stored));
    s->packed = s->stored;
    TRY(fuses_parse(compute->fused, &s->fuses));
    TRY(device_open(compute->device, (int)compute->threads, &s->device));
    if (s->fuses & FUSE_INVARIANT && s->device->backend == BACKEND_CUDA &&
        s->config.head_size > ATTENTION_WIDTH)
        return fail(ERROR_USAGE,
                    "--fused=invariant on a GPU is for heads of at most %d columns; add --device=cpu",
                    ATTENTION_WIDTH);
    TRY(find_bf16_fast(s));
    TRY(compute_options_dtype(compute, s->device->backend, s->bf16_fast, &s->dtype, &s->tf32));
    const int cores = omp_get_num_procs();
    if (compute->threads > cores) // after all checks, so that an error is not preceded by this warning
        fprintf(stderr, "--threads=%lld: this process has %d core%s, so threads will wait for each other\n",
                (long long)compute->threads, cores, cores == 1 ? "" : "s");
    return OK;
}

Status session_open(Session *s, const char *model, const ConfigSizes *sizes, const char *tokenizer,
                    const ComputeOptions *compute) {
    *s = (Session){.graphs = compute->graphs};
    Status status = open_parts(s, model, sizes, tokenizer, compute);
    if (status) session_close(s);
    return status;
}

Status session_expect(const Session *s, const char *model, const ConfigSizes *sizes) {
    const Config *c = &s->config;
    Config preset;
    Status status = config_preset(model, &preset);
    bool folder = status != OK;
    status_free(status);
    if (folder) return OK;
    change_sizes(sizes, &preset);
    if (preset.architecture == c->architecture && preset.layers == c->layers && preset.heads == c->heads &&
        preset.width == c->width)
        return OK;
    return fail(ERROR_USAGE, "--model=%s is not the model in %s, with which --resume continues; leave it out",
                model, session_model_name(s));
}

void session_close(Session *s) {
    tokenizer_free(s->tokenizer);
    memory_free(s->folder);
    memory_free(s->name);
    labels_free(&s->labels);
    kept_free(&s->kept);
    if (s->device) s->device->close(s->device);
    *s = (Session){0};
}

Status session_scale(Session *s, int64_t side) {
    Config *c = &s->config;
    if (!c->architecture->patches)
        return fail(ERROR_USAGE, "--image-sizes is for a vision Transformer, not for %s",
                    c->architecture->description);
    c->image = side;
    config_complete(c);
    scale_pictures(c);
    return config_validate(c);
}

typedef struct {
    Progress *bar; // counts millions of elements
    double time;   // when the bar was last updated
    int64_t done;
} Loading;

static void show_loaded(void *loader, int64_t elements) {
    Loading *l = loader;
    double time = device_clock();
    int64_t done = elements / MILLION;
    if (done == l->done) return;
    progress_step(l->bar, done, (time - l->time) / (double)(done - l->done));
    l->done = done;
    l->time = time;
}

static Status load_folder(const Session *s, Ctx *ctx, Parameters *p) {
    Loading loading = {progress_open(stderr, stderr, 0, p->size / MILLION, !s->shows_progress),
                       device_clock(), 0};
    p->loaded = show_loaded;
    p->loader = &loading;
    Status status = checkpoint_load(ctx, s->folder, p);
    p->loaded = NULL;
    progress_close(loading.bar);
    return status;
}

Status session_load(const Session *s, Ctx *ctx, Parameters *parameters, uint64_t seed) {
    if (!s->folder || s->config.new_head) TRY(parameters_initialize(ctx, parameters, seed));
    warn_of_narrow_tokenizer(s);
    if (s->folder) TRY(load_folder(s, ctx, parameters));
    return parameters_copy_head(ctx, parameters);
}

const char *session_model_name(const Session *s) {
    return s->name ? s->name : s->config.name;
}

const char *session_dtype_name(const Session *s) {
    return s->tf32 ? "tf32" : dtype_name(s->dtype);
}
